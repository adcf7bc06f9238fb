// map_keys() turns the keys of a checkpoint into the weights of a model, by the rules of a family.
// It works on metadata and reads no weight. Each key must match exactly one rule, and each weight
// must be made exactly once.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/keyed_tensors.h"
#include "converters/keys/row_layouts.h"
#include "core/result.h"
#include "core/strided.h"
#include "core/tensor_source.h"
#include "graph/recipe.h"

namespace ferry::converters {

// One weight that a rule makes.
struct RuleTarget {
  std::string name;  // runtime name; "{i}" is the layer, as in the pattern
  // The rows of the source in the order of the target; nullptr: all rows as they are. A row is a
  // slice of the source's last dimension, or an element where it has one dimension only.
  // StridedPiece::tensor is 0.
  std::function<std::vector<StridedPiece>(const ModelConfig&)> rows = nullptr;
  // The shape of the target, where more than the first dimension differs from the source.
  std::function<Shape(const ModelConfig&)> shape = nullptr;
  bool elements = false;  // `rows` counts elements: for a transpose. `shape` must be given
};

struct KeyRule {
  enum class Kind {
    kMap,    // one source to one target (rename) or several (split, de-interleave)
    kStack,  // the tensors of all experts ("{e}" in `source`) to one target (experts, ...)
    kJoin,   // the rows of the tensors `parts`, one after the other, to one target
    kDrop,   // accounted for, not used; `reason` says why
  };
  std::string name;  // for reports: "attention.wq", "drop mtp"
  Kind kind = Kind::kMap;
  // Pattern of source keys: literal text; "{i}", a decimal layer number in [0, layers); "{e}", the
  // number of an expert, or of another part of a stack; a trailing "*", any text (drops only).
  std::string source;
  std::vector<RuleTarget> targets = {};
  std::vector<graph::Step> steps = {};
  std::string reason = {};
  int64_t layers = 0;   // layers of the tower that the key belongs to; 0: num_layers of the config
  int64_t stacked = 0;  // tensors of a stack; 0: moe.experts of the config
  std::vector<std::string> parts =
      {};  // patterns of all sources of a join; `source` is one of them
  // The number of rows that the source must have, if it is split. The source is then a matrix or a
  // vector.
  std::function<int64_t(const ModelConfig&)> expected_rows = nullptr;
  // The shape that the source must have, if the number of rows does not determine it. Stacks state
  // it for each of their sources, joins for all of them together.
  std::function<Shape(const ModelConfig&)> expected_shape = nullptr;
  // If a source key exists in several layouts (layout_keys.h), there is one rule for each; at most
  // one is that of the family's own checkpoints.
  std::optional<PackedLayout> layout = {};
  bool own_layout = false;
  // If several rules match a key, the one with the tensor's shape as its expected_shape counts.
  bool by_shape = false;
};

// Two names of one weight ("output.weight" and "tok_embeddings.weight"). If a checkpoint has one of
// them, it stands for both.
struct TieRule {
  std::string name;
  std::string target;
  std::string same_as;
  bool unless_stored = false;  // two different values under both names are two weights
};

struct MappedEntry {
  std::string source;                // stored key
  std::vector<std::string> targets;  // empty for a drop
  std::string rule;
  std::string reason;  // reason of a drop
};

// A prefix that a wrapper put before all keys of a checkpoint. It is removed before rules are
// matched.
struct TakenPrefix {
  std::string prefix;  // "_orig_mod."
  std::string rule;    // "torch.compile"
};

// Returns the prefixes that all keys have. A prefix that only some keys have is kept: without it
// two keys could be equal (key_wrappers.cc).
std::vector<TakenPrefix> wrapper_prefixes(const std::vector<KeyedTensor>& tensors);

struct MappingReport {
  std::vector<MappedEntry> entries;   // one per source entry, in order; then ties, without source
  std::vector<std::string> allowed;   // keys without a rule that allow_unmapped accepts
  bool packed_keys = false;           // some key exists in several layouts
  std::vector<TakenPrefix> prefixes;  // outermost first
  size_t without_base_prefix = 0;     // keys that matched after the base prefix was added

  // All prefixes, concatenated.
  std::string prefix() const;
};

struct MappingOptions {
  std::vector<std::string> allow_unmapped = {};    // globs
  std::optional<PackedLayout> packed_layout = {};  // layout of every key that exists in several
  // The prefix of the base model's keys in a model with a head ("model."). A checkpoint of the base
  // model alone lacks it, so a key without a rule is tried again with the prefix added, and with it
  // removed.
  std::string base_prefix = {};
};

// A reason why a checkpoint does not match its model.
struct KeyProblem {
  enum class Kind {
    kUnmapped,   // a source key without a rule
    kMissing,    // a weight without a source key
    kDuplicate,  // two source keys produce the same weight
    kShape,      // wrong shape, or wrong number of rows for a split
    kDType,      // not a float type that can be converted
    kAmbiguous,  // packed in one of several layouts, and it is unknown in which
  } kind;
  std::string key;      // stored source key; for kMissing the expected one
  std::string message;  // one line that quotes the key
};

struct MappedKeys {
  graph::StateDict weights;
  MappingReport report;
  std::vector<KeyProblem> problems;  // all of them, in the order of the entries
  // Weights whose source key has a problem. They are not reported as missing again.
  std::set<std::string> rejected;
  std::vector<bool> matched;  // for each rule: whether a key matched it
};

// Applies `rules` to the key of every tensor, after taking off the prefixes of wrappers that all
// keys have. Reports and problems name tensors as the file does. Never stops at the first problem.
// kInternal if two rules match one key without being layouts of it, which is a defect of a family's
// table.
Result<MappedKeys> map_keys(const TensorSource& source, const KeyedTensors& keyed,
                            const ModelConfig& config, const std::vector<KeyRule>& rules,
                            const std::vector<TieRule>& ties, const MappingOptions& options);

}  // namespace ferry::converters
