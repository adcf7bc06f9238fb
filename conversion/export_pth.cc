// --to pth: writes a PyTorch state dict with the names of Meta's checkpoints, which ExecuTorch's
// export_llama reads, and a params.json if its model can express the config.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "conversion/export.h"
#include "conversion/safetensors_files.h"
#include "converters/family.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "formats/torch/writer.h"

namespace ferry::conversion {
namespace {

using converters::ModelConfig;
using converters::RopeConfig;

constexpr const char* kWeightsName = "consolidated.00.pth";
constexpr const char* kParamsName = "params.json";

bool is_full_attention(const ModelConfig& config) {
  return std::ranges::all_of(config.layer_types, [](converters::LayerType type) {
    return type == converters::LayerType::kFullAttention;
  });
}

// Returns which layers have no RoPE: 0 for none, N for every Nth layer, nullopt for any other
// choice.
std::optional<int64_t> no_rope_interval(const ModelConfig& config) {
  const auto first = std::ranges::find(config.rope_layers, false);
  if (first == config.rope_layers.end()) return 0;
  const auto interval = first - config.rope_layers.begin() + 1;
  for (size_t i = 0; i < config.rope_layers.size(); ++i) {
    const bool without = (static_cast<std::ptrdiff_t>(i) + 1) % interval == 0;
    if (config.rope_layers[i] == without) return std::nullopt;
  }
  return interval;
}

// Returns the part of the config that params.json cannot state; empty if there is none.
std::string obstacle(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (!config.family->meta) {
    return fmt::format("model_type {}", quoted(config.text_type));
  }
  if (!is_full_attention(config)) return "sliding windows";
  if (config.mlp_bias || (config.attention_bias && !config.family->meta->qkv_bias)) {
    return "biases beside those of q, k and v";
  }
  if (config.scalars != converters::ScalarConfig{}) return "multipliers and softcaps";
  if (config.activation != converters::Activation::kSilu) return "the activation";
  if (!no_rope_interval(config)) return "layers without RoPE at irregular places";
  if (rope.type == RopeConfig::Type::kDefault) return {};
  const bool plain_llama3 =
      rope.low_freq_factor == 1.0 && rope.original_max_positions == 8192 &&
      rope.factor == static_cast<double>(static_cast<int>(rope.factor)) &&
      rope.high_freq_factor == static_cast<double>(static_cast<int>(rope.high_freq_factor));
  if (rope.type == RopeConfig::Type::kLlama3 && plain_llama3) return {};
  return "the scaling of RoPE";
}

// Whether export_llama's RoPE rotates neighbouring dimensions, as its scaled RoPE does. Its other
// RoPE types rotate the two halves of a head.
bool turns_pairs(const ModelConfig& config) {
  return config.rope.type == RopeConfig::Type::kLlama3;
}

std::string params_text(const ModelConfig& config) {
  const bool scaled = turns_pairs(config);
  JsonWriter json;
  json.begin_object().member("dim", config.hidden_size).member("n_layers", config.num_layers);
  json.member("n_heads", config.num_heads).member("n_kv_heads", config.num_kv_heads);
  json.member("head_dim", config.head_dim).member("hidden_dim", config.intermediate_size);
  json.member("vocab_size", config.vocab_size).member("norm_eps", config.rms_norm_eps);
  json.member("rope_theta", config.rope.theta).member("use_scaled_rope", scaled);
  if (scaled) {
    json.member("rope_scale_factor", static_cast<int64_t>(config.rope.factor));
    json.member("high_freq_factor", static_cast<int64_t>(config.rope.high_freq_factor));
  }
  json.member("use_hf_rope", !scaled);
  if (config.rotary_dim() != config.head_dim) {
    json.member("partial_rotary_factor",
                static_cast<double>(config.rotary_dim()) / static_cast<double>(config.head_dim));
  }
  if (const int64_t interval = no_rope_interval(config).value_or(0); interval > 0) {
    json.member("no_rope_layer_interval", interval);
  }
  if (config.attention_bias) json.member("attention_qkv_bias", true);
  if (config.family->meta->qk_norm) {
    json.member("use_qk_norm", true).member("qk_norm_before_rope", true);
  }
  json.end_object();
  return json.take() + "\n";
}

// Returns the name of a weight in the model of export_llama.
std::string name_in_file(const std::string& weight) {
  for (const std::string_view norm : {".q_norm.", ".k_norm."}) {
    const size_t at = weight.find(norm);
    if (at == std::string::npos) continue;
    return weight.substr(0, at + norm.size() - 1) + "_fn" + weight.substr(at + norm.size() - 1);
  }
  return weight;
}

// Reorders the rows of q or k so that rows which RoPE rotates together are neighbours.
void order_pairs(int64_t heads, int64_t head_dim, graph::Recipe& recipe) {
  std::vector<StridedPiece> rows;
  for (int64_t head = 0; head < heads; ++head) {
    rows.push_back({.offset = head * head_dim, .axes = {{head_dim / 2, 1}, {2, head_dim / 2}}});
  }
  const Shape& shape = recipe.output().shape;
  const int64_t width = shape.size() < 2 ? 1 : shape.back();
  recipe.pieces = select(recipe.pieces, rows_to_elements(folded(rows), width));
}

void reorder(const ModelConfig& config, const std::string& weight, graph::Recipe& recipe) {
  if (weight.find(".attention.wq.") != std::string::npos) {
    order_pairs(config.num_heads, config.head_dim, recipe);
  } else if (weight.find(".attention.wk.") != std::string::npos) {
    order_pairs(config.num_kv_heads, config.head_dim, recipe);
  }
}

// The storages of the file in the order of the weights. Tied weights share a storage.
struct Storages {
  std::vector<formats::TorchTensorSpec> tensors;
  std::vector<packer::FileTensor> recipes;
  std::map<std::string, std::vector<std::string>> targets;

  void add(const std::string& weight, graph::Recipe recipe) {
    const std::string name = name_in_file(weight);
    if (name != weight) targets[weight] = {name};
    const graph::RecipeOutput output = recipe.output();
    size_t storage = 0;
    while (storage < recipes.size() && recipes[storage].recipe != recipe) ++storage;
    if (storage == recipes.size()) recipes.push_back({name, std::move(recipe), 0});
    tensors.push_back({name, output.dtype, output.shape, storage});
  }
};

// Returns `value` as four little-endian bytes.
std::vector<std::byte> u32_bytes(uint32_t value) {
  std::vector<std::byte> bytes(4);
  for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  return bytes;
}

Result<packer::WeightFile> pth_file(Storages& made, std::string path) {
  formats::TorchLayout layout = FERRY_TRY(formats::plan_torch(made.tensors, made.recipes.size()));
  packer::WeightFile file{.path = std::move(path), .bytes = layout.file_bytes};
  for (auto& [offset, bytes] : layout.known) file.known.push_back({offset, std::move(bytes)});
  for (size_t i = 0; i < made.recipes.size(); ++i) {
    made.recipes[i].offset = layout.storages[i].offset;
    file.tensors.push_back(std::move(made.recipes[i]));
  }
  file.finishing = [storages = std::move(layout.storages)](std::span<const uint32_t> crcs) {
    std::vector<packer::FileBytes> bytes;
    for (size_t i = 0; i < storages.size(); ++i) {
      for (const uint64_t place : storages[i].crc_places)
        bytes.push_back({place, u32_bytes(crcs[i])});
    }
    return bytes;
  };
  return file;
}

Status check_pth_options(const plan::MappedModel& model, const ExportOptions& options) {
  if (options.convert.max_file_bytes > 0) {
    return fail_field(ErrorCode::kUsage, "max_file_size", ": a PyTorch state dict is one file");
  }
  const ModelConfig& config = model.checkpoint.config;
  if (!config.takes_rows() && !config.has_cross_attention()) return {};
  return fail_field(ErrorCode::kUnsupported, "to",
                    fmt::format(" pth: {}: {} is a {} model, export_llama takes text decoders",
                                printable(options.convert.source), quoted(config.model_type),
                                config.audio    ? "speech"
                                : config.source ? "encoder-decoder"
                                                : "vision-language"));
}

}  // namespace

Result<PlannedFiles> plan_pth_files(plan::MappedModel& model, const ExportOptions& options) {
  FERRY_RETURN_IF_ERROR(check_pth_options(model, options));
  const ModelConfig& config = model.checkpoint.config;
  const std::string why_not = obstacle(config);
  const bool pairs = why_not.empty() && turns_pairs(config);
  const std::optional<DType> dtype = dtype_of(options.convert.dtype);
  Storages made;
  for (const converters::AssembledComponent& component : model.components) {
    for (graph::Weight weight : component.model.weights.weights()) {
      weight.recipe.cast(dtype.value_or(weight.recipe.source_dtype));
      if (pairs) reorder(config, weight.name, weight.recipe);
      made.add(weight.name, std::move(weight.recipe));
    }
  }
  PlannedFiles planned;
  planned.targets = std::move(made.targets);
  const bool single = options.out.ends_with(".pth") || options.out.ends_with(".pt");
  planned.files.is_directory = !single;
  planned.files.files.push_back(
      FERRY_TRY(pth_file(made, single ? base_name(options.out) : kWeightsName)));
  if (!why_not.empty()) {
    planned.notes.push_back(fmt::format(
        "export_llama has no model for this config ({}): no params.json is written", why_not));
  }
  if (single) return planned;
  planned.files.plain = plain_files(model.copied);
  if (why_not.empty()) {
    planned.files.plain.push_back({.path = kParamsName, .text = params_text(config)});
  }
  return planned;
}

}  // namespace ferry::conversion
