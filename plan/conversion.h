// plan_conversion(): a checkpoint becomes the plan of a bundle. Until the plan is written, no
// weight byte is read, except to compare tensors that the config calls equal.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "converters/build_options.h"
#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "graph/graph.h"
#include "graph/passes/passes.h"
#include "graph/passes/quantize_weights.h"
#include "packer/bundle_plan.h"

namespace ferry::plan {

struct ConvertOptions {
  std::string source;
  std::string config;  // path of a config.json instead of the checkpoint's; may be empty
  std::string lora;    // directory of an adapter to merge into the weights; may be empty
  graph::WeightDType dtype = graph::WeightDType::kKeep;
  // By role, for components of another dtype. kUsage for a role that the model does not have.
  std::map<std::string, graph::WeightDType> component_dtypes = {};
  graph::QuantizeOptions quantize = {};  // of all components
  int32_t shards = 1;                    // of the text decoder
  bool shards_in_one_file = false;       // static programs: parts of one program; see mark_cuts()
  uint64_t max_file_bytes = 0;           // 0: unlimited
  std::optional<int64_t>
      context_length;  // default: the smaller of the config and 4096; see mapped_model.cc
  // Default: the smaller of the context and 512; of half the context and 128 for
  // static programs.
  std::optional<int64_t> prefill_length;
  // Default: encoder for a model whose tokens attend to later ones, else stateful.
  std::optional<converters::ProgramStyle> style = {};
  DType kv_cache = DType::kF32;  // of stateful programs; see BuildOptions
  // For static programs. A plan takes any encodings where these are absent; see calibrate().
  std::optional<int64_t> decode_length;  // tokens of a call of kv_forward; default: 1
  converters::PortTypes ports = {};
  bool single_head_attention = false;  // split_heads()
  converters::SoftmaxStyle softmax = converters::SoftmaxStyle::kPlain;
  converters::Rotation rotation = converters::Rotation::kNone;
  bool all_logits = false;
  graph::BufferInitOptions buffers = {};
  std::vector<std::string> allow_unmapped = {};
  std::optional<converters::PackedLayout> packed_layout = {};  // none: the family's own
  std::string reference;                                       // file to embed; may be empty
  bool check_tokenizer = false;  // read tokenizer.json, for Conversion::notes
};

struct PlannedBuffer {
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t bytes = 0;
  bool stored = false;
};

// A component as programs: one model for each, with the weights that the plan points to.
struct ConvertedComponent {
  std::string role;
  std::vector<graph::Model> parts;
  // "f32", "f16", "bf16", "mixed": of its matrices that are not quantised; empty without any.
  std::string weight_dtype = {};
  std::string quantization = {};  // graph::QuantizedModel::summary
};

// A checkpoint whose keys have been mapped, and what there is to say about that. Move-only.
struct MappedCheckpoint {
  std::unique_ptr<TensorSource> source;
  converters::ModelConfig config;
  std::string family;  // family_name() of the config
  converters::MappingReport mapping;
  std::vector<std::string> unused_config_keys;  // see ConfigReport
  // Keys whose reading differs between versions of transformers, see ConfigReport.
  std::vector<converters::VersionReading> version_readings;
  std::vector<std::string> notes;  // lines for the user: what the output will not have or do
  std::vector<converters::KeyProblem> problems;  // if there are any, nothing is planned
};

// Everything that the plan refers to, and what there is to say about it. Move-only.
struct Conversion : MappedCheckpoint {
  std::vector<ConvertedComponent> components;  // the plan points into them
  std::vector<PlannedBuffer> buffers;
  uint64_t activation_bytes = 0, activation_lower_bound = 0;  // of the method that needs most
  uint64_t state_bytes = 0;                                   // of all programs
  std::optional<packer::BundlePlan> plan;
};

// Keys that do not fit the model come back as Conversion::problems, not as an error.
// `pool` serves ScaleMethod::kHqq, which reads the weights for its plan; without one, this thread
// does. A reference is copied and not read; conversion::prepare() checks it.
Result<Conversion> plan_conversion(const ConvertOptions& options, ThreadPool* pool = nullptr);

}  // namespace ferry::plan
