#include "converters/adapters/keras/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#include "core/checked.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// -- the tables

enum class KerasDim : uint8_t { kNone, kVocab, kHidden, kMlp, kHeads, kKvHeads, kHeadDim };

// What becomes of the stored tensor.
enum class Op : uint8_t {
  kCopy,
  kTranspose,            // [A, B] -> [B, A]
  kMergeLastTranspose,   // [D, H, hd] -> [H * hd, D]
  kMergeFirstTranspose,  // [H, hd, D] -> [D, H * hd]
  kSwapLastMergeFirst,   // [H, D, hd] -> [H * hd, D]
  kFlatten,              // [H, hd] -> [H * hd]
};

struct Row {
  std::string_view path, key;  // below the layer
  Op op;
  std::array<KerasDim, 3> shape;  // as stored
};

// Llama, Qwen 2, Qwen 3.
constexpr Row kDecoder[] = {
    {"_self_attention_layernorm/vars/0", "input_layernorm.weight", Op::kCopy, {KerasDim::kHidden}},
    {"_self_attention_layer/_query_dense/vars/0",
     "self_attn.q_proj.weight",
     Op::kMergeLastTranspose,
     {KerasDim::kHidden, KerasDim::kHeads, KerasDim::kHeadDim}},
    {"_self_attention_layer/_key_dense/vars/0",
     "self_attn.k_proj.weight",
     Op::kMergeLastTranspose,
     {KerasDim::kHidden, KerasDim::kKvHeads, KerasDim::kHeadDim}},
    {"_self_attention_layer/_value_dense/vars/0",
     "self_attn.v_proj.weight",
     Op::kMergeLastTranspose,
     {KerasDim::kHidden, KerasDim::kKvHeads, KerasDim::kHeadDim}},
    {"_self_attention_layer/_output_dense/vars/0",
     "self_attn.o_proj.weight",
     Op::kMergeFirstTranspose,
     {KerasDim::kHeads, KerasDim::kHeadDim, KerasDim::kHidden}},
    {"_feedforward_layernorm/vars/0",
     "post_attention_layernorm.weight",
     Op::kCopy,
     {KerasDim::kHidden}},
    {"_feedforward_gate_dense/vars/0",
     "mlp.gate_proj.weight",
     Op::kTranspose,
     {KerasDim::kHidden, KerasDim::kMlp}},
    {"_feedforward_intermediate_dense/vars/0",
     "mlp.up_proj.weight",
     Op::kTranspose,
     {KerasDim::kHidden, KerasDim::kMlp}},
    {"_feedforward_output_dense/vars/0",
     "mlp.down_proj.weight",
     Op::kTranspose,
     {KerasDim::kMlp, KerasDim::kHidden}},
};
constexpr Row kQwen2Biases[] = {
    {"_self_attention_layer/_query_dense/vars/1",
     "self_attn.q_proj.bias",
     Op::kFlatten,
     {KerasDim::kHeads, KerasDim::kHeadDim}},
    {"_self_attention_layer/_key_dense/vars/1",
     "self_attn.k_proj.bias",
     Op::kFlatten,
     {KerasDim::kKvHeads, KerasDim::kHeadDim}},
    {"_self_attention_layer/_value_dense/vars/1",
     "self_attn.v_proj.bias",
     Op::kFlatten,
     {KerasDim::kKvHeads, KerasDim::kHeadDim}},
};
constexpr Row kQwen3Norms[] = {
    {"_self_attention_layer/_query_dense_layer_norm/vars/0",
     "self_attn.q_norm.weight",
     Op::kCopy,
     {KerasDim::kHeadDim}},
    {"_self_attention_layer/_key_dense_layer_norm/vars/0",
     "self_attn.k_norm.weight",
     Op::kCopy,
     {KerasDim::kHeadDim}},
};

constexpr Row kGemma[] = {
    {"pre_attention_norm/vars/0", "input_layernorm.weight", Op::kCopy, {KerasDim::kHidden}},
    {"attention/query_dense/vars/0",
     "self_attn.q_proj.weight",
     Op::kSwapLastMergeFirst,
     {KerasDim::kHeads, KerasDim::kHidden, KerasDim::kHeadDim}},
    {"attention/key_dense/vars/0",
     "self_attn.k_proj.weight",
     Op::kSwapLastMergeFirst,
     {KerasDim::kKvHeads, KerasDim::kHidden, KerasDim::kHeadDim}},
    {"attention/value_dense/vars/0",
     "self_attn.v_proj.weight",
     Op::kSwapLastMergeFirst,
     {KerasDim::kKvHeads, KerasDim::kHidden, KerasDim::kHeadDim}},
    {"attention/output_dense/vars/0",
     "self_attn.o_proj.weight",
     Op::kMergeFirstTranspose,
     {KerasDim::kHeads, KerasDim::kHeadDim, KerasDim::kHidden}},
    {"gating_ffw/vars/0",
     "mlp.gate_proj.weight",
     Op::kTranspose,
     {KerasDim::kHidden, KerasDim::kMlp}},
    {"gating_ffw_2/vars/0",
     "mlp.up_proj.weight",
     Op::kTranspose,
     {KerasDim::kHidden, KerasDim::kMlp}},
    {"ffw_linear/vars/0",
     "mlp.down_proj.weight",
     Op::kTranspose,
     {KerasDim::kMlp, KerasDim::kHidden}},
};
// The same path is another norm of Hugging Face in Gemma 1 than in Gemma 2 and 3.
constexpr Row kGemma1Norms[] = {
    {"pre_ffw_norm/vars/0", "post_attention_layernorm.weight", Op::kCopy, {KerasDim::kHidden}},
};
constexpr Row kGemma2Norms[] = {
    {"post_attention_norm/vars/0",
     "post_attention_layernorm.weight",
     Op::kCopy,
     {KerasDim::kHidden}},
    {"pre_ffw_norm/vars/0", "pre_feedforward_layernorm.weight", Op::kCopy, {KerasDim::kHidden}},
    {"post_ffw_norm/vars/0", "post_feedforward_layernorm.weight", Op::kCopy, {KerasDim::kHidden}},
};
constexpr Row kGemma3Norms[] = {
    {"attention/query_norm/vars/0", "self_attn.q_norm.weight", Op::kCopy, {KerasDim::kHeadDim}},
    {"attention/key_norm/vars/0", "self_attn.k_norm.weight", Op::kCopy, {KerasDim::kHeadDim}},
};

struct Family {
  std::string_view model_type;  // of the text part
  std::string_view decoder;     // class of a layer, as in paths
  std::string_view final_norm;
  std::vector<std::span<const Row>> tables;
};

const std::vector<Family>& families() {
  static const std::vector<Family> list = {
      {"llama", "llama_transformer_decoder", "llama_layer_norm", {kDecoder}},
      {"qwen2", "qwen_transformer_decoder", "qwen_layer_norm", {kDecoder, kQwen2Biases}},
      {"qwen3", "qwen3_transformer_decoder", "qwen3_layer_norm", {kDecoder, kQwen3Norms}},
      {"gemma", "gemma_decoder_block", "rms_normalization", {kGemma, kGemma1Norms}},
      {"gemma2", "gemma_decoder_block", "rms_normalization", {kGemma, kGemma2Norms}},
      {"gemma3_text",
       "gemma3_decoder_block",
       "rms_normalization",
       {kGemma, kGemma2Norms, kGemma3Norms}},
  };
  return list;
}

constexpr std::string_view kEmbedding = "layers/reversible_embedding/vars/0";
constexpr std::string_view kReversibleHead = "layers/reversible_embedding/vars/1";

// -- paths

// A path without the "layers/NAME_backbone/" that a whole task puts before it.
std::string_view without_task(std::string_view path) {
  constexpr std::string_view kLayers = "layers/", kBackbone = "_backbone/layers/";
  const size_t at = path.find('/', kLayers.size());
  if (!path.starts_with(kLayers) || at == std::string_view::npos) return path;
  const size_t end = at + 1;  // behind "layers/NAME/"
  const size_t suffix = kBackbone.size() - kLayers.size();
  if (end < suffix || path.substr(end - suffix, kBackbone.size()) != kBackbone) return path;
  return path.substr(end);
}

// "PATH/vars/N"
bool is_variable(std::string_view path) {
  const size_t number = path.find_last_not_of("0123456789") + 1;
  return number < path.size() && path.substr(0, number).ends_with("/vars/");
}

// -- the table of one model

struct Known {
  std::string key;
  Op op;
  Shape shape;  // as stored
};

// All stored paths of a model, by path.
using Paths = std::unordered_map<std::string, Known>;

int64_t size_of(KerasDim dim, const ModelConfig& config) {
  switch (dim) {
    case KerasDim::kNone:
      return 0;
    case KerasDim::kVocab:
      return config.vocab_size;
    case KerasDim::kHidden:
      return config.hidden_size;
    case KerasDim::kMlp:
      return config.intermediate_size;
    case KerasDim::kHeads:
      return config.num_heads;
    case KerasDim::kKvHeads:
      return config.num_kv_heads;
    case KerasDim::kHeadDim:
      return config.head_dim;
  }
  return 0;
}

const Family* find_family_table(const ModelConfig& config) {
  const auto it = std::ranges::find(families(), config.text_type, &Family::model_type);
  return it == families().end() ? nullptr : &*it;
}

Paths known_paths(const Family& family, const ModelConfig& config) {
  Paths paths;
  const auto add = [&](std::string path, std::string key, Op op, std::array<KerasDim, 3> dims) {
    Shape shape;
    for (const KerasDim dim : dims) {
      if (dim != KerasDim::kNone) shape.push_back(size_of(dim, config));
    }
    paths.emplace(std::move(path), Known{std::move(key), op, std::move(shape)});
  };
  add(std::string(kEmbedding), "model.embed_tokens.weight", Op::kCopy,
      {KerasDim::kVocab, KerasDim::kHidden});
  add(std::string(kReversibleHead), "lm_head.weight", Op::kTranspose,
      {KerasDim::kHidden, KerasDim::kVocab});
  add(fmt::format("layers/{}/vars/0", family.final_norm), "model.norm.weight", Op::kCopy,
      {KerasDim::kHidden});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string number = layer == 0 ? "" : fmt::format("_{}", layer);
    for (const std::span<const Row> table : family.tables) {
      for (const Row& row : table) {
        add(fmt::format("layers/{}{}/{}", family.decoder, number, row.path),
            fmt::format("model.layers.{}.{}", layer, row.key), row.op, row.shape);
      }
    }
  }
  return paths;
}

// -- operations

// The tensor of the entry, whose shape is `known.shape`.
Result<KeyedTensor> arrange(const Known& known, const TensorSource& source, size_t entry) {
  const Shape& s = known.shape;
  StridedPiece piece{.tensor = entry};
  Shape shape;
  const auto walk = [&](Shape to, std::initializer_list<StridedAxis> axes) {
    shape = std::move(to);
    for (const StridedAxis& axis : axes) add_axis(piece, axis);
  };
  switch (known.op) {
    case Op::kCopy:
    case Op::kFlatten: {
      const int64_t elements = checked_numel(s).value_or(0);
      walk(known.op == Op::kCopy ? s : Shape{elements}, {{elements, 1}});
      break;
    }
    case Op::kTranspose:
      walk({s[1], s[0]}, {{s[1], 1}, {s[0], s[1]}});
      break;
    case Op::kMergeLastTranspose: {
      const int64_t rows = s[1] * s[2];
      walk({rows, s[0]}, {{rows, 1}, {s[0], rows}});
      break;
    }
    case Op::kMergeFirstTranspose: {
      const int64_t columns = s[0] * s[1];
      walk({s[2], columns}, {{s[2], 1}, {columns, s[2]}});
      break;
    }
    case Op::kSwapLastMergeFirst:
      walk({s[0] * s[2], s[1]}, {{s[0], s[1] * s[2]}, {s[2], 1}, {s[1], s[2]}});
      break;
  }
  return KeyedTensor{known.key, FERRY_TRY(graph::make_recipe(source, {std::move(piece)},
                                                             std::move(shape), known.key))};
}

bool is_integer(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8 || dtype == DType::kI16 ||
         dtype == DType::kI32 || dtype == DType::kI64;
}

tl::unexpected<Error> unsupported(const TensorSource& source, std::string_view what) {
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", printable(source.path()), what));
}

Status refuse_lora(const TensorSource& source) {
  for (const TensorEntry& entry : source.entries()) {
    if (!entry.name.starts_with("lora/")) continue;
    return unsupported(source,
                       fmt::format("a LoRA file of Keras, which holds no model by itself; save "
                                   "the merged weights (variable {})",
                                   quoted(entry.name)));
  }
  return {};
}

// One line where one variable is wrong, a list where several are.
tl::unexpected<Error> shape_error(const TensorSource& source, std::vector<std::string> lines) {
  if (lines.size() == 1) return bad_input(printable(source.path()) + ": " + lines.front());
  Error error{ErrorCode::kBadInput,
              fmt::format("{}: {} variables have other shapes than the config says",
                          printable(source.path()), lines.size())};
  error.details = std::move(lines);
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace

bool has_keras_paths(const TensorSource& source) {
  return std::ranges::any_of(source.entries(), [](const TensorEntry& entry) {
    return is_variable(entry.name) || entry.name.starts_with("lora/");
  });
}

bool has_keras_head(const TensorSource& source) {
  return std::ranges::any_of(source.entries(), [](const TensorEntry& entry) {
    return without_task(entry.name) == kReversibleHead;
  });
}

Result<KeyedTensors> key_keras_tensors(const TensorSource& source, const ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(refuse_lora(source));
  const Family* family = find_family_table(config);
  if (family == nullptr) {
    std::vector<std::string_view> known;
    for (const Family& each : families()) known.push_back(each.model_type);
    return unsupported(source, fmt::format("Keras weights of model_type {} are not supported; "
                                           "supported are {}",
                                           quoted(config.text_type), fmt::join(known, ", ")));
  }
  const Paths paths = known_paths(*family, config);
  std::unordered_map<std::string_view, std::string_view> made_by;  // key -> stored path
  KeyedTensors keyed;
  std::vector<std::string> wrong;
  for (size_t i = 0; i < source.entries().size(); ++i) {
    const TensorEntry& entry = source.entries()[i];
    const auto known = paths.find(std::string(without_task(entry.name)));
    if (known == paths.end()) {
      keyed.tensors.push_back({entry.name, graph::whole_tensor(source, i)});
      continue;
    }
    if (is_integer(entry.dtype)) {
      return unsupported(source, fmt::format("{} is {}: quantised presets are not supported",
                                             quoted(entry.name), dtype_name(entry.dtype)));
    }
    if (entry.shape != known->second.shape) {
      wrong.push_back(fmt::format("shape: {} is {}, the config wants {}", quoted(entry.name),
                                  to_string(entry.shape), to_string(known->second.shape)));
      continue;
    }
    if (const auto [other, fresh] = made_by.emplace(known->second.key, entry.name); !fresh) {
      return bad_input(fmt::format("{}: {} and {} are both {}", printable(source.path()),
                                   quoted(other->second), quoted(entry.name), known->second.key));
    }
    keyed.tensors.push_back(FERRY_TRY(arrange(known->second, source, i)));
  }
  if (!wrong.empty()) return shape_error(source, std::move(wrong));
  for (const auto& [path, known] : paths) keyed.names.emplace(known.key, path);
  return keyed;
}

}  // namespace ferry::converters
