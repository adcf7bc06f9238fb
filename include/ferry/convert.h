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
  kSafetensors,     // weights under the names of the runtime
  kHuggingFace,     // safetensors with Hugging Face keys
  kPyTorch,         // .pth
  kBundledProgram,  // .bpte
  kGguf,
  kMmproj,  // the vision encoder alone, as llama.cpp keeps it beside a GGUF file
};

enum class WeightType { kKeep, kF32, kF16, kBF16 };
enum class ValueType { kF32, kF16, kBF16, kU16, kU8, kI8 };

enum class ProgramKind {
  kAuto,      // kEncoder if tokens attend to later tokens, otherwise kStateful
  kStateful,  // caches are inside the program
  kStatic,    // fixed shapes; caches, masks and positions are inputs and outputs
  kEncoder,   // hidden states of a whole text
};

enum class LinearScheme {
  kNone,
  k8da4w,  // 4-bit weights in groups, 8-bit activations
  k8da8w,  // 8-bit weights, 8-bit activations
  kInt8,   // 8-bit weights, f32 activations
};

// Quantisation of the matrices of linear layers.
struct LinearQuantization {
  LinearScheme scheme = LinearScheme::kNone;
  int64_t group = 32;  // for k8da4w: a multiple of 32
};

// Sets another scheme for weights whose names match a glob, such as "layers.*.feed_forward.w2".
struct QuantizationRule {
  std::string pattern;
  LinearQuantization linear;
};

// A size of pictures in pixels.
struct ImageSize {
  int64_t width = 0, height = 0;
};

// The tokens at the beginning of a sequence that every token attends to, and the last ones.
struct SinkAndWindow {
  int64_t sink = 0, window = 0;
};

// An adapter as peft writes it.
struct AdapterSource {
  std::string name;       // letters, digits, '-', '_' and '.'
  std::string directory;  // without a comma
};

struct ConvertOptions {
  // A checkpoint: a directory, an index, a tensor file, or a model of the Hugging Face cache as
  // "ORG/NAME[@REVISION][:GGUF]".
  std::string source = {};
  std::string config = {};  // replaces the config.json of the checkpoint; may be empty
  std::string lora = {};    // directory of an adapter to merge into the weights; may be empty
  std::string mmproj = {};  // of a GGUF file: its projector (docs/gguf.md); may be empty
  // Adapters that stay apart from the weights, for Bundle::with_adapter().
  std::vector<AdapterSource> adapters = {};
  bool int8_adapters = false;  // codes of 8 bits for the factors of `adapters`
  OutputFormat format = OutputFormat::kBundle;
  // Path of the output. Its ending says whether weights become one file: ".safetensors", ".gguf",
  // ".pth" or ".pt". If empty, weights become files in a directory, and GGUF and a projector one
  // file.
  // convert() takes it from WriteOptions.
  std::string output = {};
  // For kGguf: "q4_k_m" and the like (docs/gguf.md); for kMmproj: "f32", "f16", "bf16" or "q8_0".
  std::string gguf_type = "auto";
  std::string gguf_imatrix = {};         // for kGguf: file of an importance matrix; may be empty
  WeightType dtype = WeightType::kKeep;  // dtype of the matrices
  LinearQuantization quantize = {};
  std::vector<QuantizationRule> quantize_rules = {};  // the last rule that matches a weight decides
  int embedding_bits = 0;                             // 0: not quantised; 4 or 8
  int64_t embedding_group = 32;                       // for 4 bits: an even number
  bool hqq = false;  // choose scales by HQQ, as the official exporter does
  // Chooses codes for the least error of the layers' outputs on a text: "default" for the text in
  // the program, or a file of text, token ids or chats (docs/quantisation.md). Empty: the nearest
  // codes. A plan then executes the model, which takes minutes.
  std::string calibrate_weights = {};
  // Most bytes of a bundle, such as "105MB" or "4.6bpw": each matrix gets a scheme of its own.
  // Where they are not set, quantize is 8da4w, embedding_bits 8 and calibrate_weights "default".
  std::string quantize_budget = {};
  uint64_t max_file_bytes = 0;                   // of each weight file; 0: unlimited
  std::vector<std::string> allow_unmapped = {};  // globs of keys that the model may leave unused
  // The following fields are for programs. They do not apply to formats of weights
  // alone.
  ProgramKind program = ProgramKind::kAuto;
  std::optional<int64_t> context_length = {};
  std::optional<int64_t> prefill_length = {};
  std::optional<int64_t> decode_length = {};  // for kStatic: tokens per call of kv_forward
  // Sequences without an end, of stateful programs; the context length follows from it.
  std::optional<SinkAndWindow> attention_sink = {};
  // With attention_sink: RoPE turns by positions in the text instead of places in the caches, so
  // that all distances in the window are true.
  bool sink_text_positions = false;
  ValueType kv_type = ValueType::kF32;      // stateful: f32, f16 or i8; static: all but i8
  ValueType mask_type = ValueType::kF32;    // for kStatic
  ValueType logits_type = ValueType::kF32;  // for kStatic
  bool all_logits = false;  // logits of all tokens instead of the last one; always with kStatic
  // The vision tower and the audio encoder too, or text alone (gemma3, gemma3n, gemma4, Qwen-VL).
  // Where one is set, the other is false by default; where none is, the model has what the
  // checkpoint has.
  std::optional<bool> images = {}, sounds = {};
  // Most patches of an image, where the tower takes images of any shape; unset: 4096, or as many as
  // fill the context.
  std::optional<int64_t> max_patches = {};
  // The one size of pictures of a vision encoder that takes planes of pixels; with `one_program`.
  std::optional<ImageSize> image_size = {};
  // Most seconds of a sound, where the audio encoder takes sounds of any length (moonshine,
  // parakeet, granite_speech, gemma3n, gemma4); unset: 60, of the last two 30, the most that they
  // take.
  std::optional<int64_t> max_sound = {};
  // Most tokens of a text that the encoder of an encoder-decoder takes (t5); unset: the smaller of
  // the config and 512.
  std::optional<int64_t> max_source = {};
  // One program that has the methods of all components, under the names of the official runners.
  bool one_program = false;
  int32_t shards = 1;          // number of programs that the decoder is split into
  std::string reference = {};  // path of a file of expected outputs to embed; may be empty
};

// Reports what became of a key of the checkpoint: the weights that are made from it, or why it is
// not used.
struct MappedKey {
  std::string source;  // key as stored; empty for a weight that shares the values of another one
  std::vector<std::string> targets;  // weights that are made from the key; empty if it is not used
  std::string rule;
  std::string reason;  // why the key is not used
};

struct PlanSummary {
  std::string family;           // name of the model family
  std::vector<FileSize> files;  // exact sizes
  uint64_t total_bytes = 0;
  uint64_t activation_bytes = 0, state_bytes = 0;  // memory that programs need at run time
  std::vector<MappedKey> keys;
  std::vector<std::string> notes;  // lines for people about what the output lacks or cannot do
};

struct WriteOptions {
  // Path of the directory or file to make; if empty, ConvertOptions::output.
  std::string path = {};
  bool overwrite = false;  // replace an existing output
  // Keep finished work when stopped, and continue from what a stopped run has left.
  bool resume = false;
  bool sync = true;  // return only when the output is on the disk
};

// The plan of a conversion. Making a plan writes nothing (dry run). Move-only.
class ConversionPlan {
 public:
  // kBadInput, with a detail for each key, if keys do not fit the model. kU16 and kU8 need
  // calibration, which runs the model on a few fixed prompts.
  static Result<ConversionPlan> make(const ConvertOptions& options, const Engine& engine);
  ~ConversionPlan();
  ConversionPlan(ConversionPlan&&) noexcept;
  ConversionPlan& operator=(ConversionPlan&&) noexcept;

  PlanSummary summary() const;
  // Writes the whole output or nothing. kExists if the output exists and options.overwrite is
  // false.
  Status write(const WriteOptions& options, const Engine& engine,
               const OnProgress& progress = {}) const;

 private:
  struct Impl;
  explicit ConversionPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Plans a conversion and writes the output.
Status convert(const ConvertOptions& options, const WriteOptions& output, const Engine& engine,
               const OnProgress& progress = {});

}  // namespace v0
}  // namespace ferry
