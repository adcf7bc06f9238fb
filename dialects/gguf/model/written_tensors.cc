// No product and sum is contracted into one rounding (-ffp-contract=off): the factors of RoPE have
// two roundings in the converter.
#include "dialects/gguf/model/written_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <utility>

#include "converters/blocks/shared_layers.h"
#include "core/checked.h"
#include "core/text.h"
#include "dialects/gguf/model/layer_kinds.h"
#include "dialects/gguf/model/layer_numbers.h"

namespace ferry::converters {
namespace {

using graph::Recipe;
using graph::Step;

constexpr std::string_view kHead = "lm_head.weight";
// A checkpoint of a part of a larger model, or of a model without its head, has other prefixes.
constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
    {"", ""},
    {"", "model."},
    {"", "transformer."},
    {"bert.", ""},
    {"roberta.", ""},
    {"distilbert.", ""},
    {"nomic_bert.", ""},
    {"model.", ""},
    {"model.language_model.", "model."},
    {"language_model.model.", "model."},
    {"language_model.", ""},
    {"model.text_model.", "model."},
    {"transformer.", "model."},
    {"encoder.embed_tokens.", "shared."},  // other names of one table
    {"decoder.embed_tokens.", "shared."},
};
constexpr std::string_view kTable = "shared.weight";

bool is_head(std::string_view key) {
  return std::ranges::any_of(kPrefixes, [&](const auto& prefix) {
    const auto& [from, to] = prefix;
    return to.empty() && key.starts_with(from) && key.substr(from.size()) == kHead;
  });
}

int64_t width_of(const Shape& shape) {
  int64_t width = 1;
  for (size_t i = 1; i < shape.size(); ++i) width *= shape[i];
  return width;
}

int64_t count_of(const std::vector<StridedPiece>& pieces) {
  int64_t count = 0;
  for (const StridedPiece& piece : pieces) count += piece.count();
  return count;
}

class Writer {
 public:
  Writer(const TensorSource& source, const std::vector<KeyedTensor>& tensors,
         const GgufArchitecture& architecture, const ModelConfig& config)
      : source_(source),
        tensors_(tensors),
        architecture_(architecture),
        config_(config),
        tables_(architecture) {}

  Result<std::vector<GgufWrittenTensor>> run() {
    for (size_t i = 0; i < tensors_.size(); ++i) FERRY_RETURN_IF_ERROR(add(i));
    for (const auto& [name, stack] : stacks_) FERRY_RETURN_IF_ERROR(finish(name, stack));
    if (!architecture_.keeps_unused.empty()) add_unused();
    FERRY_RETURN_IF_ERROR(check_needed());
    std::ranges::stable_sort(made_, {}, &Made::place);
    // The converter puts projections behind the pooling first. Clang 14 does not compile the form
    // of std::ranges, which returns a subrange.
    std::stable_partition(made_.begin(), made_.end(),
                          [](const Made& made) { return made.tensor.name.starts_with("dense_"); });
    std::vector<GgufWrittenTensor> tensors;
    for (Made& made : made_) tensors.push_back(std::move(made.tensor));
    return tensors;
  }

 private:
  using Place = std::pair<size_t, size_t>;  // index of the last source, then order among equals
  struct Made {
    Place place;
    GgufWrittenTensor tensor;
  };
  // The matrices of one kind of all experts of a layer, or the norms of all heads.
  struct Stack {
    const GgufName* row = nullptr;
    size_t rank = 0;
    std::string layer;
    std::map<int64_t, size_t> parts;  // expert or head -> index of a keyed tensor
    bool of_experts() const { return row->form.shape == GgufForm::Shape::kExperts; }
    bool of_matrices() const {
      return of_experts() || row->form.shape == GgufForm::Shape::kMatrices;
    }
  };

  Failure cannot(const KeyedTensor& tensor, std::string_view why) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: GGUF of the architecture '{}' {} (tensor {} {})",
                            printable(source_.path()), architecture_.name, why,
                            quoted(source_names(tensor.recipe, source_)),
                            to_string(tensor.recipe.output().shape)));
  }

  // Readers fail without some tensors.
  Status check_needed() const {
    for (const std::string_view pattern : architecture_.needed) {
      const bool of_layers = pattern.find("{i}") != pattern.npos;
      for (int64_t i = 0; i < (of_layers ? config_.num_layers : 1); ++i) {
        const std::string name =
            fill_in(std::string(pattern), {.layer = std::to_string(i), .expert = {}});
        if (std::ranges::count(made_, name, [](const Made& made) { return made.tensor.name; }) >
            0) {
          continue;
        }
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{}: has no tensor for {}, which readers of the architecture '{}' "
                                "of GGUF need",
                                printable(source_.path()), quoted(name), architecture_.name));
      }
    }
    return {};
  }

  // Readers want keys and values of layers that take those of earlier ones, and compute with none
  // of them. Where the checkpoint lacks them, they are those of the last layer that has some.
  void add_unused() {
    const int64_t first = first_shared_layer(config_);
    for (const char* name : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"}) {
      const Made* last = made_of_layer(first - 1, name);
      for (int64_t i = first; last != nullptr && i < config_.num_layers; ++i) {
        if (made_of_layer(i, name) != nullptr) continue;
        Made copy = *last;
        copy.place = {tensors_.size(), made_.size()};
        copy.tensor.name = fmt::format("blk.{}.{}", i, name);
        made_.push_back(std::move(copy));
        last = made_of_layer(first - 1, name);
      }
    }
  }

  const Made* made_of_layer(int64_t layer, std::string_view tensor) const {
    const std::string name = fmt::format("blk.{}.{}", layer, tensor);
    const auto found =
        std::ranges::find(made_, name, [](const Made& made) { return made.tensor.name; });
    return found == made_.end() ? nullptr : &*found;
  }

  Status add(size_t index) {
    if (config_.tie_word_embeddings && is_head(tensors_[index].key)) return {};
    const std::string key = tables_.known(tensors_[index].key);
    if (key.empty()) return cannot(tensors_[index], "has no tensor for it");
    if (key == kTable && table_) {
      const bool same = FERRY_TRY(same_values(tensors_[*table_].recipe, tensors_[index].recipe));
      return same ? Status() : cannot(tensors_[index], "has one table of embeddings");
    }
    if (key == kTable) table_ = index;
    for (const GgufTables::Found& found : tables_.find(key)) {
      if (is_layer_number(*found.row)) continue;  // a key of the metadata
      if (is_of_model(found.row->form)) FERRY_RETURN_IF_ERROR(add(index, found));
    }
    return {};
  }

  Result<bool> same_values(const Recipe& a, const Recipe& b) const {
    constexpr uint64_t kChunk = uint64_t{1} << 20;
    if (a.output() != b.output()) return false;
    const uint64_t all = a.output().bytes();
    for (uint64_t at = 0; at < all; at += kChunk) {
      std::vector<std::byte> left(std::min(kChunk, all - at)), right(left.size());
      FERRY_RETURN_IF_ERROR(graph::materialize(a, source_, at, left));
      FERRY_RETURN_IF_ERROR(graph::materialize(b, source_, at, right));
      if (left != right) return false;
    }
    return true;
  }

  bool is_of_model(const GgufForm& form) const {
    if (form.fits != nullptr && !form.fits(config_)) return false;
    if (form.models == GgufForm::Models::kAll) return true;
    return (form.models == GgufForm::Models::kWithExperts) == (config_.moe.experts > 0);
  }

  Status add(size_t index, const GgufTables::Found& found) {
    const GgufName& row = *found.row;
    const KeyNumbers& numbers = found.numbers;
    std::string name = fill_in(std::string(row.gguf), numbers);
    if (!numbers.expert.empty()) {
      Stack& stack = stacks_[name];
      stack.row = &row;
      stack.rank = found.rank;
      stack.layer = numbers.layer;
      stack.parts[std::stoll(numbers.expert)] = index;
      if (!stack.of_experts()) return {};
      size_t& last = last_expert_[numbers.layer];
      last = std::max(last, index);
      return {};
    }
    Recipe recipe = tensors_[index].recipe;
    if (found.transposed) FERRY_RETURN_IF_ERROR(transpose(tensors_[index], recipe));
    FERRY_RETURN_IF_ERROR(arrange(row.form, tensors_[index], recipe));
    // Readers of some architectures tie no head: theirs is the embedding once more.
    if (name == "token_embd.weight" && architecture_.own_head && config_.tie_word_embeddings) {
      made_.push_back({{index, made_.size()}, {"output.weight", recipe, {index}}});
    }
    made_.push_back({{index, made_.size()}, {std::move(name), std::move(recipe), {index}}});
    return {};
  }

  Status arrange(const GgufForm& form, const KeyedTensor& tensor, Recipe& recipe) const {
    Shape& shape = recipe.output().shape;
    if (recipe.is_coded() || !is_castable(recipe.output().dtype) || shape.empty()) {
      return cannot(tensor, fmt::format("takes no {}", dtype_name(recipe.output().dtype)));
    }
    if (form.written_shape != nullptr) {
      FERRY_RETURN_IF_ERROR(reshape(form, tensor, recipe));
    } else if (form.written != nullptr) {
      FERRY_RETURN_IF_ERROR(form.of_columns ? order_columns(form, tensor, recipe)
                                            : order_rows(form, tensor, recipe));
    }
    if (form.shape == GgufForm::Shape::kChannelAxis) {
      if (shape.size() != 3 || shape[1] != 1) return cannot(tensor, "wants one channel per kernel");
      shape = {shape[0], shape[2]};
    }
    if (form.factors != nullptr) {
      for (const double factor : form.factors(config_)) {
        if (factor != 1) recipe.apply({.kind = Step::Kind::kMul, .value = factor});
      }
    }
    if (form.row_factors != nullptr) {
      const std::vector<float> factors = form.row_factors(config_);
      if (std::ssize(factors) != shape[0]) return cannot(tensor, "wants other rows");
      recipe.smooth_rows(std::make_shared<const std::vector<float>>(factors));
    }
    const bool shifted = form.values == GgufForm::Values::kNorm && architecture_.shifted_norms;
    if (shifted) recipe.apply({.kind = Step::Kind::kAdd, .value = 1});
    if (form.values == GgufForm::Values::kNegExp) {
      recipe.apply({.kind = Step::Kind::kNegExp, .value = 1});  // with torch's exp
    }
    return {};
  }

  Status transpose(const KeyedTensor& tensor, Recipe& recipe) const {
    Shape& shape = recipe.output().shape;
    if (shape.size() != 2) return cannot(tensor, "wants a matrix");
    StridedPiece columns;
    add_axis(columns, {shape[1], 1});
    add_axis(columns, {shape[0], shape[1]});
    recipe.pieces = select(recipe.pieces, std::span(&columns, 1));
    std::swap(shape[0], shape[1]);
    return {};
  }

  Status reshape(const GgufForm& form, const KeyedTensor& tensor, Recipe& recipe) const {
    Shape& shape = recipe.output().shape;
    const int64_t count = checked_numel(shape).value_or(0);
    const Shape wanted = form.written_shape(config_);
    const int64_t made = checked_numel(wanted).value_or(-1);
    if (form.written == nullptr && made != count) return cannot(tensor, "wants another shape");
    if (form.written != nullptr) {
      const std::vector<StridedPiece> order = form.written(config_);
      for (const StridedPiece& piece : order) {
        if (end_of(piece).value_or(INT64_MAX) > count) return cannot(tensor, "wants more rows");
      }
      if (count_of(order) != made) return cannot(tensor, "wants another shape");
      recipe.pieces = select(recipe.pieces, order);
    }
    shape = wanted;
    return {};
  }

  Status order_rows(const GgufForm& form, const KeyedTensor& tensor, Recipe& recipe) const {
    Shape& shape = recipe.output().shape;
    const std::vector<StridedPiece> order = form.written(config_);
    for (const StridedPiece& piece : order) {
      if (end_of(piece).value_or(INT64_MAX) > shape[0]) return cannot(tensor, "wants more rows");
    }
    recipe.pieces = select(recipe.pieces, rows_to_elements(order, width_of(shape)));
    shape[0] = count_of(order);
    return {};
  }

  Status order_columns(const GgufForm& form, const KeyedTensor& tensor, Recipe& recipe) const {
    const Shape& shape = recipe.output().shape;
    const std::vector<StridedPiece> order = form.written(config_);
    if (shape.size() != 2 || shape[1] != count_of(order)) {
      return cannot(tensor, "wants other columns");
    }
    std::vector<StridedPiece> in_rows;
    if (order.size() == 1) {
      StridedPiece all{.offset = order[0].offset};
      add_axis(all, {shape[0], shape[1]});
      for (const StridedAxis& axis : order[0].axes) add_axis(all, axis);
      in_rows.push_back(std::move(all));
    }
    for (int64_t row = 0; order.size() > 1 && row < shape[0]; ++row) {
      for (StridedPiece piece : order) {
        piece.offset += row * shape[1];
        in_rows.push_back(std::move(piece));
      }
    }
    recipe.pieces = select(recipe.pieces, in_rows);
    return {};
  }

  Status finish(const std::string& name, const Stack& stack) {
    const bool experts = stack.of_experts();
    const size_t rank = stack.of_matrices() ? 2 : 1;
    Recipe all;
    std::vector<size_t> made_of;
    for (const auto& [expert, index] : stack.parts) {
      const KeyedTensor& tensor = tensors_[index];
      Recipe part = tensor.recipe;
      if (part.is_coded() || !is_castable(part.output().dtype) ||
          part.output().shape.size() != rank) {
        return cannot(tensor, rank == 2 ? "takes matrices of floats as experts"
                                        : "takes vectors of floats as norms of heads");
      }
      if (made_of.empty()) {
        all = part;
      } else if (part.steps != all.steps || part.source_dtype != all.source_dtype ||
                 part.output() != all.output()) {
        return cannot(tensor, "stacks tensors of one shape and dtype");
      } else {
        all.pieces.insert(all.pieces.end(), part.pieces.begin(), part.pieces.end());
      }
      made_of.push_back(index);
    }
    if (experts && std::ssize(stack.parts) != config_.moe.experts) {
      return cannot(tensors_[made_of[0]], fmt::format("wants {} experts", stack.parts.size()));
    }
    all.output().shape.insert(all.output().shape.begin(), std::ssize(stack.parts));
    const Place place = {experts ? last_expert_[stack.layer] : made_of.back(), stack.rank};
    made_.push_back({place, {name, std::move(all), std::move(made_of)}});
    return {};
  }

  const TensorSource& source_;
  const std::vector<KeyedTensor>& tensors_;
  const GgufArchitecture& architecture_;
  const ModelConfig& config_;
  GgufTables tables_;
  std::vector<Made> made_;
  std::optional<size_t> table_;                // index of the table that encoder and decoder share
  std::map<std::string, Stack> stacks_;        // by name in the file
  std::map<std::string, size_t> last_expert_;  // index of the last expert's tensor by layer
};

// Returns the divisor of each frequency in llama3 scaling. All arithmetic is in f32, as in the
// converter.
std::vector<float> llama3_factors(const RopeConfig& rope, int64_t head_dim) {
  const auto factor = static_cast<float>(rope.factor),
             low = static_cast<float>(rope.low_freq_factor),
             range = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const auto original = static_cast<double>(rope.original_max_positions);
  const auto longest = static_cast<float>(original / rope.low_freq_factor);
  const auto shortest = static_cast<float>(original / rope.high_freq_factor);
  std::vector<float> factors;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const float power = static_cast<float>(i) / static_cast<float>(head_dim);
    const auto scaled = static_cast<float>(std::pow(rope.theta, static_cast<double>(power)));
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / (1.0f / scaled);
    const float smooth = (static_cast<float>(original) / wavelength - low) / range;
    const float between = 1.0f / ((1.0f - smooth) / factor + smooth);
    factors.push_back(wavelength < shortest ? 1.0f : wavelength > longest ? factor : between);
  }
  return factors;
}

std::vector<float> as_floats(const std::vector<double>& values) {
  std::vector<float> floats;
  for (const double value : values) floats.push_back(static_cast<float>(value));
  return floats;
}

}  // namespace

GgufTables::GgufTables(const GgufArchitecture& architecture) {
  for (const auto& table : architecture.tables) {
    for (const GgufName& row : table) {
      const bool unread = std::ranges::count(architecture.unread, row.gguf) > 0;
      if (row.form.read_only || unread) continue;
      rows_.push_back({&row, KeyPattern(std::string(row.hf))});
      if (!row.hf.ends_with(kGgufTransposed)) continue;
      const std::string_view stored = row.hf.substr(0, row.hf.size() - kGgufTransposed.size());
      rows_.push_back({&row, KeyPattern(std::string(stored)), true});
    }
  }
}

std::vector<GgufTables::Found> GgufTables::find(const std::string& key) const {
  std::vector<Found> found;
  for (size_t i = 0; i < rows_.size(); ++i) {
    auto numbers = rows_[i].pattern.match(key);
    if (numbers) found.push_back({rows_[i].name, i, *std::move(numbers), rows_[i].transposed});
  }
  return found;
}

std::string GgufTables::known(std::string_view key) const {
  for (const auto& [from, to] : kPrefixes) {
    if (!key.starts_with(from)) continue;
    std::string named = std::string(to) + std::string(key.substr(from.size()));
    if (!find(named).empty()) return named;
  }
  return {};
}

Result<std::vector<GgufWrittenTensor>> write_gguf_tensors(const TensorSource& source,
                                                          const std::vector<KeyedTensor>& tensors,
                                                          const GgufArchitecture& architecture,
                                                          const ModelConfig& config) {
  return Writer(source, tensors, architecture, config).run();
}

std::vector<GgufRopeTensor> gguf_rope_tensors(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (rope.type == RopeConfig::Type::kLlama3) {
    return {{"rope_freqs.weight", llama3_factors(rope, config.head_dim)}};
  }
  // MiMo, whose heads differ too, turns all frequencies (v_head_dim).
  if (config.full_heads && config.number("v_head_dim") == 0) {
    return {{"rope_freqs.weight", proportional_factors(rope, config.full_heads->dim)}};
  }
  if (rope.type != RopeConfig::Type::kLongRope) return {};
  return {{"rope_factors_long.weight", as_floats(rope.long_factors)},
          {"rope_factors_short.weight", as_floats(rope.factors)}};
}

}  // namespace ferry::converters
