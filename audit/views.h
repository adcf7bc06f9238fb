// Views: the leaves of an audit rolled up by what they have in common. The rows of every view add
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
std::string_view name_of(ViewKey key);  // "kind"
// "layer,component". kUsage for other words.
Result<std::vector<ViewKey>> view_keys(std::string_view text);

enum class ViewOrder { kBytes, kName, kCount, kElements };
Result<ViewOrder> view_order(std::string_view word);

// What a leaf is counted under; "" where the view does not apply to it. The layer of a vision tower
// is "vision 3".
std::string key_of(const Audit& audit, const Leaf& leaf, ViewKey key);

struct ViewRow {
  std::string key;
  uint64_t bytes = 0, elements = 0, count = 0;  // count: of leaves, the parts of one as one
  uint64_t tensor_bytes = 0;                    // of leaves with elements
  std::vector<ViewRow> rows = {};               // by the next key
};

// Nested by `keys`. kBytes, kCount and kElements fall, names rise, numbers in them by value.
std::vector<ViewRow> view(const Audit& audit, const std::vector<ViewKey>& keys, ViewOrder order);

}  // namespace ferry::audit
