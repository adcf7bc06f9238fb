// Wrong codes and scales, independent of the weights. wrong_codes.cc makes them.
#include "tests/mutation/kinds.h"

namespace ferry::mutation {
namespace {

Kind kind(const char* name) {
  Kind made;
  made.name = name;
  made.excluded = none;
  made.codes = true;
  return made;
}

}  // namespace

std::vector<Kind> coded_kinds() {
  return {kind("codes_shifted_scales"), kind("codes_doubled_scales"), kind("codes_swapped_columns"),
          kind("codes_shifted_rows")};
}

}  // namespace ferry::mutation
