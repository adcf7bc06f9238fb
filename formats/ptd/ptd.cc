#include "formats/ptd/ptd.h"
