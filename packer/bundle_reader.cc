#include "packer/bundle_reader.h"
