#include "audit/views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <span>
#include <utility>

#include "core/text.h"

namespace ferry::audit {
namespace {

constexpr std::array<std::string_view, kViewKeys> kViewNames = {
    "kind", "file", "component", "layer", "dtype", "rule", "tensor"};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Removes the digits at the start of `text` and returns them without leading zeros. Such numbers
// compare by length, then as text, so that they may have any number of digits.
std::string_view take_number(std::string_view& text) {
  const size_t end = std::min(text.size(), text.find_first_not_of("0123456789"));
  std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

// Compares runs of digits as numbers: "layers.9" is less than "layers.10".
bool natural_less(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view x = take_number(a), y = take_number(b);
      if (x != y) return std::pair(x.size(), x) < std::pair(y.size(), y);
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

struct Group {
  ViewRow row;
  std::vector<const Leaf*> leaves;
};

uint64_t measure(const ViewRow& row, ViewOrder order) {
  switch (order) {
    case ViewOrder::kCount:
      return row.count;
    case ViewOrder::kElements:
      return row.elements;
    default:
      return row.bytes;
  }
}

void sort_rows(std::vector<ViewRow>& rows, ViewOrder order) {
  std::ranges::sort(rows, [&](const ViewRow& a, const ViewRow& b) {
    const uint64_t x = measure(a, order), y = measure(b, order);
    if (order != ViewOrder::kName && x != y) return x > y;
    return natural_less(a.key, b.key);
  });
}

std::vector<ViewRow> roll_up(const Audit& audit, const std::vector<const Leaf*>& leaves,
                             std::span<const ViewKey> keys, ViewOrder order) {
  std::map<std::string, Group> groups;
  for (const Leaf* leaf : leaves) {
    Group& group = groups[key_of(audit, *leaf, keys.front())];
    group.row.bytes += leaf->bytes;
    group.row.elements += leaf->elements;
    group.row.count += leaf->part == 0 ? 1 : 0;
    group.row.tensor_bytes += leaf->is_tensor() ? leaf->bytes : 0;
    group.leaves.push_back(leaf);
  }
  std::vector<ViewRow> rows;
  for (auto& [key, group] : groups) {
    group.row.key = key;
    if (keys.size() > 1) group.row.rows = roll_up(audit, group.leaves, keys.subspan(1), order);
    rows.push_back(std::move(group.row));
  }
  sort_rows(rows, order);
  return rows;
}

}  // namespace

std::string_view name_of(ViewKey key) { return kViewNames[static_cast<size_t>(key)]; }

Result<std::vector<ViewKey>> view_keys(std::string_view text) {
  std::vector<ViewKey> keys;
  while (true) {
    const std::string_view word = text.substr(0, text.find(','));
    const auto at = std::ranges::find(kViewNames, word);
    if (at == kViewNames.end()) {
      return fail_field(
          ErrorCode::kUsage, "by",
          fmt::format(": {} is none of {}", quoted(word), fmt::join(kViewNames, ", ")));
    }
    const auto key = static_cast<ViewKey>(at - kViewNames.begin());
    if (std::ranges::find(keys, key) != keys.end()) {
      return fail_field(ErrorCode::kUsage, "by", fmt::format(": {} is there twice", word));
    }
    keys.push_back(key);
    if (word.size() == text.size()) return keys;
    text.remove_prefix(word.size() + 1);
  }
}

Result<ViewOrder> view_order(std::string_view word) {
  constexpr std::array<std::string_view, 4> kOrders = {"bytes", "name", "count", "elements"};
  const auto at = std::ranges::find(kOrders, word);
  if (at != kOrders.end()) return static_cast<ViewOrder>(at - kOrders.begin());
  return fail_field(ErrorCode::kUsage, "sort",
                    fmt::format(": {} is none of {}", quoted(word), fmt::join(kOrders, ", ")));
}

std::string key_of(const Audit& audit, const Leaf& leaf, ViewKey key) {
  switch (key) {
    case ViewKey::kKind:
      return std::string(name_of(leaf.kind));
    case ViewKey::kFile:
      return audit.files[leaf.file].path;
    case ViewKey::kComponent:
      return leaf.component;
    case ViewKey::kLayer:
      if (!leaf.layer) return "";
      return fmt::format("{}{}", leaf.component.starts_with("vision.") ? "vision " : "",
                         *leaf.layer);
    case ViewKey::kDtype:
      return leaf.encoding.empty() ? leaf.dtype : leaf.encoding;
    case ViewKey::kRule:
      return leaf.rule;
    case ViewKey::kTensor:
      return leaf.name.empty() ? std::string(name_of(leaf.kind)) : leaf.name;
  }
  return {};
}

std::vector<ViewRow> view(const Audit& audit, const std::vector<ViewKey>& keys, ViewOrder order) {
  std::vector<const Leaf*> leaves;
  for (const Leaf& leaf : audit.leaves) leaves.push_back(&leaf);
  return roll_up(audit, leaves, keys, order);
}

}  // namespace ferry::audit
