#include "core/shape.h"
