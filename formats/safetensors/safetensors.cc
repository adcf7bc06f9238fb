#include "core/tensor_source.h"
