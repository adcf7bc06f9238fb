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
  // The rows of the source in the order of the target; none: all rows as they are. A row is a slice
  // of the source's last dimension, or an element where it has one dimension only. `tensor` is 0.
  std::function<std::vector<StridedPiece>(const ModelConfig&)> rows = nullptr;
  // The shape of the target, where it is not that of the source with another first dimension.
  std::function<Shape(const ModelConfig&)> shape = nullptr;
};

struct KeyRule {
  enum class Kind {
    kMap,    // one source to one target (rename) or several (split, de-interleave)
    kStack,  // the matrices of all experts ("{e}" in `source`) to one target (experts, rows,
             // columns)
    kDrop,   // accounted for, not used; `reason` says why
  };
  std::string name;  // of the rule, for reports: "attention.wq", "drop mtp"
  Kind kind = Kind::kMap;
  // Source key: literal text, "{i}" one decimal layer number in [0, num_layers), "{e}" one expert
  // number in [0, moe.experts), a trailing "*" any rest (drops only).
  std::string source;
  std::vector<RuleTarget> targets = {};
  std::vector<graph::Step> steps = {};
  std::string reason = {};
  // Rows that the source must have, where the split needs it: the message says what was expected.
  std::function<int64_t(const ModelConfig&)> expected_rows = nullptr;
  // The whole shape, where rows alone do not settle it; a stack needs it, of each source.
  std::function<Shape(const ModelConfig&)> expected_shape = nullptr;
  // Where one source key comes in more than one layout (packed_keys.h): one rule for each, of which
  // at most one is the family's own.
  std::optional<PackedLayout> layout = {};
  bool own_layout = false;
};

// A weight that is another one under a second name ("output.weight" = "tok_embeddings.weight").
// Where a checkpoint has one of the two, it is both.
struct TieRule {
  std::string name;
  std::string target;
  std::string same_as;
};

struct MappedEntry {
  std::string source;                // stored key
  std::vector<std::string> targets;  // empty for a drop
  std::string rule;
  std::string reason;  // of a drop
};

// A prefix that all keys of a checkpoint have because a wrapper saved them, and that no rule sees.
struct TakenPrefix {
  std::string prefix;  // "_orig_mod."
  std::string rule;    // "torch.compile"
};

struct MappingReport {
  std::vector<MappedEntry> entries;  // one per source entry, in its order, then ties (source empty)
  std::vector<std::string> allowed;  // keys without a rule that --allow-unmapped let pass
  bool packed_keys = false;          // a key came in a layout that --packed-layout chooses
  std::vector<TakenPrefix> prefixes;  // outermost first
  size_t without_base_prefix = 0;     // keys that were taken with the base prefix before them

  // All of them, as they stand before a key.
  std::string prefix() const;
};

struct MappingOptions {
  std::vector<std::string> allow_unmapped = {};    // globs
  std::optional<PackedLayout> packed_layout = {};  // of every packed key that comes in several
  // What stands before the keys of the base model in one with a head ("model."). A checkpoint of
  // the base model alone lacks it: a key that no rule knows is tried with it, and without it.
  std::string base_prefix = {};
};

// One reason why a checkpoint does not fit its model.
struct KeyProblem {
  enum class Kind {
    kUnmapped,   // a source key that no rule knows
    kMissing,    // a weight that no source key makes
    kDuplicate,  // two source keys make the same weight
    kShape,      // wrong shape, or wrong number of rows for a split
    kDType,      // not a float type that can be converted
    kAmbiguous,  // packed in one of several layouts, and nothing says in which
  } kind;
  std::string key;      // stored source key, or the expected one
  std::string message;  // a whole line, the key quoted in it
};

struct MappedKeys {
  graph::StateDict weights;
  MappingReport report;
  std::vector<KeyProblem> problems;  // all of them, in the order of the entries
  // Weights whose source key has a problem. They are not reported as missing again.
  std::set<std::string> rejected;
  std::vector<bool> matched;  // per rule: some key is its
};

// Applies `rules` to the key of every tensor, after taking off the prefixes of wrappers that all
// keys have. Reports and problems name tensors as the file does. Never stops at the first problem.
// kInternal if two rules match one key without being layouts of it, which is a defect of a family's
// table.
Result<MappedKeys> map_keys(const TensorSource& source, const KeyedTensors& keyed,
                            const ModelConfig& config, const std::vector<KeyRule>& rules,
                            const std::vector<TieRule>& ties, const MappingOptions& options);

// The source key that a rule would make `target` of ("model.layers.3.mlp.up_proj.weight"), or
// empty. Of several rules the one that is most like a rule which other keys of the checkpoint
// match: it has their prefix.
std::string expected_key(const std::vector<KeyRule>& rules, const std::string& target,
                         const std::vector<bool>& matched = {});

}  // namespace ferry::converters
