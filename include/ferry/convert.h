// Conversion: a checkpoint becomes a bundle, or files of weights for other tools.
#pragma once

#include <ferry/bundle.h>
#include <ferry/engine.h>
#include <ferry/result.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ferry {
inline namespace v0 {

enum class OutputFormat {
  kBundle,
  kSafetensors,     // weights with the names of the runtime
  kHuggingFace,     // safetensors with the keys of Hugging Face
  kPyTorch,         // .pth
  kBundledProgram,  // .bpte
  kGguf,
};

enum class WeightType { kKeep, kF32, kF16, kBF16 };
enum class ValueType { kF32, kF16, kBF16, kU16, kU8, kI8 };

enum class ProgramKind {
  kAuto,      // kEncoder for a model whose tokens attend to later ones, else kStateful
  kStateful,  // caches inside of the program
  kStatic,    // fixed shapes; caches, masks and positions are inputs and outputs
  kEncoder,   // states of a whole text
};

enum class LinearScheme {
  kNone,
  k8da4w,  // 4-bit weights in groups, 8-bit activations
  k8da8w,  // 8-bit weights, 8-bit activations
  kInt8,   // 8-bit weights, f32 activations
};

// How the matrices of linear layers are quantised.
struct LinearQuantization {
  LinearScheme scheme = LinearScheme::kNone;
  int64_t group = 32;  // of k8da4w: a multiple of 32
};

// Another scheme for the weights whose names match: "layers.*.feed_forward.w2".
struct QuantizationRule {
  std::string pattern;
  LinearQuantization linear;
};

struct ConvertOptions {
  std::string source = {};  // a checkpoint: a directory, an index or a tensor file
  std::string config = {};  // a config.json instead of the checkpoint's; may be empty
  std::string lora = {};    // the directory of an adapter to merge; may be empty
  OutputFormat format = OutputFormat::kBundle;
  std::string gguf_type = "auto";        // of kGguf: "f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m"
  WeightType dtype = WeightType::kKeep;  // of the matrices
  LinearQuantization quantize = {};
  std::vector<QuantizationRule> quantize_rules = {};  // the last one that matches decides
  int embedding_bits = 0;                             // 0: not quantised; 4 or 8
  int64_t embedding_group = 32;                       // of 4 bits: an even number
  bool hqq = false;                              // scales as the official exporter chooses them
  uint64_t max_file_bytes = 0;                   // of a weight file; 0: unlimited
  std::vector<std::string> allow_unmapped = {};  // globs of keys that may stay unused
  // The following are about programs, and not for formats of weights alone.
  ProgramKind program = ProgramKind::kAuto;
  std::optional<int64_t> context_length = {};
  std::optional<int64_t> prefill_length = {};
  std::optional<int64_t> decode_length = {};  // of kStatic
  ValueType kv_type = ValueType::kF32;        // stateful: f32, f16, i8; static: all but i8
  ValueType mask_type = ValueType::kF32;      // of kStatic
  ValueType logits_type = ValueType::kF32;    // of kStatic
  bool all_logits = false;     // logits of all tokens, not of the last one; always so with kStatic
  int32_t shards = 1;          // programs that the decoder is cut into
  std::string reference = {};  // a file of expected outputs to embed; may be empty
};

// The fate of a key of the checkpoint: the weights that are made of it, or why it is not used.
struct MappedKey {
  std::string source;  // as it is stored; empty for a weight that shares another's values
  std::vector<std::string> targets;  // weights that are made of it; none: it is not used
  std::string rule;
  std::string reason;  // why it is not used
};

struct PlanSummary {
  std::string family;           // of the model
  std::vector<FileSize> files;  // to the byte
  uint64_t total_bytes = 0;
  uint64_t activation_bytes = 0, state_bytes = 0;  // that programs take when they run
  std::vector<MappedKey> keys;
  std::vector<std::string> notes;  // lines for people: what the output will not have or do
};

struct WriteOptions {
  std::string path = {};   // the directory to make, or the file
  bool overwrite = false;  // replace an existing output
  bool resume = false;  // keep what is done when stopped, and go on with what such a run has left
  bool sync = true;     // wait until the output is on the disk
};

// The plan of a conversion, a dry run: nothing has been written. Move-only.
class ConversionPlan {
 public:
  // kBadInput, with a detail for each key, where keys do not fit the model. kU16 and kU8 need
  // calibration, which runs the model on a few fixed prompts here.
  static Result<ConversionPlan> make(const ConvertOptions& options, const Engine& engine);
  ~ConversionPlan();
  ConversionPlan(ConversionPlan&&) noexcept;
  ConversionPlan& operator=(ConversionPlan&&) noexcept;

  PlanSummary summary() const;
  // All of the output is there afterwards, or nothing. kExists unless options.overwrite.
  Status write(const WriteOptions& options, const Engine& engine,
               const OnProgress& progress = {}) const;

 private:
  struct Impl;
  explicit ConversionPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Plans and writes.
Status convert(const ConvertOptions& options, const WriteOptions& output, const Engine& engine,
               const OnProgress& progress = {});

}  // namespace v0
}  // namespace ferry
