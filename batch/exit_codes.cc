#include "batch/exit_codes.h"
