#include "runner/method.h"
