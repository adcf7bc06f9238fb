#include "packer/manifest.h"
