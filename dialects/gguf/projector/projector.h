// Projectors: GGUF files with the vision encoder of a model whose text decoder is in another GGUF
// file (mmproj-*.gguf, general.architecture "clip"). Each kind is described once, for reading and
// for writing. Source: llama.cpp, tools/mtmd/clip.cpp and conversion/*.py.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"
#include "core/gguf_key_value.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::converters {

// How a tensor of the file and the weight of the model differ. The elements are the same, but for
// parts of a weight.
enum class ProjectorForm : uint8_t {
  kStored,
  kRow,          // [1, ..., N] in the model; the file may lack the dimensions of 1
  kPatches,      // [width, channels, side, side] in the file; a matrix in the model
  kPatchesLast,  // the same; in the matrix the channels of a pixel lie side by side
  kFrame0,       // [width, channels, side, side]: what the matrix has for the first frame
  kFrame1,       // and for the second
  kTransposed,   // (out, in) in the model, (in, out) in the file
  kTurned,       // the file has the rows of each head in rotation pairs
  kScalar,       // [] in the model, [1] in the file
  kQkv,          // rows of wq, wk and wv in one tensor; "{p}" in the name of the weight
  kPlaces,       // the tables of columns and rows in one tensor; likewise
};

struct ProjectorName {
  std::string_view gguf;    // "v.blk.{i}.attn_q.weight"; "{i}" counts the layers of the tower
  std::string_view weight;  // runtime name, "vision.layers.{i}.attention.wq.weight"
  ProjectorForm form = ProjectorForm::kStored;
};
using ProjectorNames = std::span<const ProjectorName>;

// A file that is read, and what its kind makes of the metadata.
struct ProjectorReading {
  JsonFields fields;                     // the metadata of the file
  const TensorSource* source = nullptr;  // the tensors of the file
  const nlohmann::json* text = nullptr;  // the metadata of the text decoder
  int64_t hidden_size = 0;               // of the text decoder
  bool has_processor = false;            // `pixels` and `processor` will not be used
  // Kinds with layers behind the features set these: how many layers the file has, and whether a
  // key states those that are features.
  int64_t layers = 0;
  bool states_features = false;
  // Parts of config.json, of which `text_part` is what the metadata of the text decoder do not say;
  // the fields of the image processor and of the processor around it; special tokens that
  // tokenizer_config.json names.
  nlohmann::json vision = nlohmann::json::object(), outer = nlohmann::json::object();
  nlohmann::json text_part = nlohmann::json::object();
  nlohmann::json pixels = nlohmann::json::object(), processor = nlohmann::json::object();
  nlohmann::json special = nlohmann::json::object();

  bool has(std::string_view tensor) const;
  // Reads clip.vision.KEY.
  Result<int64_t> size(std::string_view key) const;
  Result<int64_t> size_or(std::string_view key, int64_t otherwise) const;
  Result<double> epsilon() const;
  // Returns a dimension of a tensor. kBadInput where the file has no such tensor.
  Result<int64_t> dimension(std::string_view tensor, size_t axis) const;
  // Returns the id of a token of the text decoder.
  Result<int64_t> token(std::string_view text) const;
  // Returns the id of a token if the text decoder has it.
  std::optional<int64_t> find_token(std::string_view text) const;
  // Returns a key of the text decoder, ARCHITECTURE.KEY, or null.
  const nlohmann::json* of_text(std::string_view key) const;
  // Returns "gelu", "silu", or "" where no key names the activation of MLPs.
  Result<std::string> activation() const;
  // Sets hidden_act, where the file has this activation. kUnsupported for another.
  Status want_activation(std::string_view stated, const char* means);
};

// The facts that the keys of a written file are made of.
struct ProjectorWriting {
  const ModelConfig* config = nullptr;
  std::string config_name = {};   // begins messages
  nlohmann::json outer = {};      // config.json
  nlohmann::json tower = {};      // vision_config of it
  nlohmann::json processor = {};  // fields of preprocessor_config.json and processor_config.json
  std::vector<GgufKeyValue> keys = {};

  const VisionConfig& vision() const { return *config->vision; }
  void set(std::string_view key, GgufValue value);  // clip.KEY; an existing key keeps its place
  void set_number(std::string_view key, int64_t value);
  void set_epsilon(double value);
  // Returns kUnsupported with the field of the config, which readers take to be otherwise.
  Failure cannot_say(std::string_view field, std::string_view why) const;
  Status want_activation(Activation activation) const;
};

struct ProjectorKind {
  std::string_view type;  // clip.projector_type
  // Files of this kind have this tensor, and those of other kinds of the type have not.
  std::string_view sign = {};
  // Whether a file is of this kind; null: every one.
  bool (*fits)(const ProjectorReading&) = nullptr;
  // The one counts that has the text decoder.
  std::vector<std::string_view> model_types;
  std::vector<ProjectorNames> tables;
  Status (*read)(ProjectorReading&) = nullptr;
  Status (*write)(ProjectorWriting&) = nullptr;
  // Whether a model of one of the types is of this kind; null: every one.
  bool (*writes)(const ModelConfig&) = nullptr;
  // Returns clip.vision.image_size of a file; null: that of the config.
  int64_t (*image_size)(const ProjectorWriting&) = nullptr;
  // Returns clip.vision.feed_forward_length; null: intermediate_size of the config.
  int64_t (*feed_forward)(const ProjectorWriting&) = nullptr;
  // Tensors of more than one dimension that are f32, and f16, whatever the type of the file.
  std::vector<std::string_view> f32 = {}, f16 = {};
  // The token whose embedding readers need in the file too, and the tensor with it.
  std::string_view copied_token = {}, copied_row = {};
  bool layers_behind = false;  // files may have layers behind those that features need
};

std::span<const ProjectorKind* const> projector_kinds();
// Returns the kind of a model with a vision tower; nullptr where none is written.
const ProjectorKind* projector_kind_of(const ModelConfig& config);

inline constexpr std::string_view kProjectorLayer = "{i}", kProjectorPart = "{p}";

// -- parts of kinds

// Tables of several kinds. The MLP is one without a gate, or one with a gate; each table has
// biases, which a model may lack.
extern const ProjectorNames kLayerNorms, kSplitAttention, kPlainMlp, kGatedMlp, kPatchNames,
    kFrameNames, kPositionNames, kFinalNorm;

// Reads the keys that all files have into `vision` and `pixels`: sizes, mean and deviation. Checks
// that `projection_dim` is the width of the text decoder.
Status read_projector_sizes(ProjectorReading& file);
// Reads all of them but `projection_dim`.
Status read_tower_sizes(ProjectorReading& file);
// kBadInput, where the text decoder has another width. `stated` names what says `width`.
Status check_projector_width(const ProjectorReading& file, std::string_view stated, int64_t width);

extern const ProjectorKind kIdefics3Projector, kGemma3Projector, kInternVlProjector, kLfm2Projector,
    kQwen2VlProjector, kQwen25VlProjector, kQwen3VlProjector, kMistral3Projector, kPixtralProjector,
    kGemma4Projector, kSwappedLlavaProjector, kLlavaProjector;

}  // namespace ferry::converters
