// The straight line of design and docs/architecture.md in one function: a checkpoint becomes a
// planned bundle. Nothing is printed and, until the plan is written, no weight byte is read, except
// to compare tensors that the config calls equal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "converters/key_rule.h"
#include "converters/model_config.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "graph/graph.h"
#include "graph/passes/passes.h"
#include "packer/bundle_writer.h"

namespace ferry::cli {

struct ConvertOptions {
  std::string source;
  std::string config;  // path of a config.json instead of the checkpoint's; may be empty
  WeightDType dtype = WeightDType::kKeep;
  int32_t shards = 1;
  uint64_t max_file_bytes = 0;            // 0: unlimited
  std::optional<int64_t> context_length;  // default: the smaller of the config and 4096
  std::optional<int64_t> prefill_length;  // default: the smaller of the context and 512
  bool all_logits = false;
  BufferInitOptions buffers = {};
  std::vector<std::string> allow_unmapped = {};
  std::optional<PackedLayout> packed_layout = {};  // none: the family's own
  std::string reference;  // file to embed; may be empty
  bool check_tokenizer = false;  // read tokenizer.json, for Conversion::notes
};

struct PlannedBuffer {
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t bytes = 0;
  bool stored = false;
};

// Everything that the plan refers to, and what there is to say about it. Move-only.
struct Conversion {
  std::unique_ptr<TensorSource> source;
  ModelConfig config;
  std::string family;  // the model type that it was found under
  MappingReport mapping;
  std::vector<std::string> notes;    // lines for the user: what the bundle will not have or do
  std::vector<KeyProblem> problems;  // if there are any, there is nothing below
  std::vector<Model> parts;          // the weights that the plan points to
  std::vector<PlannedBuffer> buffers;
  uint64_t activation_bytes = 0, activation_lower_bound = 0;  // the largest part
  uint64_t state_bytes = 0;                                   // of all parts
  std::optional<BundlePlan> plan;
};

// Keys that do not fit the model come back as Conversion::problems, not as an error.
Result<Conversion> plan_conversion(const ConvertOptions& options);

}  // namespace ferry::cli
