#include "dialects/gguf/model/written_types.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <utility>

#include "converters/quantized/weights.h"

namespace ferry::converters {
namespace {

constexpr std::array<GgufFileTypeInfo, 20> kFileTypes = {{
    {GgufFileType::kF32, "f32", 0, false},       {GgufFileType::kF16, "f16", 1, false},
    {GgufFileType::kBF16, "bf16", 32, false},    {GgufFileType::kQ8_0, "q8_0", 7, false},
    {GgufFileType::kQ2_K, "q2_k", 10, true},     {GgufFileType::kQ2_K_S, "q2_k_s", 21, true},
    {GgufFileType::kQ3_K_S, "q3_k_s", 11, true}, {GgufFileType::kQ3_K_M, "q3_k_m", 12, true},
    {GgufFileType::kQ3_K_L, "q3_k_l", 13, true}, {GgufFileType::kQ4_0, "q4_0", 2, true},
    {GgufFileType::kQ4_1, "q4_1", 3, true},      {GgufFileType::kQ4_K_S, "q4_k_s", 14, true},
    {GgufFileType::kQ4_K_M, "q4_k_m", 15, true}, {GgufFileType::kQ5_0, "q5_0", 8, true},
    {GgufFileType::kQ5_1, "q5_1", 9, true},      {GgufFileType::kQ5_K_S, "q5_k_s", 16, true},
    {GgufFileType::kQ5_K_M, "q5_k_m", 17, true}, {GgufFileType::kQ6_K, "q6_k", 18, true},
    {GgufFileType::kIQ4_NL, "iq4_nl", 25, true}, {GgufFileType::kIQ4_XS, "iq4_xs", 30, true},
}};

struct ElementInfo {
  GgufElement type;
  uint32_t id;
  std::string_view encoder;  // empty: a dtype
  DType dtype;
  int64_t block;
  GgufElement fallback;  // for rows that are not whole blocks of this type
};
constexpr std::array<ElementInfo, 16> kElements = {{
    {GgufElement::kF32, 0, "", DType::kF32, 1, GgufElement::kF32},
    {GgufElement::kF16, 1, "", DType::kF16, 1, GgufElement::kF16},
    {GgufElement::kBF16, 30, "", DType::kBF16, 1, GgufElement::kBF16},
    {GgufElement::kQ4_0, 2, "q4_0", DType::kU8, 32, GgufElement::kF16},
    {GgufElement::kQ4_1, 3, "q4_1", DType::kU8, 32, GgufElement::kF16},
    {GgufElement::kQ5_0, 6, "q5_0", DType::kU8, 32, GgufElement::kF16},
    {GgufElement::kQ5_1, 7, "q5_1", DType::kU8, 32, GgufElement::kF16},
    {GgufElement::kQ8_0, 8, "q8_0", DType::kU8, 32, GgufElement::kF16},
    {GgufElement::kQ2_K, 10, "q2_k", DType::kU8, 256, GgufElement::kQ4_0},
    {GgufElement::kQ3_K, 11, "q3_k", DType::kU8, 256, GgufElement::kQ4_0},
    {GgufElement::kQ4_K, 12, "q4_k", DType::kU8, 256, GgufElement::kQ5_0},
    {GgufElement::kQ5_K, 13, "q5_k", DType::kU8, 256, GgufElement::kQ5_1},
    {GgufElement::kQ6_K, 14, "q6_k", DType::kU8, 256, GgufElement::kQ8_0},
    {GgufElement::kIQ4_NL, 20, "iq4_nl", DType::kU8, 32, GgufElement::kF16},
    {GgufElement::kIQ4_XS, 23, "iq4_xs", DType::kU8, 256, GgufElement::kIQ4_NL},
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
  if (name.ends_with("_norm.weight") || name == "position_embd.weight" ||
      name == "token_types.weight") {
    return true;
  }
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

// The type of the tensors of a mixture for which no rule says otherwise.
GgufElement base_of(GgufFileType type) {
  switch (type) {
    case GgufFileType::kQ2_K:
    case GgufFileType::kQ2_K_S:
      return GgufElement::kQ2_K;
    case GgufFileType::kQ3_K_S:
    case GgufFileType::kQ3_K_M:
    case GgufFileType::kQ3_K_L:
      return GgufElement::kQ3_K;
    case GgufFileType::kQ4_0:
      return GgufElement::kQ4_0;
    case GgufFileType::kQ4_1:
      return GgufElement::kQ4_1;
    case GgufFileType::kQ4_K_S:
    case GgufFileType::kQ4_K_M:
      return GgufElement::kQ4_K;
    case GgufFileType::kQ5_0:
      return GgufElement::kQ5_0;
    case GgufFileType::kQ5_1:
      return GgufElement::kQ5_1;
    case GgufFileType::kQ5_K_S:
    case GgufFileType::kQ5_K_M:
      return GgufElement::kQ5_K;
    case GgufFileType::kQ6_K:
      return GgufElement::kQ6_K;
    case GgufFileType::kIQ4_NL:
      return GgufElement::kIQ4_NL;
    case GgufFileType::kIQ4_XS:
      return GgufElement::kIQ4_XS;
    case GgufFileType::kQ8_0:
      return GgufElement::kQ8_0;
    case GgufFileType::kBF16:
      return GgufElement::kBF16;
    case GgufFileType::kF16:
      return GgufElement::kF16;
    case GgufFileType::kF32:
      break;
  }
  return GgufElement::kF32;
}

// The mixture of types that llama-quantize chooses.
class Mixture {
 public:
  Mixture(std::span<const GgufNamedShape> tensors, GgufFileType type, const GgufModelSizes& sizes,
          bool has_importance)
      : type_(type), base_(base_of(type)), sizes_(sizes), has_importance_(has_importance) {
    for (const GgufNamedShape& tensor : tensors) {
      tied_ = tied_ && tensor.name != "output.weight";
      if (is_value(tensor.name)) ++values_;
    }
  }

  // Must be called in the order of gguf_name_order().
  GgufElement choose(const GgufNamedShape& tensor) {
    const std::string_view name = tensor.name;
    if (name == "output.weight" || (is_embedding(name) && tied_)) {
      const bool fits = tensor.shape.back() % info_of(base_).block == 0;
      return fits ? GgufElement::kQ6_K : GgufElement::kQ8_0;
    }
    if (is_embedding(name)) return base_;
    if (is_value(name)) return value_type(seen_values_++);
    if (has(name, "attn_k.weight") && sizes_.experts == 8) return GgufElement::kQ8_0;
    if (has(name, "attn_output.weight")) return output_type();
    if (has(name, "ffn_down")) {
      const int64_t layer = sizes_.experts > 1 ? layer_of(name) : seen_downs_;
      ++seen_downs_;
      return down_type(layer);
    }
    return base_;
  }

 private:
  using File = GgufFileType;
  using Element = GgufElement;

  static bool is_embedding(std::string_view name) {
    return name == "token_embd.weight" || name == "per_layer_token_embd.weight";
  }
  static bool is_value(std::string_view name) {
    return has(name, "attn_qkv.weight") || has(name, "attn_v.weight") ||
           has(name, "attn_kv_b.weight");
  }
  // Whether a layer is in the first or the last eighth, or every third one between them.
  static bool more_bits(int64_t layer, int64_t layers) {
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
  }
  bool is_curve() const { return type_ == File::kIQ4_NL || type_ == File::kIQ4_XS; }

  // The type of the `index`-th of the matrices of values, which have the least elements.
  Element value_type(int64_t index) const {
    const bool shared = sizes_.queries_of_key >= 4;
    Element type = base_;
    if (type_ == File::kQ2_K) type = shared ? Element::kQ4_K : Element::kQ3_K;
    if (type_ == File::kQ2_K_S && shared) type = Element::kQ4_K;
    if (type_ == File::kQ3_K_M) type = index < 2 ? Element::kQ5_K : Element::kQ4_K;
    if (type_ == File::kQ3_K_L) type = Element::kQ5_K;
    if (is_curve() && shared) type = Element::kQ5_K;
    const bool medium = type_ == File::kQ4_K_M || type_ == File::kQ5_K_M;
    if (medium && more_bits(index, values_)) type = Element::kQ6_K;
    if (type_ == File::kQ4_K_S && index < 4) type = Element::kQ5_K;
    if (sizes_.is_70b && (type == Element::kQ3_K || type == Element::kQ4_K)) type = Element::kQ5_K;
    return sizes_.experts == 8 ? Element::kQ8_0 : type;
  }

  Element down_type(int64_t layer) const {
    const int64_t layers = sizes_.layers;
    const bool early = layer < layers / 8, more = more_bits(layer, layers);
    switch (type_) {
      case File::kQ2_K:
        return Element::kQ3_K;
      case File::kQ2_K_S:
        return early ? Element::kQ4_K : base_;
      case File::kQ3_K_M:
        return layer < layers / 16 ? Element::kQ5_K : Element::kQ4_K;
      case File::kQ3_K_L:
        return Element::kQ5_K;
      case File::kQ4_K_S:
        return early ? Element::kQ5_K : base_;
      case File::kQ4_K_M:
      case File::kQ5_K_M:
        return more ? Element::kQ6_K : base_;
      case File::kIQ4_NL:
      case File::kIQ4_XS:
        return early && !has_importance_ ? Element::kQ5_K : base_;
      case File::kQ4_0:
        return early && has_importance_ ? Element::kQ4_1 : base_;
      case File::kQ5_0:
        return early && has_importance_ ? Element::kQ5_1 : base_;
      default:
        return base_;
    }
  }

  Element output_type() const {
    if (sizes_.experts == 8) {
      constexpr File kMore[] = {File::kQ2_K,   File::kQ3_K_S, File::kQ3_K_M, File::kQ4_K_S,
                                File::kQ4_K_M, File::kIQ4_NL, File::kIQ4_XS};
      return std::ranges::count(kMore, type_) > 0 ? Element::kQ5_K : base_;
    }
    if (type_ == File::kQ2_K) return Element::kQ3_K;
    if (type_ == File::kQ3_K_M) return Element::kQ4_K;
    return type_ == File::kQ3_K_L ? Element::kQ5_K : base_;
  }

  GgufFileType type_;
  GgufElement base_;
  GgufModelSizes sizes_;
  bool has_importance_;
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

std::span<const GgufFileTypeInfo> gguf_file_types() { return kFileTypes; }

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
  return {.layers = config.source ? config.source->num_layers : config.num_layers,
          .experts = config.moe.experts,
          .queries_of_key = config.num_heads / std::max<int64_t>(1, config.num_kv_heads),
          .is_70b = config.num_layers == 80 && (llama || architecture.name == "qwen2")};
}

std::vector<GgufElement> choose_gguf_types(std::span<const GgufNamedShape> tensors,
                                           GgufFileType type, const GgufModelSizes& sizes,
                                           bool has_importance) {
  const bool mixed = gguf_file_type_info(type).mixed;
  std::vector<GgufElement> types(tensors.size(), GgufElement::kF32);
  Mixture mixture(tensors, type, sizes, has_importance);
  for (const size_t i : gguf_name_order(tensors)) {
    const GgufNamedShape& tensor = tensors[i];
    if (tensor.is_mxfp4) {
      types[i] = GgufElement::kMXFP4;
      continue;
    }
    if (stays_f32(tensor) || (mixed && !is_matrix(tensor.shape))) continue;
    if (mixed && tensor.name == "per_layer_model_proj.weight") continue;
    if (mixed && has(tensor.name, "attn_rel_b.weight")) continue;
    types[i] = fitting(mixed ? mixture.choose(tensor) : base_of(type), tensor.shape);
  }
  return types;
}

bool gguf_takes_importance(GgufElement type) {
  const graph::BlockEncoder* encoder = graph::find_block_encoder(info_of(type).encoder);
  return encoder != nullptr && encoder->takes_importance;
}

bool gguf_needs_importance(std::string_view name, GgufElement type, GgufFileType file_type) {
  const bool exempt = name == "token_embd.weight" || name == "per_layer_token_embd.weight" ||
                      name == "output.weight";
  return file_type == GgufFileType::kQ2_K_S && type == GgufElement::kQ2_K && !exempt;
}

std::vector<size_t> gguf_name_order(std::span<const GgufNamedShape> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, {}, [&](size_t i) { return std::pair(layer_of(tensors[i].name), tensors[i].name); });
  return order;
}

Status apply_gguf_type(graph::Recipe& recipe, GgufElement type, const TensorSource& source,
                       const std::string& name,
                       std::shared_ptr<const std::vector<float>> importance) {
  const ElementInfo& info = info_of(type);
  if (type == GgufElement::kMXFP4) return recipe.take_blocks(source, name);
  if (!info.encoder.empty()) {
    return recipe.encode(*graph::find_block_encoder(info.encoder), name, std::move(importance));
  }
  recipe.cast(info.dtype);
  return {};
}

}  // namespace ferry::converters
