// XXH3 with the instructions that every processor of the architecture has.
#include "core/xxh3-inl.h"

namespace ferry {

const Xxh3Functions& xxh3_baseline() { return kFunctions; }

}  // namespace ferry
