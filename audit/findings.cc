#include "audit/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "core/text.h"

namespace ferry::audit {
namespace {

constexpr uint64_t kSmallTensor = 4096;                  // bytes; smaller savings are not reported
constexpr uint64_t kSmallConstant = uint64_t{64} << 10;  // bytes that may stay in a program
constexpr uint64_t kPaddingPart = 100;  // padding above 1/100 of all bytes is reported
constexpr uint64_t kFilePart = 10;      // a file above 1/10 of all bytes is reported

bool is_value_leaf(const Leaf& leaf) {
  return leaf.kind == LeafKind::kWeight || leaf.kind == LeafKind::kConstant ||
         leaf.kind == LeafKind::kBufferInit;
}

std::string shown_name(const Leaf& leaf) { return leaf.name.empty() ? "?" : leaf.name; }

// Makes one finding about all leaves for which `matches` returns true, or no finding if there are
// none.
struct LeafRule {
  std::string_view id;
  bool warning;
  std::function<bool(const Audit&, const Leaf&)> matches;
  std::function<uint64_t(const Leaf&)> saved;
  std::string_view what, remedy;
};

uint64_t all_bytes(const Leaf& leaf) { return leaf.bytes; }
uint64_t half_of(const Leaf& leaf) { return leaf.bytes / 2; }

bool is_side_file(const Leaf& leaf) {
  return leaf.kind == LeafKind::kTokenizer || leaf.kind == LeafKind::kReference ||
         leaf.kind == LeafKind::kMetadata || leaf.kind == LeafKind::kOther;
}

const std::array<LeafRule, 9>& leaf_rules() {
  static const std::array<LeafRule, 9> rules = {{
      {"unaccounted", true,
       [](const Audit&, const Leaf& leaf) { return leaf.kind == LeafKind::kUnaccounted; },
       all_bytes, "ranges that nothing explains", "see what wrote the file"},
      {"unused", true, [](const Audit&, const Leaf& leaf) { return leaf.unused && leaf.bytes > 0; },
       all_bytes, "ranges that nothing refers to", "leave them out when the file is written"},
      {"in-program-weight", true,
       [](const Audit&, const Leaf& leaf) {
         return leaf.kind == LeafKind::kConstant && leaf.bytes > kSmallConstant &&
                leaf.component != "rope";
       },
       all_bytes, "large constants inside of programs",
       "export them to a data file (.ptd), which programs can share"},
      {"rope-table", false,
       [](const Audit&, const Leaf& leaf) {
         return leaf.kind == LeafKind::kConstant && leaf.bytes > kSmallConstant &&
                leaf.component == "rope";
       },
       all_bytes, "tables of rotary embedding inside of programs",
       "they have a row for each position: a shorter context makes them smaller"},
      {"stored-buffer", true,
       [](const Audit&, const Leaf& leaf) {
         return leaf.kind == LeafKind::kBufferInit && leaf.content == "zero";
       },
       all_bytes, "initial contents of buffers that are all zeros",
       "let the runtime fill the buffers with zeros"},
      {"large-file", false,
       [](const Audit& audit, const Leaf& leaf) {
         return is_side_file(leaf) && !leaf.unused && leaf.bytes > audit.bytes() / kFilePart;
       },
       all_bytes, "more than a tenth of all bytes that are no weights",
       "see whether all of it is needed where the model runs"},
      {"zero", true,
       [](const Audit&, const Leaf& leaf) {
         return leaf.content == "zero" && leaf.bytes > kSmallTensor &&
                leaf.kind != LeafKind::kBufferInit;
       },
       all_bytes, "tensors that are all zeros", "see whether the checkpoint was initialised"},
      {"constant", false,
       [](const Audit&, const Leaf& leaf) {
         return leaf.content == "constant" && leaf.bytes > kSmallTensor;
       },
       all_bytes, "tensors of one value", "see whether the checkpoint was trained"},
      {"widened", true,
       [](const Audit&, const Leaf& leaf) {
         return (leaf.content == "bf16" || leaf.content == "f16") && leaf.bytes > kSmallTensor;
       },
       half_of, "f32 tensors whose values are those of bf16 or f16",
       "store them with 16 bits: no value changes"},
  }};
  return rules;
}

class Finder {
 public:
  explicit Finder(const Audit& audit) : audit_(audit) {}

  std::vector<Finding> run() {
    for (const LeafRule& rule : leaf_rules()) apply(rule);
    find_padding();
    find_duplicates();
    std::ranges::stable_sort(out_, [](const Finding& a, const Finding& b) {
      return std::tuple(!a.warning, b.bytes) < std::tuple(!b.warning, a.bytes);
    });
    return std::move(out_);
  }

 private:
  void apply(const LeafRule& rule) {
    Finding finding{.id = std::string(rule.id), .warning = rule.warning};
    for (const Leaf& leaf : audit_.leaves) {
      if (!rule.matches(audit_, leaf)) continue;
      finding.bytes += rule.saved(leaf);
      finding.items.push_back(shown_name(leaf));
    }
    if (finding.items.empty()) return;
    finding.message = fmt::format("{}: {}", rule.what, human_bytes(finding.bytes));
    finding.remedy = rule.remedy;
    out_.push_back(std::move(finding));
  }

  void find_padding() {
    const uint64_t bytes = audit_.bytes_of(LeafKind::kPadding);
    if (bytes <= std::max(kSmallTensor, audit_.bytes() / kPaddingPart)) return;
    out_.push_back({.id = "padding",
                    .warning = true,
                    .bytes = bytes,
                    .items = {},
                    .message = fmt::format("padding is more than 1 %: {}", human_bytes(bytes)),
                    .remedy = "a smaller alignment of segments, or fewer small ones"});
  }

  void find_duplicates() {
    std::map<std::string_view, std::vector<const Leaf*>> by_digest;
    for (const Leaf& leaf : audit_.leaves) {
      if (!is_value_leaf(leaf) || leaf.sha256.empty() || leaf.bytes <= kSmallTensor) continue;
      by_digest[leaf.sha256].push_back(&leaf);
    }
    Finding copies{.id = "duplicate", .warning = true},
        heads{.id = "untied-equal", .warning = true};
    for (const auto& [digest, leaves] : by_digest) {
      if (leaves.size() < 2) continue;
      Finding& finding = has_embedding_and_head(leaves) ? heads : copies;
      finding.bytes += (leaves.size() - 1) * leaves.front()->bytes;
      for (const Leaf* leaf : leaves) finding.items.push_back(shown_name(*leaf));
    }
    add(std::move(copies), "tensors with equal bytes are stored more than once",
        "store them once under several names");
    add(std::move(heads), "embedding and head are stored apart, with equal bytes",
        "tie them: one tensor, two names");
  }

  static bool has_embedding_and_head(const std::vector<const Leaf*>& leaves) {
    const auto has = [&](std::string_view component) {
      return std::ranges::any_of(leaves,
                                 [&](const Leaf* leaf) { return leaf->component == component; });
    };
    return has("embedding") && has("head");
  }

  void add(Finding finding, std::string_view what, std::string_view remedy) {
    if (finding.items.empty()) return;
    finding.message = fmt::format("{}: {}", what, human_bytes(finding.bytes));
    finding.remedy = remedy;
    out_.push_back(std::move(finding));
  }

  const Audit& audit_;
  std::vector<Finding> out_;
};

}  // namespace

std::vector<Finding> find_all(const Audit& audit) { return Finder(audit).run(); }

bool is_finding(std::string_view id) {
  return id == "padding" || id == "duplicate" || id == "untied-equal" ||
         std::ranges::any_of(leaf_rules(), [&](const LeafRule& rule) { return rule.id == id; });
}

}  // namespace ferry::audit
