#include "converters/adapters/gguf/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "converters/keys/standard_keys.h"
#include "core/checked.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr std::string_view kUnknown = "gguf:";
constexpr std::string_view kRopeFactors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                             "rope_factors_long.weight"};
constexpr std::string_view kLayer = "{i}";
constexpr std::string_view kExpert = "{e}";
constexpr int64_t kMaxExpertTensors = 1 << 19;  // of a file; the largest models have 2^17

// Name of a row with the layer's number in it.
std::string with_number(std::string_view pattern, std::string_view what, int64_t number) {
  std::string text(pattern);
  const size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), std::to_string(number));
}

// "blk.12.attn_q.weight" -> 12 and "blk.{i}.attn_q.weight"; other names as they are, in layer -1.
std::pair<int64_t, std::string> split_layer(const std::string& name) {
  constexpr std::string_view kBlock = "blk.";
  int64_t layer = -1;
  const char* first = name.data() + kBlock.size();
  if (!name.starts_with(kBlock)) return {-1, name};
  const auto [end, error] = std::from_chars(first, name.data() + name.size(), layer);
  const bool plain = error == std::errc() && layer >= 0 &&
                     std::to_string(layer).size() == static_cast<size_t>(end - first);
  if (!plain) return {-1, name};
  return {layer, std::string(kBlock) + std::string(kLayer) + std::string(end)};
}

bool is_hugging_face_name(std::string_view name) {
  for (const std::string_view start : {"model.", "language_model.", "transformer.", "lm_head."}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

// Layouts that need the sizes of linear attention.
bool is_linear_attention(GgufLayout layout) {
  return layout == GgufLayout::kNegExp || layout >= GgufLayout::kPackedInput;
}

class Presenter {
 public:
  Presenter(const TensorSource& inner, const GgufArchitecture& architecture,
            const ModelConfig& config)
      : inner_(inner), architecture_(architecture), config_(config) {
    for (const auto& table : architecture.tables) {
      for (const GgufName& row : table) rows_.emplace(row.gguf, &row);
    }
    for (size_t i = 0; i < inner.entries().size(); ++i) index_.emplace(inner.entries()[i].name, i);
  }

  Result<std::vector<StridedTensor>> run() {
    for (size_t i = 0; i < inner_.entries().size(); ++i) FERRY_RETURN_IF_ERROR(add(i));
    return std::move(out_);
  }

 private:
  const TensorEntry& entry(size_t index) const { return inner_.entries()[index]; }

  tl::unexpected<Error> bad(const TensorEntry& entry, std::string_view what) const {
    return bad_input(fmt::format("{}: {} (tensor {} {})", printable(inner_.path()), what,
                                 quoted(entry.name), to_string(entry.shape)));
  }

  void keep(size_t index, std::string name) {
    out_.push_back({.name = std::move(name),
                    .shape = entry(index).shape,
                    .pieces = {whole_piece(inner_, index)}});
  }

  Status add(size_t index) {
    const TensorEntry& stored = entry(index);
    if (is_hugging_face_name(stored.name)) {
      return bad(stored,
                 "a Hugging Face name in a GGUF file: whether its values were adjusted as "
                 "GGUF has them cannot be known");
    }
    const auto [layer, pattern] = split_layer(stored.name);
    const auto found = rows_.find(pattern);
    if (layer >= config_.num_layers) {
      keep(index, "mtp." + stored.name);  // the model's own layers are fewer
    } else if (found == rows_.end() || !belongs(*found->second, layer)) {
      keep(index, std::string(kUnknown) + stored.name);
    } else {
      FERRY_RETURN_IF_ERROR(arrange(*found->second, index, layer));
    }
    return {};
  }

  // A gate is part of the packed projection, if there is one.
  bool belongs(const GgufName& row, int64_t layer) const {
    return row.layout != GgufLayout::kPackedGate ||
           index_.contains(with_number("blk.{i}.attn_qkv.weight", kLayer, layer));
  }

  // -- layouts: what the Hugging Face tensor is made of

  Status arrange(const GgufName& row, size_t index, int64_t layer) {
    const TensorEntry& stored = entry(index);
    StridedTensor made{.name = with_number(row.hf, kLayer, layer),
                       .shape = stored.shape,
                       .pieces = {whole_piece(inner_, index)},
                       .change = ElementChange::kNone};
    const LinearAttentionConfig& linear = config_.linear;
    if (is_linear_attention(row.layout) && linear.key_heads == 0) {
      return bad(stored, "the config has no layer of linear attention");
    }
    switch (row.layout) {
      case GgufLayout::kAsIs:
        break;
      case GgufLayout::kNorm:
        made.change = architecture_.norms;
        break;
      case GgufLayout::kRopeQuery:
        FERRY_RETURN_IF_ERROR(pairs_to_halves(index, config_.num_heads, made));
        break;
      case GgufLayout::kRopeKey:
        FERRY_RETURN_IF_ERROR(pairs_to_halves(index, config_.num_kv_heads, made));
        break;
      case GgufLayout::kConv:
        FERRY_RETURN_IF_ERROR(with_channel_axis(stored, made));
        break;
      case GgufLayout::kOneRow:
        if (made.shape.size() == 1) made.shape.insert(made.shape.begin(), 1);
        break;
      case GgufLayout::kExperts:
        return unstack(index, made);
      case GgufLayout::kNegExp:
        FERRY_RETURN_IF_ERROR(log_of_negated(index, made));
        break;
      case GgufLayout::kPackedInput:
        FERRY_RETURN_IF_ERROR(pack(index, layer, made));
        break;
      case GgufLayout::kPackedGate:
        return {};  // with kPackedInput
      case GgufLayout::kValueRows:
        FERRY_RETURN_IF_ERROR(tiled_to_grouped(index, 0, linear.value_dim, made));
        break;
      case GgufLayout::kQkvRows:
        FERRY_RETURN_IF_ERROR(
            tiled_to_grouped(index, 2 * linear.key_size(), linear.value_dim, made));
        break;
      case GgufLayout::kQkvConv:
        FERRY_RETURN_IF_ERROR(
            tiled_to_grouped(index, 2 * linear.key_size(), linear.value_dim, made));
        FERRY_RETURN_IF_ERROR(with_channel_axis(stored, made));
        break;
      case GgufLayout::kValueColumns:
        FERRY_RETURN_IF_ERROR(tiled_columns(index, made));
        break;
      case GgufLayout::kValueHeads:
        FERRY_RETURN_IF_ERROR(tiled_to_grouped(index, 0, 1, made));
        break;
      case GgufLayout::kValueHeadsNegExp:
        FERRY_RETURN_IF_ERROR(tiled_to_grouped(index, 0, 1, made));
        FERRY_RETURN_IF_ERROR(log_of_negated(index, made));
        break;
    }
    out_.push_back(std::move(made));
    return {};
  }

  Status want_rows(const TensorEntry& stored, int64_t rows) const {
    if (!stored.shape.empty() && stored.shape[0] == rows && rows > 0) return {};
    return bad(stored, fmt::format("the config wants {} rows", rows));
  }

  // Elements of a row.
  int64_t width(const TensorEntry& stored) const {
    int64_t width = 1;
    for (size_t i = 1; i < stored.shape.size(); ++i) width *= stored.shape[i];
    return width;
  }

  Status pairs_to_halves(size_t index, int64_t heads, StridedTensor& made) const {
    const int64_t head = config_.head_dim;
    FERRY_RETURN_IF_ERROR(want_rows(entry(index), heads * head));
    if (head % 2 != 0) return bad(entry(index), "heads of an odd size cannot be in pairs");
    const int64_t row = width(entry(index));
    made.pieces = {{.entry = index,
                    .dims = {heads, 2, head / 2, row},
                    .strides = {head * row, row, 2 * row, 1}}};
    return {};
  }

  // The V heads from row `from` on, each of `dim` rows.
  Status tiled_to_grouped(size_t index, int64_t from, int64_t dim, StridedTensor& made) const {
    const int64_t keys = config_.linear.key_heads;
    const int64_t groups = config_.linear.groups();
    FERRY_RETURN_IF_ERROR(want_rows(entry(index), from + keys * groups * dim));
    if (groups == 1) return {};
    const int64_t row = width(entry(index));
    made.pieces.clear();
    if (from > 0) made.pieces.push_back({.entry = index, .dims = {from * row}, .strides = {1}});
    made.pieces.push_back({.entry = index,
                           .offset = from * row,
                           .dims = {keys, groups, dim * row},
                           .strides = {dim * row, keys * dim * row, 1}});
    return {};
  }

  Status tiled_columns(size_t index, StridedTensor& made) const {
    const LinearAttentionConfig& linear = config_.linear;
    const TensorEntry& stored = entry(index);
    if (stored.shape.size() != 2 || stored.shape[1] != linear.value_size()) {
      return bad(stored, fmt::format("the config wants {} columns", linear.value_size()));
    }
    if (linear.groups() == 1) return {};
    made.pieces = {{.entry = index,
                    .dims = {stored.shape[0], linear.key_heads, linear.groups(), linear.value_dim},
                    .strides = {linear.value_size(), linear.value_dim,
                                linear.key_heads * linear.value_dim, 1}}};
    return {};
  }

  Status with_channel_axis(const TensorEntry& stored, StridedTensor& made) const {
    if (stored.shape.size() != 2) return bad(stored, "expected two dimensions");
    made.shape = {stored.shape[0], 1, stored.shape[1]};
    return {};
  }

  // [experts, rows, columns] to a tensor for each of them.
  Status unstack(size_t index, const StridedTensor& pattern) {
    const TensorEntry& stored = entry(index);
    if (stored.shape.size() != 3) return bad(stored, "expected three dimensions");
    expert_tensors_ += std::min(stored.shape[0], kMaxExpertTensors + 1);
    if (expert_tensors_ > kMaxExpertTensors) return bad(stored, "more experts than any model has");
    const int64_t each = stored.shape[1] * stored.shape[2];
    for (int64_t expert = 0; expert < stored.shape[0]; ++expert) {
      out_.push_back(
          {.name = with_number(pattern.name, kExpert, expert),
           .shape = {stored.shape[1], stored.shape[2]},
           .pieces = {{.entry = index, .offset = expert * each, .dims = {each}, .strides = {1}}}});
    }
    return {};
  }

  // Per key head the rows of q, k, v and z, from attn_qkv (all q, all k, all v) and attn_gate.
  Status pack(size_t index, int64_t layer, StridedTensor& made) const {
    const LinearAttentionConfig& linear = config_.linear;
    const std::string gate_name = with_number("blk.{i}.attn_gate.weight", kLayer, layer);
    const auto gate = index_.find(gate_name);
    if (gate == index_.end()) {
      return bad(entry(index), fmt::format("there is no {} for it", quoted(gate_name)));
    }
    FERRY_RETURN_IF_ERROR(want_rows(entry(index), linear.conv_channels()));
    FERRY_RETURN_IF_ERROR(want_rows(entry(gate->second), linear.value_size()));
    const int64_t row = width(entry(index));
    if (width(entry(gate->second)) != row) {
      return bad(entry(gate->second), fmt::format("the config wants rows of {}", row));
    }
    const int64_t key = linear.key_dim;
    const int64_t value = linear.groups() * linear.value_dim;  // of a key head
    made.shape = {linear.conv_channels() + linear.value_size(), row};
    made.pieces.clear();
    const auto add = [&](size_t from, int64_t begin, int64_t count) {
      made.pieces.push_back(
          {.entry = from, .offset = begin * row, .dims = {count * row}, .strides = {1}});
    };
    for (int64_t head = 0; head < linear.key_heads; ++head) {
      add(index, head * key, key);
      add(index, linear.key_size() + head * key, key);
      add(index, 2 * linear.key_size() + head * value, value);
      add(gate->second, head * value, value);
    }
    return {};
  }

  // A checkpoint that kept A_log itself has values that are not negative.
  Status log_of_negated(size_t index, StridedTensor& made) const {
    const TensorEntry& stored = entry(index);
    made.change = ElementChange::kLogOfNegated;
    FERRY_RETURN_IF_ERROR(want_rows(stored, config_.linear.value_heads));
    if (stored.dtype != DType::kF32 || width(stored) != 1)
      return bad(stored, "expected f32, one per V head");
    std::vector<float> values(static_cast<size_t>(config_.linear.value_heads));
    FERRY_RETURN_IF_ERROR(inner_.read(index, 0, std::as_writable_bytes(std::span(values))));
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i]) && values[i] < 0) continue;
      return bad(stored, fmt::format("element {} is {}, expected -exp(A_log), which is negative: "
                                     "this file does not have the values of GGUF",
                                     i, values[i]));
    }
    return {};
  }

  const TensorSource& inner_;
  const GgufArchitecture& architecture_;
  const ModelConfig& config_;
  std::map<std::string_view, const GgufName*, std::less<>> rows_;
  std::map<std::string, size_t> index_;  // by stored name
  int64_t expert_tensors_ = 0;
  std::vector<StridedTensor> out_;
};

}  // namespace

Result<std::unique_ptr<TensorSource>> present_gguf_tensors(std::unique_ptr<TensorSource> inner,
                                                           const GgufArchitecture& architecture,
                                                           const ModelConfig& config) {
  auto tensors = FERRY_TRY(Presenter(*inner, architecture, config).run());
  return FERRY_TRY(StridedSource::make(std::move(inner), std::move(tensors)));
}

std::unordered_map<std::string, std::string> gguf_stored_names(const GgufArchitecture& architecture,
                                                               const ModelConfig& config) {
  std::unordered_map<std::string, std::string> names;
  for (const auto& table : architecture.tables) {
    for (const GgufName& row : table) {
      const int64_t count = row.hf.find(kLayer) == row.hf.npos ? 1 : config.num_layers;
      for (int64_t i = 0; i < count; ++i) {
        names.emplace(with_number(row.hf, kLayer, i), with_number(row.gguf, kLayer, i));
      }
    }
  }
  return names;
}

std::vector<KeyRule> gguf_format_rules() {
  std::vector<KeyRule> rules;
  for (const std::string_view name : kRopeFactors) {
    rules.push_back(drop_rule(std::string(kUnknown) + std::string(name),
                              "checked: it is what the config's rope scaling gives"));
    rules.back().name = "drop " + std::string(name);
  }
  return rules;
}

}  // namespace ferry::converters
