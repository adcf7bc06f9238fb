// plan_conversion() makes the plan of a bundle from a checkpoint. It reads no weight bytes, except
// to compare tensors that the config declares equal.
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
#include "core/tiled_picture.h"
#include "graph/graph.h"
#include "graph/passes/add_factors.h"
#include "graph/passes/passes.h"
#include "graph/passes/quantize_weights.h"
#include "packer/bundle_plan.h"

namespace ferry::plan {

// An adapter that the bundle gets as a data file of its own.
struct AdapterChoice {
  std::string name;
  std::string path;  // directory, as peft writes it
};

// The programs of a bundle with several components.
enum class ProgramLayout {
  kComponents,  // programs of their own
  kOneProgram,  // one program, model.pte, with the method names of ExecuTorch's runners
};

struct ConvertOptions {
  std::string source;
  std::string config;       // path of a config.json that replaces the checkpoint's; may be empty
  std::string lora;         // directory of an adapter that is merged into the weights; may be empty
  std::string mmproj = {};  // of a GGUF file: the projector with its vision encoder; may be empty
  // Adapters that stay apart from the weights: programs take the factors of every layer that any of
  // them changes.
  std::vector<AdapterChoice> adapters = {};
  std::optional<DType> adapter_dtype = {};  // of their factors; default: see converters::slots_of()
  // Without `adapters`: the weights that take factors, for programs that repeat those of a bundle.
  graph::FactorSlots factors = {};
  graph::WeightDType dtype = graph::WeightDType::kKeep;
  // Dtypes of single components, by role. kUsage for a role that the model does not have.
  std::map<std::string, graph::WeightDType> component_dtypes = {};
  graph::QuantizeOptions quantize = {};  // for all components
  // For programs that stay in memory: matrices whose encoding in the checkpoint is one of these
  // names stay in blocks (graph::keep_blocks). Empty for programs that other runtimes may execute.
  graph::IsBlockName keeps_blocks = {};
  int32_t shards = 1;  // of the text decoder or text encoder
  // Static programs: the parts become one program; see mark_cuts().
  bool shards_in_one_file = false;
  std::optional<ProgramLayout> layout = {};  // default: kComponents
  uint64_t max_file_bytes = 0;               // 0: unlimited
  std::optional<int64_t>
      context_length;  // default: the config's, but at most 4096; see mapped_model.cc
  // Default: the context length, but at most 512. For static programs: half of the context length,
  // but at most 128.
  std::optional<int64_t> prefill_length;
  // The kinds of inputs beside text. Default: those that the checkpoint has towers for; see the
  // option.
  std::optional<converters::Inputs> inputs = {};
  // Most patches of an image, where a tower takes images of any shape. Default: 4096, but no more
  // than the rows of a context need.
  std::optional<int64_t> max_patches = {};
  std::optional<int64_t> max_sound = {};   // seconds
  std::optional<int64_t> max_source = {};  // tokens of a text of an encoder-decoder; default: 512
  // Height and width in pixels of the pictures that one program of all components takes, where a
  // tower takes pictures of any shape.
  std::optional<Extent> image_size = {};
  // Default: encoder for a model whose tokens attend to later tokens, otherwise stateful.
  std::optional<converters::ProgramStyle> style = {};
  DType kv_cache = DType::kF32;                      // for stateful programs; see BuildOptions
  std::optional<AttentionSink> attention_sink = {};  // for stateful programs
  // With a sink: RoPE turns by positions in the text, as many as the model has, instead of slots.
  std::optional<bool> text_positions = {};
  // For static programs. Encodings that are absent get placeholder values in the plan; see
  // calibrate().
  std::optional<int64_t> decode_length;  // tokens per call of kv_forward; default: 1
  converters::PortTypes ports = {};
  bool single_head_attention = false;  // see split_heads()
  converters::SoftmaxStyle softmax = converters::SoftmaxStyle::kPlain;
  converters::Rotation rotation = converters::Rotation::kNone;
  bool all_logits = false;
  graph::BufferInitOptions buffers = {};
  std::vector<std::string> allow_unmapped = {};
  std::optional<converters::PackedLayout> packed_layout = {};  // default: the layout of the family
  std::string reference;         // path of the file to embed; may be empty
  bool check_tokenizer = false;  // read tokenizer.json and report problems in `notes`
};

struct PlannedBuffer {
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t bytes = 0;
  bool stored = false;
};

// A component as programs: one model per program, and the weights that the plan points to.
struct ConvertedComponent {
  std::string role;
  std::vector<graph::Model> parts;
  // "f32", "f16", "bf16" or "mixed", for matrices that are not quantised; empty if there are none.
  std::string weight_dtype = {};
  std::string quantization = {};  // from graph::QuantizedModel::summary
};

// A checkpoint whose keys have been mapped, and the messages about the mapping. Move-only.
struct MappedCheckpoint {
  std::unique_ptr<TensorSource> source;
  converters::ModelConfig config;
  std::string family;  // from family_name() of the config
  converters::MappingReport mapping;
  std::vector<std::string> unused_config_keys;  // see ConfigReport
  // Keys that versions of transformers read differently; see ConfigReport.
  std::vector<converters::VersionReading> version_readings;
  std::vector<std::string> notes;  // lines for the user about what the output lacks or cannot do
  std::vector<converters::KeyProblem> problems;  // if there are any, nothing is planned
};

// A planned conversion: everything that the plan refers to, and what is reported about it.
// Move-only.
struct Conversion {
  MappedCheckpoint mapped;
  std::vector<ConvertedComponent> components;  // the plan has pointers into this vector
  // The weights of all components, where these share a program; the plan has a pointer to it.
  std::unique_ptr<graph::StateDict> all_weights = {};
  std::vector<PlannedBuffer> buffers;
  uint64_t activation_bytes = 0, activation_lower_bound = 0;  // of the method that needs most
  uint64_t state_bytes = 0;                                   // of all programs
  std::optional<packer::BundlePlan> plan;
};

// Keys that do not fit the model are returned as MappedCheckpoint::problems, not as an error.
// `pool` is used by ScaleMethod::kHqq, which reads the weights for its plan; without a pool, the
// calling thread does the work. The reference is copied without being read; conversion::prepare()
// checks it.
Result<Conversion> plan_conversion(const ConvertOptions& options, ThreadPool* pool = nullptr);

}  // namespace ferry::plan
