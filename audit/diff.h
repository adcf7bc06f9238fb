// compare() lists the differences between two artifacts, tensor by tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "audit/audit.h"
#include "audit/views.h"

namespace ferry::audit {

struct DiffRow {
  std::string change;  // "changed", "new", "removed", "moved", "renamed"
  std::string name, old_name = {};
  uint64_t old_bytes = 0, new_bytes = 0;
  LeafKind kind = LeafKind::kOther;
  std::string component = {};
  std::optional<size_t> leaf = {};  // index into the leaves of the new artifact
  std::string note = {};            // such as "bf16 -> i8, [4, 8] -> [8, 4]"

  int64_t delta() const;
};

struct DiffViewRow {
  std::string key;
  uint64_t old_bytes = 0, new_bytes = 0;
};

struct Diff {
  std::string old_name, new_name;
  uint64_t old_bytes = 0, new_bytes = 0;
  uint64_t equal_count = 0, equal_bytes = 0;
  uint64_t moved_count = 0, moved_bytes = 0;
  bool by_content = false;  // false: no digests were known; sizes, dtypes and shapes were compared
  std::vector<std::pair<ViewKey, std::vector<DiffViewRow>>> views;
  // Sorted by descending change of size, then by name. At most 100 rows are tensors that only moved
  // to another file.
  std::vector<DiffRow> rows;
};

// Matches tensors by name, and those that remain by digest, where both digests are known. All bytes
// of a kind that has no names, such as padding, are compared as one item.
Diff compare(const Audit& old_audit, const Audit& new_audit);

}  // namespace ferry::audit
