#include <memory>
#include "packer/bundle_writer.h"
