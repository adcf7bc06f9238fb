// view() groups the leaves of an audit by kind, file, layer and so on. The rows of every view add
// up to the size of the files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/audit.h"
#include "core/result.h"

namespace ferry::audit {

enum class ViewKey { kKind, kFile, kComponent, kLayer, kDtype, kRule, kTensor };
inline constexpr size_t kViewKeys = 7;
std::string_view name_of(ViewKey key);
// Reads names of keys, such as "layer,component". Returns kUsage for another word.
Result<std::vector<ViewKey>> view_keys(std::string_view text);

enum class ViewOrder { kBytes, kName, kCount, kElements };
Result<ViewOrder> view_order(std::string_view word);

// Returns the row that a leaf belongs to; "" if the leaf has no such property. Layer 3 of a vision
// tower is "vision 3".
std::string key_of(const Audit& audit, const Leaf& leaf, ViewKey key);

struct ViewRow {
  std::string key;
  uint64_t bytes = 0, elements = 0, count = 0;  // count: of leaves; parts of a tensor count once
  uint64_t tensor_bytes = 0;                    // bytes of leaves that are tensors
  std::vector<ViewRow> rows = {};               // the leaves of this row, grouped by the next key
};

// Nests groups by `keys`, at least one. kBytes, kCount and kElements sort descending. kName sorts
// ascending, and compares digits in names as numbers.
std::vector<ViewRow> view(const Audit& audit, const std::vector<ViewKey>& keys, ViewOrder order);

}  // namespace ferry::audit
