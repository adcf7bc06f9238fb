#include "audit/leaf.h"

#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "core/checked.h"

namespace ferry::audit {
namespace {

constexpr std::array<std::string_view, kLeafKinds> kLeafNames = {
    "weight",   "constant",  "buffer_init", "program",  "delegate", "header",     "padding",
    "manifest", "tokenizer", "reference",   "metadata", "other",    "unaccounted"};
static_assert(kLeafNames.size() == static_cast<size_t>(LeafKind::kUnaccounted) + 1);

constexpr uint64_t kLargestAlignment = uint64_t{64} << 10;
constexpr uint64_t kLastAlignment = 128;

// A claim in the priority queue: the largest level is at the top, and among equal levels the
// earliest claim.
struct Active {
  int level = 0;
  size_t claim = 0;
  bool operator<(const Active& other) const {
    return std::tuple(level, other.claim) < std::tuple(other.level, claim);
  }
};

class Tiler {
 public:
  Tiler(uint32_t file, uint64_t file_bytes, std::vector<Claim> claims, const GapRule& gap)
      : file_(file), file_bytes_(file_bytes), gap_(gap), claims_(std::move(claims)) {
    drop_outside();
    std::ranges::stable_sort(claims_, [](const Claim& a, const Claim& b) {
      return std::tuple(a.leaf.offset, b.leaf.bytes, a.level) <
             std::tuple(b.leaf.offset, a.leaf.bytes, b.level);
    });
    merge_equal();
  }

  std::vector<Leaf> run() {
    size_t next = 0;
    uint64_t at = 0;
    while (true) {
      for (; next < claims_.size() && claims_[next].leaf.offset <= at; ++next) begin(next);
      while (!active_.empty() && end_of(active_.top().claim) <= at) active_.pop();
      if (at == file_bytes_) break;
      const uint64_t limit = next < claims_.size() ? claims_[next].leaf.offset : file_bytes_;
      at = active_.empty() ? fill_gap(at, limit) : extend(active_.top().claim, at, limit);
    }
    tie_covered();
    return std::move(leaves_);
  }

 private:
  void drop_outside() {
    std::erase_if(claims_, [&](const Claim& claim) {
      return !range_inside(claim.leaf.offset, claim.leaf.bytes, file_bytes_);
    });
  }

  // A matrix that is both embedding and head counts as embedding, whichever of the two names comes
  // first.
  static void tie(Leaf& leaf, Leaf other) {
    if (leaf.component == "head" && other.component == "embedding") {
      other.tied = std::move(leaf.tied);
      leaf.tied.clear();
      std::swap(leaf, other);
    }
    leaf.tied.push_back(std::move(other.name));
  }

  // Requires sorted claims, so that claims with equal level and range are neighbours.
  void merge_equal() {
    std::vector<Claim> merged;
    for (Claim& claim : claims_) {
      Claim* const last = merged.empty() ? nullptr : &merged.back();
      if (last != nullptr && claim.leaf.bytes > 0 && last->level == claim.level &&
          last->leaf.offset == claim.leaf.offset && last->leaf.bytes == claim.leaf.bytes) {
        tie(last->leaf, std::move(claim.leaf));
      } else {
        merged.push_back(std::move(claim));
      }
    }
    claims_ = std::move(merged);
    leaf_of_.assign(claims_.size(), kNoLeaf);
    parts_.assign(claims_.size(), 0);
  }

  uint64_t end_of(size_t claim) const {
    return claims_[claim].leaf.offset + claims_[claim].leaf.bytes;
  }

  void begin(size_t claim) {
    if (claims_[claim].leaf.bytes > 0) {
      active_.push({claims_[claim].level, claim});
      return;
    }
    leaves_.push_back(claims_[claim].leaf);
    leaves_.back().file = file_;
    current_ = kNoLeaf;
  }

  uint64_t fill_gap(uint64_t at, uint64_t limit) {
    Leaf leaf = gap_(at, limit - at);
    leaf.file = file_;
    leaf.offset = at;
    leaf.bytes = limit - at;
    leaves_.push_back(std::move(leaf));
    current_ = kNoLeaf;
    return limit;
  }

  uint64_t extend(size_t claim, uint64_t at, uint64_t limit) {
    const uint64_t end = std::min(limit, end_of(claim));
    if (current_ != claim) start_leaf(claim, at);
    leaves_.back().bytes += end - at;
    return end;
  }

  void start_leaf(size_t claim, uint64_t at) {
    Leaf leaf = claims_[claim].leaf;
    leaf.file = file_;
    leaf.offset = at;
    leaf.bytes = 0;
    const uint32_t piece = parts_[claim]++;
    leaf.part += piece;
    if (piece == 0) {
      leaf_of_[claim] = leaves_.size();
    } else {
      leaf.shape.clear();
      leaf.elements = 0;
      leaf.tied.clear();
      leaf.sha256.clear();
    }
    leaves_.push_back(std::move(leaf));
    current_ = claim;
  }

  // Adds the names of claims without a leaf to the leaf that covers their first byte.
  void tie_covered() {
    for (size_t i = 0; i < claims_.size(); ++i) {
      const Leaf& covered = claims_[i].leaf;
      if (leaf_of_[i] != kNoLeaf) {
        Leaf& leaf = leaves_[leaf_of_[i]];
        if (leaf.bytes != covered.bytes) leaf.sha256.clear();
        continue;
      }
      if (covered.bytes == 0 || covered.name.empty() || covered.unused) continue;
      const auto after = std::ranges::upper_bound(leaves_, covered.offset, {}, &Leaf::offset);
      if (after != leaves_.begin()) std::prev(after)->tied.push_back(covered.name);
    }
  }

  static constexpr size_t kNoLeaf = SIZE_MAX;
  const uint32_t file_;
  const uint64_t file_bytes_;
  const GapRule& gap_;
  std::vector<Claim> claims_;
  std::priority_queue<Active> active_;
  std::vector<Leaf> leaves_;
  std::vector<size_t> leaf_of_;  // index of each claim's first leaf
  std::vector<uint32_t> parts_;  // number of each claim's leaves so far
  size_t current_ = kNoLeaf;     // the claim of the last leaf, which may still grow
};

}  // namespace

std::string_view name_of(LeafKind kind) { return kLeafNames[static_cast<size_t>(kind)]; }

std::optional<LeafKind> kind_from_name(std::string_view name) {
  for (size_t i = 0; i < kLeafNames.size(); ++i) {
    if (kLeafNames[i] == name) return static_cast<LeafKind>(i);
  }
  return std::nullopt;
}

GapRule padding_rule(uint64_t file_bytes) {
  return [file_bytes](uint64_t offset, uint64_t bytes) {
    const uint64_t end = offset + bytes;
    const uint64_t alignment = end == file_bytes ? kLastAlignment : end & (~end + 1);
    const bool padding = bytes < std::min(alignment, kLargestAlignment);
    return Leaf{.kind = padding ? LeafKind::kPadding : LeafKind::kUnaccounted,
                .component = padding ? "padding" : "other"};
  };
}

std::vector<Leaf> tile(uint32_t file, uint64_t file_bytes, std::vector<Claim> claims,
                       const GapRule& gap) {
  return Tiler(file, file_bytes, std::move(claims), gap).run();
}

}  // namespace ferry::audit
