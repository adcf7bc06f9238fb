#include "converters/family.h"
