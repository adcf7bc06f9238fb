// The metadata of recipes, and the dictionary of weights. materialize.cc computes recipes.
#include "graph/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "core/checked.h"
#include "core/derived_source.h"
#include "core/text.h"

namespace ferry::graph {
namespace {

constexpr size_t kMaxNamedSources = 4;

std::string method_name(const QuantizationScheme& scheme) {
  switch (scheme.method) {
    case ScaleMethod::kBf16First:
      return " bf16_first";
    case ScaleMethod::kHqq:
      return fmt::format(" hqq {}", scheme.rounds);
    case ScaleMethod::kCalibrated:
      return " calibrated";
    case ScaleMethod::kKept:
      return " kept";
  }
  return {};  // no enumerator: -Wswitch reports a missing case
}

std::string scheme_name(const QuantizationScheme& scheme) {
  std::string text = fmt::format("quantize i{}", scheme.bits);
  text += scheme.group == 0 ? " row" : fmt::format(" group {}", scheme.group);
  text += fmt::format(" {}", dtype_name(scheme.scale_dtype));
  text += method_name(scheme);
  if (scheme.bits == 8) return text;
  return text + (scheme.order == NibbleOrder::kLowFirst ? " low_first" : " high_first");
}

}  // namespace

std::string step_name(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kDecode:
      return "decode";
    case Step::Kind::kAdd:
      return fmt::format("add {}", step.value);
    case Step::Kind::kMul:
      return fmt::format("mul {}", step.value);
    case Step::Kind::kNegExp:
      return step.value == 0 ? "neg_exp" : "neg_exp torch";  // see exp_of_torch()
    case Step::Kind::kLogNegated:
      return "log_negated";
    case Step::Kind::kSmooth:
      return step.by_rows ? "smooth_rows" : "smooth";
    case Step::Kind::kCast:
      return fmt::format("cast {}", dtype_name(step.dtype));
    case Step::Kind::kQuantize:
      return scheme_name(step.scheme);
    case Step::Kind::kSplitQ80:
      return "split q8_0";
    case Step::Kind::kEncode:
      return fmt::format("encode {}{}", step.encoder->name,
                         step.importance == nullptr ? "" : " by importance");
    case Step::Kind::kStored:
      return "stored";
  }
  return {};  // no enumerator: -Wswitch reports a missing case
}

uint64_t RecipeOutput::bytes() const {
  uint64_t count = 1;
  for (const int64_t dim : shape) count *= static_cast<uint64_t>(dim);
  return count * static_cast<uint64_t>(dtype_bits(dtype)) / 8;
}

void Recipe::apply(const Step& step) {
  steps.push_back(step);
  output().dtype = DType::kF32;
}

namespace {

// Adds an arithmetic step before the cast or the coding, if there is one.
void apply_early(Recipe& recipe, Step step) {
  auto at = recipe.steps.end();
  if (!recipe.steps.empty() &&
      (recipe.steps.back().kind == Step::Kind::kCast || recipe.is_coded())) {
    --at;
  } else {
    recipe.output().dtype = DType::kF32;
  }
  recipe.steps.insert(at, std::move(step));
}

}  // namespace

void Recipe::smooth(std::shared_ptr<const std::vector<float>> factors) {
  apply_early(*this, {.kind = Step::Kind::kSmooth, .factors = std::move(factors)});
}

void Recipe::smooth_rows(std::shared_ptr<const std::vector<float>> factors) {
  apply_early(*this, {.kind = Step::Kind::kSmooth, .factors = std::move(factors), .by_rows = true});
}

void Recipe::cast(DType dtype) {
  if (!steps.empty() && steps.back().kind == Step::Kind::kCast) steps.pop_back();
  const DType made = steps.empty() ? source_dtype : DType::kF32;
  if (made != dtype) steps.push_back({.kind = Step::Kind::kCast, .dtype = dtype});
  output().dtype = dtype;
}

Recipe whole_tensor(const TensorSource& source, size_t entry) {
  const TensorEntry& tensor = source.entries()[entry];
  Recipe recipe{.pieces = {run_piece(entry, 0, checked_numel(tensor.shape).value_or(0))},
                .source_dtype = tensor.dtype,
                .outputs = {{.dtype = tensor.dtype, .shape = tensor.shape}}};
  if (tensor.encoding != nullptr) recipe.steps.push_back({.kind = Step::Kind::kDecode});
  return recipe;
}

Result<Recipe> make_recipe(const TensorSource& source, std::vector<StridedPiece> pieces,
                           Shape shape, const std::string& key) {
  const std::string path = printable(source.path());
  bool decoded = false;
  int64_t count = 0;
  for (const StridedPiece& piece : pieces) {
    const TensorEntry& entry = source.entries()[piece.tensor];
    decoded |= entry.encoding != nullptr || entry.dtype != source.entries()[pieces[0].tensor].dtype;
    const auto end = end_of(piece);
    if (!end || *end > checked_numel(entry.shape).value_or(0)) {
      return bad_input(fmt::format("{}: {} {} has fewer elements than {} needs of it", path,
                                   quoted(entry.name), to_string(entry.shape), quoted(key)));
    }
    const auto sum = checked_add(count, piece.count());
    if (!sum) return bad_input(fmt::format("{}: {} is too large", path, quoted(key)));
    count = *sum;
  }
  if (pieces.empty() || count != checked_numel(shape)) {
    return bad_input(
        fmt::format("{}: {} gives {} elements, but {} {} is expected", path,
                    pieces.empty() ? "no tensor" : quoted(source.entries()[pieces[0].tensor].name),
                    count, quoted(key), to_string(shape)));
  }
  Recipe recipe{.pieces = std::move(pieces)};
  recipe.source_dtype = decoded ? DType::kF32 : source.entries()[recipe.pieces[0].tensor].dtype;
  for (const StridedPiece& piece : recipe.pieces) {
    const TensorEntry& entry = source.entries()[piece.tensor];
    if (!decoded || is_castable(entry.dtype)) continue;
    return bad_input(fmt::format("{}: {} is {}, expected f32, f16 or bf16", path,
                                 quoted(entry.name), dtype_name(entry.dtype)));
  }
  if (decoded) recipe.steps.push_back({.kind = Step::Kind::kDecode});
  recipe.outputs = {{.dtype = recipe.source_dtype, .shape = std::move(shape)}};
  return recipe;
}

std::vector<size_t> entries_of(const Recipe& recipe) {
  std::vector<size_t> entries;
  std::unordered_set<size_t> seen;
  for (const StridedPiece& piece : recipe.pieces) {
    if (seen.insert(piece.tensor).second) entries.push_back(piece.tensor);
  }
  return entries;
}

std::string source_names(const Recipe& recipe, const TensorSource& source) {
  const std::vector<size_t> entries = stored_entries_of(recipe, source);
  std::string text;
  for (size_t i = 0; i < std::min(entries.size(), kMaxNamedSources); ++i) {
    text += (i > 0 ? " + " : "") + source.entries()[entries[i]].name;
  }
  if (entries.size() > kMaxNamedSources) {
    text += fmt::format(" + {} more", entries.size() - kMaxNamedSources);
  }
  return text;
}

std::string text_of(const Recipe& recipe, const TensorSource& source) {
  std::unordered_map<size_t, size_t> number;
  for (const size_t entry : stored_entries_of(recipe, source)) number.emplace(entry, number.size());
  std::string text;
  for (const StridedPiece& piece : recipe.pieces) {
    std::vector<size_t> indices;
    for (const size_t part : parts_of(source, piece.tensor)) indices.push_back(number.at(part));
    if (indices.empty()) indices.push_back(number.at(piece.tensor));
    text += fmt::format("{}#{} {} [{}", text.empty() ? "" : " + ", fmt::join(indices, ","),
                        form_of(source, piece.tensor), piece.offset);
    for (const StridedAxis& axis : piece.axes)
      text += fmt::format(", {}:{}", axis.size, axis.stride);
    text += "]";
  }
  for (const Step& step : recipe.steps) text += " | " + step_name(step);
  return text;
}

std::string key_of(const Weight& weight, size_t output) {
  const std::string& name = weight.recipe.outputs[output].name;
  return name.empty() ? weight.name : weight.name + "." + name;
}

std::optional<QuantizationScheme> scheme_in(std::string_view recipe_text) {
  constexpr std::string_view kSeparator = " | ";
  const size_t at = recipe_text.rfind(kSeparator);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view text = recipe_text.substr(at + kSeparator.size());
  std::istringstream words{std::string(text)};
  std::string verb, codes, group, scales, method, order;
  QuantizationScheme scheme;
  words >> verb >> codes >> group;
  scheme.bits = codes == "i8" ? 8 : 4;
  if (group == "group") words >> scheme.group;
  words >> scales >> method;
  scheme.scale_dtype = scales == "bf16" ? DType::kBF16 : DType::kF32;
  scheme.method = method == "hqq"          ? ScaleMethod::kHqq
                  : method == "calibrated" ? ScaleMethod::kCalibrated
                  : method == "kept"       ? ScaleMethod::kKept
                                           : ScaleMethod::kBf16First;
  if (scheme.method == ScaleMethod::kHqq) words >> scheme.rounds;
  words >> order;
  scheme.order = order == "high_first" ? NibbleOrder::kHighFirst : NibbleOrder::kLowFirst;
  // A text that was misread does not print as the same text.
  if (scheme_name(scheme) != text || scheme.group < 0) return std::nullopt;
  return scheme;
}

Status StateDict::add(Weight weight) {
  if (!index_.emplace(weight.name, weights_.size()).second) {
    return bad_input(fmt::format("two tensors make the weight {}", quoted(weight.name)));
  }
  weights_.push_back(std::move(weight));
  return {};
}

const Weight* StateDict::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &weights_[found->second];
}

WeightOutput StateDict::find_output(const std::string& key) const {
  if (const Weight* weight = find(key)) return {weight, 0};
  const size_t dot = key.rfind('.');
  const Weight* weight = dot == std::string::npos ? nullptr : find(key.substr(0, dot));
  for (size_t i = 1; weight != nullptr && i < weight->recipe.outputs.size(); ++i) {
    if (key_of(*weight, i) == key) return {weight, i};
  }
  return {};
}

Weight* StateDict::find(const std::string& name) {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &weights_[found->second];
}

Recipe derived_tensor(const TensorSource& source, size_t entry, DType kept) {
  Recipe recipe = whole_tensor(source, entry);
  recipe.steps = {{.kind = Step::Kind::kDecode, .dtype = kept}};
  return recipe;
}

DType kept_dtype(const Recipe& recipe) {
  const bool decoded = !recipe.steps.empty() && recipe.steps[0].kind == Step::Kind::kDecode;
  return decoded ? recipe.steps[0].dtype : recipe.source_dtype;
}

std::vector<size_t> stored_entries_of(const Recipe& recipe, const TensorSource& source) {
  std::vector<size_t> stored;
  std::unordered_set<size_t> seen;
  for (const size_t entry : entries_of(recipe)) {
    const std::span<const size_t> parts = parts_of(source, entry);
    if (parts.empty() && seen.insert(entry).second) stored.push_back(entry);
    for (const size_t part : parts) {
      if (seen.insert(part).second) stored.push_back(part);
    }
  }
  return stored;
}

bool is_derived(const Recipe& recipe, const TensorSource& source) {
  return std::ranges::any_of(recipe.pieces, [&](const StridedPiece& piece) {
    return !parts_of(source, piece.tensor).empty();
  });
}

}  // namespace ferry::graph
