// error: (use of|call to) (deleted|implicitly-deleted)
#include "packer/bundle_reader.h"

ferry::packer::Bundle f(ferry::packer::Bundle& bundle) {
#ifdef MISUSE
  return bundle;
#else
  return std::move(bundle);
#endif
}
