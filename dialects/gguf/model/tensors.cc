#include "dialects/gguf/model/adopt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "core/checked.h"
#include "core/text.h"
#include "dialects/gguf/model/layer_numbers.h"
#include "dialects/gguf/model/reading.h"

namespace ferry::converters {
namespace {

using graph::Recipe;
using graph::Step;

constexpr std::string_view kUnknown = "gguf:";
constexpr std::string_view kRopeFactors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                             "rope_factors_long.weight"};
constexpr std::string_view kLayerIndex = "{i}";
constexpr std::string_view kExpertIndex = "{e}";
constexpr std::string_view kPart = "{p}";
constexpr std::string_view kBlock = "blk.";
constexpr int64_t kMaxHeads = 1 << 20;
constexpr int64_t kMaxExpertTensors = 1 << 19;  // limit of a file; the largest models have 2^17

// Returns `pattern` with `filler` in the place of `what`.
std::string with_text(std::string_view pattern, std::string_view what, std::string_view filler) {
  std::string text(pattern);
  const size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), filler);
}
std::string with_number(std::string_view pattern, std::string_view what, int64_t number) {
  return with_text(pattern, what, std::to_string(number));
}

bool is_hugging_face_name(std::string_view name) {
  for (const std::string_view start :
       {"model.", "backbone.", "language_model.", "transformer.", "lm_head."}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

// Whether the form depends on the sizes of linear attention.
bool needs_linear_sizes(const GgufName& row) {
  const GgufForm& form = row.form;
  return row.hf.find(".linear_attn.") != row.hf.npos &&
         (form.order != nullptr || form.values == GgufForm::Values::kNegExp);
}

// Returns the number of elements in a row.
int64_t width_of(const TensorEntry& stored) {
  int64_t width = 1;
  for (size_t i = 1; i < stored.shape.size(); ++i) width *= stored.shape[i];
  return width;
}

int64_t count_of(std::span<const StridedPiece> pieces) {
  int64_t count = 0;
  for (const StridedPiece& piece : pieces) count += piece.count();
  return count;
}

class Keyer {
 public:
  Keyer(const TensorSource& source, const GgufArchitecture& architecture, const ModelConfig& config)
      : source_(source), architecture_(architecture), config_(config) {
    for (const auto& table : architecture.tables) {
      for (const GgufName& row : table) {
        const bool fits = row.form.fits == nullptr || row.form.fits(config);
        if (fits && !is_layer_number(row)) rows_.emplace(row.gguf, &row);
      }
    }
    for (size_t i = 0; i < source.entries().size(); ++i) index_.emplace(entry(i).name, i);
  }

  Result<KeyedTensors> run() {
    for (size_t i = 0; i < source_.entries().size(); ++i) FERRY_RETURN_IF_ERROR(add(i));
    return std::move(out_);
  }

 private:
  const TensorEntry& entry(size_t index) const { return source_.entries()[index]; }

  Failure bad(const TensorEntry& entry, std::string_view what) const {
    return bad_input(fmt::format("{}: {} (tensor {} {})", printable(source_.path()), what,
                                 quoted(entry.name), to_string(entry.shape)));
  }

  StridedPiece whole(size_t index) const {
    return run_piece(index, 0, checked_numel(entry(index).shape).value_or(0));
  }

  void keep(size_t index, std::string key) {
    out_.tensors.push_back({std::move(key), graph::whole_tensor(source_, index)});
  }

  Status add(size_t index) {
    const TensorEntry& stored = entry(index);
    if (is_hugging_face_name(stored.name)) {
      return bad(stored,
                 "a Hugging Face name in a GGUF file: whether its values were adjusted as "
                 "GGUF has them cannot be known");
    }
    const auto [layer, pattern] = split_gguf_layer(stored.name);
    const auto found = rows_.find(pattern);
    if (layer >= layers_of(pattern)) {
      // Layers beyond those of the model are for multi-token prediction.
      keep(index, std::string(architecture_.predicting) + stored.name.substr(kBlock.size()));
    } else if (found != rows_.end() && is_part(*found->second, layer)) {
      // The tensor that this one is a part of includes it.
    } else if (found != rows_.end() && !found->second->form.is_part) {
      FERRY_RETURN_IF_ERROR(arrange(*found->second, index, layer));
    } else {
      keep(index, std::string(kUnknown) + stored.name);
      if (std::ranges::count(kRopeFactors, stored.name) > 0) {
        out_.tensors.back().unused = "checked: it is what the config's rope scaling gives";
      }
    }
    return {};
  }

  int64_t layers_of(std::string_view pattern) const {
    return pattern.starts_with("enc.") && config_.source ? config_.source->num_layers
                                                         : config_.num_layers;
  }

  // Whether another tensor of the file includes the tensor of this row.
  bool is_part(const GgufName& row, int64_t layer) const {
    return row.form.is_part && index_.contains(with_number(kGgufPackedInput, kLayerIndex, layer));
  }

  Status arrange(const GgufName& row, size_t index, int64_t layer) {
    const TensorEntry& stored = entry(index);
    const GgufForm& form = row.form;
    if (needs_linear_sizes(row) && config_.linear.key_heads == 0) {
      return bad(stored, "the config has no layer of linear attention");
    }
    if (form.shape == GgufForm::Shape::kExperts || form.shape == GgufForm::Shape::kMatrices) {
      return unstack(row, index, layer, 3);
    }
    if (form.shape == GgufForm::Shape::kHeads) return unstack(row, index, layer, 2);
    if (form.shape == GgufForm::Shape::kQkv) return split_qkv(row, index, layer);
    std::vector<StridedPiece> pieces = {whole(index)};
    Shape shape = stored.shape;
    if (form.with_gate) {
      pieces.push_back(FERRY_TRY(gate_of(index, layer)));
      shape[0] += entry(pieces[1].tensor).shape[0];
    }
    if (form.order != nullptr) pieces = FERRY_TRY(reorder(form, stored, shape, pieces));
    FERRY_RETURN_IF_ERROR(add_axis_of_shape(form, stored, shape));
    const std::string key = with_number(row.hf, kLayerIndex, layer);
    Recipe recipe =
        FERRY_TRY(graph::make_recipe(source_, std::move(pieces), std::move(shape), key));
    if (form.values == GgufForm::Values::kNorm && architecture_.shifted_norms) {
      if (!is_castable(recipe.source_dtype)) {
        return bad(stored,
                   fmt::format("{}, expected f32, f16 or bf16", dtype_name(recipe.source_dtype)));
      }
      recipe.apply({.kind = Step::Kind::kAdd, .value = -1});
    }
    if (form.values == GgufForm::Values::kNegExp) {
      FERRY_RETURN_IF_ERROR(check_neg_exp(index));
      recipe.apply({.kind = Step::Kind::kLogNegated});
    }
    out_.tensors.push_back({key, std::move(recipe)});
    return {};
  }

  Status want_rows(const TensorEntry& stored, int64_t rows) const {
    if (!stored.shape.empty() && stored.shape[0] == rows && rows > 0) return {};
    return bad(stored, fmt::format("the config wants {} rows", rows));
  }

  // Returns the elements of `pieces`, which make a tensor of `shape`, in the order of the form.
  Result<std::vector<StridedPiece>> reorder(const GgufForm& form, const TensorEntry& stored,
                                            const Shape& shape,
                                            std::span<const StridedPiece> pieces) const {
    const std::vector<StridedPiece> order = form.order(config_);
    const int64_t count = count_of(order);
    if (form.of_columns) {
      if (shape.size() != 2 || shape[1] != count) {
        return bad(stored, fmt::format("the config wants {} columns", count));
      }
      std::vector<StridedPiece> in_rows;
      for (int64_t row = 0; row < shape[0]; ++row) {
        for (StridedPiece piece : order) {
          piece.offset += row * count;
          in_rows.push_back(std::move(piece));
        }
      }
      return select(pieces, in_rows);
    }
    if (pieces.size() == 1) FERRY_RETURN_IF_ERROR(want_rows(stored, count));
    return select(pieces, rows_to_elements(order, width_of(stored)));
  }

  Status add_axis_of_shape(const GgufForm& form, const TensorEntry& stored, Shape& shape) const {
    if (form.shape == GgufForm::Shape::kChannelAxis) {
      if (shape.size() != 2) return bad(stored, "expected two dimensions");
      shape = {shape[0], 1, shape[1]};
    }
    if (form.shape == GgufForm::Shape::kFlat) shape = {checked_numel(shape).value_or(0)};
    if (form.shape == GgufForm::Shape::kOneRow && shape.size() == 1) shape.insert(shape.begin(), 1);
    return {};
  }

  // Splits [experts or heads, ...] into a tensor for each expert or head.
  Status unstack(const GgufName& row, size_t index, int64_t layer, size_t rank) {
    const TensorEntry& stored = entry(index);
    if (stored.shape.size() != rank) {
      return bad(stored, rank == 3 ? "expected three dimensions" : "expected two dimensions");
    }
    expert_tensors_ += std::min(stored.shape[0], kMaxExpertTensors + 1);
    if (expert_tensors_ > kMaxExpertTensors) return bad(stored, "more experts than any model has");
    const int64_t each = width_of(stored);
    const Shape shape(stored.shape.begin() + 1, stored.shape.end());
    const std::string pattern = with_number(row.hf, kLayerIndex, layer);
    for (int64_t expert = 0; expert < stored.shape[0]; ++expert) {
      std::string key = with_number(pattern, kExpertIndex, expert);
      Recipe recipe = FERRY_TRY(
          graph::make_recipe(source_, {run_piece(index, expert * each, each)}, shape, key));
      out_.tensors.push_back({std::move(key), std::move(recipe)});
    }
    return {};
  }

  // Splits rows of q, k and v into a tensor for each of the three.
  Status split_qkv(const GgufName& row, size_t index, int64_t layer) {
    const TensorEntry& stored = entry(index);
    const int64_t q = config_.q_size(), kv = config_.kv_size(), width = width_of(stored);
    FERRY_RETURN_IF_ERROR(want_rows(stored, q + 2 * kv));
    const std::string pattern = with_number(row.hf, kLayerIndex, layer);
    const struct {
      const char* name;
      int64_t first, rows;
      GgufOrder order;
    } parts[] = {
        {"q", 0, q, row.form.order}, {"k", q, kv, row.form.key_order}, {"v", q + kv, kv, nullptr}};
    for (const auto& part : parts) {
      std::vector<StridedPiece> pieces = {run_piece(index, part.first * width, part.rows * width)};
      if (part.order != nullptr) {
        pieces = select(pieces, rows_to_elements(part.order(config_), width));
      }
      Shape shape = stored.shape;
      shape[0] = part.rows;
      std::string key = with_text(pattern, kPart, part.name);
      Recipe recipe =
          FERRY_TRY(graph::make_recipe(source_, std::move(pieces), std::move(shape), key));
      out_.tensors.push_back({std::move(key), std::move(recipe)});
    }
    return {};
  }

  // Returns the tensor whose rows follow those of the packed input. Both have the sizes of the
  // config.
  Result<StridedPiece> gate_of(size_t index, int64_t layer) const {
    const std::string name = with_number(kGgufPackedGate, kLayerIndex, layer);
    const auto gate = index_.find(name);
    if (gate == index_.end()) {
      return bad(entry(index), fmt::format("there is no {} for it", quoted(name)));
    }
    const TensorEntry& stored = entry(gate->second);
    FERRY_RETURN_IF_ERROR(want_rows(entry(index), config_.linear.conv_channels()));
    FERRY_RETURN_IF_ERROR(want_rows(stored, config_.linear.value_size()));
    const int64_t width = width_of(entry(index));
    if (width_of(stored) != width) {
      return bad(stored, fmt::format("the config wants rows of {}", width));
    }
    return whole(gate->second);
  }

  // Refuses values that are not negative: such a file kept A_log itself.
  Status check_neg_exp(size_t index) const {
    const TensorEntry& stored = entry(index);
    const bool delta = config_.linear.value_heads > 0;
    if (delta) FERRY_RETURN_IF_ERROR(want_rows(stored, config_.linear.value_heads));
    const bool by_state = config_.mamba.rank > 0;  // Mamba has one for each state of a channel
    if (stored.dtype != DType::kF32 || stored.encoding != nullptr || stored.shape.empty() ||
        stored.shape[0] > kMaxHeads || (width_of(stored) != 1 && !by_state)) {
      return bad(stored, "expected f32, one per V head");
    }
    std::vector<float> values(stored.bytes / sizeof(float));
    FERRY_RETURN_IF_ERROR(source_.read(index, 0, std::as_writable_bytes(std::span(values))));
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i]) && values[i] < 0) continue;
      return bad(stored, fmt::format("element {} is {}, expected -exp(A_log), which is negative: "
                                     "this file does not have the values of GGUF",
                                     i, values[i]));
    }
    return {};
  }

  const TensorSource& source_;
  const GgufArchitecture& architecture_;
  const ModelConfig& config_;
  std::map<std::string_view, const GgufName*, std::less<>> rows_;
  std::map<std::string, size_t> index_;  // by stored name
  int64_t expert_tensors_ = 0;
  KeyedTensors out_;
};

// Returns the name that the file has for each key of the model.
std::unordered_map<std::string, std::string> names_of(const GgufArchitecture& architecture,
                                                      const ModelConfig& config) {
  std::unordered_map<std::string, std::string> names;
  for (const auto& table : architecture.tables) {
    for (const GgufName& row : table) {
      const int64_t count = row.hf.find(kLayerIndex) == row.hf.npos ? 1 : config.num_layers;
      for (int64_t i = 0; i < count; ++i) {
        names.emplace(with_number(row.hf, kLayerIndex, i), with_number(row.gguf, kLayerIndex, i));
      }
    }
  }
  return names;
}

}  // namespace

Result<KeyedTensors> key_gguf_tensors(const TensorSource& source,
                                      const GgufArchitecture& architecture,
                                      const ModelConfig& config) {
  KeyedTensors keyed = FERRY_TRY(Keyer(source, architecture, config).run());
  keyed.names = names_of(architecture, config);
  return keyed;
}

}  // namespace ferry::converters
