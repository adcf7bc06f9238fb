#include "dialects/gguf/model/written_types.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "converters/quantized/weights.h"

namespace ferry::converters {
namespace {

constexpr std::array<GgufFileTypeInfo, 6> kFileTypes = {{
    {GgufFileType::kF32, "f32", 0, false},
    {GgufFileType::kF16, "f16", 1, false},
    {GgufFileType::kBF16, "bf16", 32, false},
    {GgufFileType::kQ8_0, "q8_0", 7, false},
    {GgufFileType::kQ4_0, "q4_0", 2, true},
    {GgufFileType::kQ4_K_M, "q4_k_m", 15, true},
}};

struct ElementInfo {
  GgufElement type;
  uint32_t id;
  std::string_view encoder;  // empty: a dtype
  DType dtype;
  int64_t block;
  GgufElement fallback;  // for rows that are not whole blocks of this type
};
constexpr std::array<ElementInfo, 11> kElements = {{
    {GgufElement::kF32, 0, "", DType::kF32, 1, GgufElement::kF32},
    {GgufElement::kF16, 1, "", DType::kF16, 1, GgufElement::kF16},
    {GgufElement::kBF16, 30, "", DType::kBF16, 1, GgufElement::kBF16},
    {GgufElement::kQ4_0, 2, "q4_0", DType::kU8, 32, GgufElement::kF16},
    {GgufElement::kQ5_0, 6, "q5_0", DType::kU8, 32, GgufElement::kF16},
    {GgufElement::kQ5_1, 7, "q5_1", DType::kU8, 32, GgufElement::kF16},
    {GgufElement::kQ8_0, 8, "q8_0", DType::kU8, 32, GgufElement::kF16},
    {GgufElement::kQ4_K, 12, "q4_k", DType::kU8, 256, GgufElement::kQ5_0},
    {GgufElement::kQ5_K, 13, "q5_k", DType::kU8, 256, GgufElement::kQ5_1},
    {GgufElement::kQ6_K, 14, "q6_k", DType::kU8, 256, GgufElement::kQ8_0},
    {GgufElement::kMXFP4, 39, "", DType::kU8, 32, GgufElement::kF16},
}};

const ElementInfo& info_of(GgufElement type) {
  return *std::ranges::find(kElements, type, &ElementInfo::type);
}

GgufElement fitting(GgufElement type, const Shape& shape) {
  while (shape.back() % info_of(type).block != 0) type = info_of(type).fallback;
  return type;
}

bool has(std::string_view name, std::string_view part) { return name.find(part) != name.npos; }

// Whether neither the converter nor llama-quantize rounds the tensor.
bool stays_f32(const GgufNamedShape& tensor) {
  const std::string_view name = tensor.name;
  if (tensor.shape.size() < 2 || !name.ends_with(".weight")) return true;
  if (name.ends_with("_norm.weight") || name == "position_embd.weight") return true;
  for (const std::string_view part : {".ffn_gate_inp.weight", ".ffn_gate_inp_shexp.weight",
                                      ".ssm_conv1d.weight", ".shortconv.conv.weight"}) {
    if (name.ends_with(part)) return true;
  }
  return false;
}

// Returns 12 for "blk.12.attn_q.weight"; -1 for other names.
int64_t layer_of(std::string_view name) {
  int64_t layer = -1;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

// The mixture of types that llama-quantize chooses without an importance matrix.
class Mixture {
 public:
  Mixture(std::span<const GgufNamedShape> tensors, GgufFileType type, const GgufModelSizes& sizes)
      : base_(type == GgufFileType::kQ4_0 ? GgufElement::kQ4_0 : GgufElement::kQ4_K),
        sizes_(sizes) {
    for (const GgufNamedShape& tensor : tensors) {
      tied_ = tied_ && tensor.name != "output.weight";
      if (is_value(tensor.name)) ++values_;
    }
  }

  // Must be called in the order of gguf_name_order().
  GgufElement choose(const GgufNamedShape& tensor) {
    const std::string_view name = tensor.name;
    const bool k_quants = base_ == GgufElement::kQ4_K;
    if (name == "output.weight" || (name == "token_embd.weight" && tied_)) {
      const bool fits = tensor.shape.back() % info_of(base_).block == 0;
      return fits ? GgufElement::kQ6_K : GgufElement::kQ8_0;
    }
    if (is_value(name)) {
      GgufElement type = base_;
      if (k_quants && more_bits(seen_values_, values_)) type = GgufElement::kQ6_K;
      if (sizes_.is_70b && type == GgufElement::kQ4_K) type = GgufElement::kQ5_K;
      ++seen_values_;
      return sizes_.experts == 8 ? GgufElement::kQ8_0 : type;
    }
    if (has(name, "attn_k.weight") && sizes_.experts == 8) return GgufElement::kQ8_0;
    if (has(name, "ffn_down")) {
      const int64_t layer = sizes_.experts > 1 ? layer_of(name) : seen_downs_;
      ++seen_downs_;
      return k_quants && more_bits(layer, sizes_.layers) ? GgufElement::kQ6_K : base_;
    }
    if (has(name, "attn_output.weight") && sizes_.experts == 8 && k_quants) {
      return GgufElement::kQ5_K;
    }
    return base_;
  }

 private:
  static bool is_value(std::string_view name) {
    return has(name, "attn_qkv.weight") || has(name, "attn_v.weight");
  }
  // Whether a layer is in the first or the last eighth, or every third one between them.
  static bool more_bits(int64_t layer, int64_t layers) {
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
  }

  GgufElement base_;
  GgufModelSizes sizes_;
  bool tied_ = true;
  int64_t values_ = 0, seen_values_ = 0, seen_downs_ = 0;
};

// Dimensions of 1, trailing ones in the file and leading ones here, do not count.
bool is_matrix(const Shape& shape) {
  const auto count = std::ranges::count_if(std::span(shape).first(shape.size() - 1),
                                           [](int64_t size) { return size != 1; });
  return count > 0;
}

}  // namespace

const GgufFileTypeInfo& gguf_file_type_info(GgufFileType type) {
  return *std::ranges::find(kFileTypes, type, &GgufFileTypeInfo::type);
}

std::optional<GgufFileType> gguf_file_type_of(std::string_view name) {
  const auto* found = std::ranges::find(kFileTypes, name, &GgufFileTypeInfo::name);
  if (found == kFileTypes.end()) return std::nullopt;
  return found->type;
}

uint32_t gguf_type_id(GgufElement type) { return info_of(type).id; }

std::optional<GgufElement> gguf_element_of(uint32_t id) {
  const auto* found = std::ranges::find(kElements, id, &ElementInfo::id);
  if (found == kElements.end() || found->type == GgufElement::kMXFP4) return std::nullopt;
  return found->type;
}

uint32_t gguf_file_type_number(GgufFileType type, bool has_mxfp4) {
  const bool plain =
      type == GgufFileType::kF32 || type == GgufFileType::kF16 || type == GgufFileType::kBF16;
  return has_mxfp4 && plain ? kGgufMxfp4FileType : gguf_file_type_info(type).number;
}

bool is_stored_mxfp4(const graph::Recipe& recipe, const TensorSource& source) {
  if (recipe.pieces.empty()) return false;
  const BlockEncoding* encoding = source.entries()[recipe.pieces[0].tensor].encoding;
  graph::Recipe blocks = recipe;
  return encoding != nullptr && encoding->name == kMxfp4Name && blocks.take_blocks(source, {});
}

GgufModelSizes gguf_model_sizes(const GgufArchitecture& architecture, const ModelConfig& config) {
  const bool llama = architecture.name == "llama" && config.num_heads != config.num_kv_heads;
  return {.layers = config.num_layers,
          .experts = config.moe.experts,
          .is_70b = config.num_layers == 80 && (llama || architecture.name == "qwen2")};
}

std::vector<GgufElement> choose_gguf_types(std::span<const GgufNamedShape> tensors,
                                           GgufFileType type, const GgufModelSizes& sizes) {
  constexpr std::pair<GgufFileType, GgufElement> kPlainTypes[] = {
      {GgufFileType::kF32, GgufElement::kF32},
      {GgufFileType::kF16, GgufElement::kF16},
      {GgufFileType::kBF16, GgufElement::kBF16},
      {GgufFileType::kQ8_0, GgufElement::kQ8_0}};
  const auto* plain =
      std::ranges::find(kPlainTypes, type, &std::pair<GgufFileType, GgufElement>::first);
  std::vector<GgufElement> types(tensors.size(), GgufElement::kF32);
  Mixture mixture(tensors, type, sizes);
  for (const size_t i : gguf_name_order(tensors)) {
    const GgufNamedShape& tensor = tensors[i];
    if (tensor.is_mxfp4) {
      types[i] = GgufElement::kMXFP4;
      continue;
    }
    if (stays_f32(tensor)) continue;
    const bool mixed = plain == std::end(kPlainTypes);
    if (mixed && !is_matrix(tensor.shape)) continue;
    types[i] = fitting(mixed ? mixture.choose(tensor) : plain->second, tensor.shape);
  }
  return types;
}

std::vector<size_t> gguf_name_order(std::span<const GgufNamedShape> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, {}, [&](size_t i) { return std::pair(layer_of(tensors[i].name), tensors[i].name); });
  return order;
}

Status apply_gguf_type(graph::Recipe& recipe, GgufElement type, const TensorSource& source,
                       const std::string& name) {
  const ElementInfo& info = info_of(type);
  if (type == GgufElement::kMXFP4) return recipe.take_blocks(source, name);
  if (!info.encoder.empty()) {
    return recipe.encode(*graph::find_block_encoder(info.encoder), name);
  }
  recipe.cast(info.dtype);
  return {};
}

}  // namespace ferry::converters
