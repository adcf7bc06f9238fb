#include "dialects/gguf/model/layer_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/text.h"
#include "dialects/gguf/model/written_tensors.h"
#include "graph/recipe.h"

namespace ferry::converters {
namespace {

using graph::Recipe;
using graph::Step;
using nlohmann::json;

std::vector<const GgufName*> number_rows(const GgufArchitecture& architecture) {
  std::vector<const GgufName*> rows;
  for (const auto& table : architecture.tables) {
    for (const GgufName& row : table) {
      if (is_layer_number(row)) rows.push_back(&row);
    }
  }
  return rows;
}

Shape shape_of(const GgufName& row) {
  return row.form.shape == GgufForm::Shape::kLayerScalar ? Shape{} : Shape{1};
}

std::string key_of(const GgufName& row, int64_t layer) {
  return fill_in(std::string(row.hf), {.layer = std::to_string(layer), .expert = {}});
}

// Returns a number for each layer. A number in the place of a list is that of all layers.
Result<std::vector<double>> stated_numbers(const JsonFields& fields, const GgufName& row,
                                           int64_t layers) {
  const std::string name(row.gguf);
  const json* value = fields.find(name);
  if (value == nullptr) return fields.bad(name, "is missing");
  std::vector<double> numbers;
  for (int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<size_t>(i);
    if (value->is_array() && at >= value->size()) return fields.bad(name, "has too few elements");
    const json& item = value->is_array() ? (*value)[at] : *value;
    if (!item.is_number() || !std::isfinite(item.get<double>())) {
      return fields.bad(name, "is not a list of numbers");
    }
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

// Returns the number as a tensor: an element of the file times 0, plus the number. A norm has
// finite elements, or the layer no finite outputs.
Result<Recipe> number_recipe(const TensorSource& source, int64_t layer, const GgufName& row,
                             double number) {
  const std::string norm = fmt::format("blk.{}.attn_norm.weight", layer);
  const auto found = std::ranges::find(source.entries(), norm, &TensorEntry::name);
  const bool fits = found != source.entries().end() && found->encoding == nullptr &&
                    is_castable(found->dtype) && !found->shape.empty() && found->shape[0] > 0;
  if (!fits) {
    return bad_input(
        fmt::format("{}: has no tensor {} of floats", printable(source.path()), quoted(norm)));
  }
  const auto index = static_cast<size_t>(found - source.entries().begin());
  Recipe recipe = FERRY_TRY(
      graph::make_recipe(source, {run_piece(index, 0, 1)}, shape_of(row), key_of(row, layer)));
  recipe.apply({.kind = Step::Kind::kMul, .value = 0});
  recipe.apply({.kind = Step::Kind::kAdd, .value = number});
  return recipe;
}

Result<float> read_number(const TensorSource& source, const KeyedTensor& tensor) {
  Recipe recipe = tensor.recipe;
  recipe.cast(DType::kF32);
  if (recipe.is_coded() || recipe.output().bytes() != sizeof(float)) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: {} is not one number",
                                                     printable(source.path()), quoted(tensor.key)));
  }
  float number = 0;
  FERRY_RETURN_IF_ERROR(
      graph::materialize(recipe, source, 0, std::as_writable_bytes(std::span(&number, 1))));
  return number;
}

}  // namespace

bool is_layer_number(const GgufName& row) {
  return row.form.shape == GgufForm::Shape::kLayerNumber ||
         row.form.shape == GgufForm::Shape::kLayerScalar;
}

Status add_layer_numbers(const TensorSource& source, const GgufArchitecture& architecture,
                         const ModelConfig& config, const json& metadata, KeyedTensors& out) {
  const JsonFields fields(metadata, printable(source.path()), "");
  for (const GgufName* row : number_rows(architecture)) {
    const std::vector<double> numbers = FERRY_TRY(stated_numbers(fields, *row, config.num_layers));
    for (int64_t i = 0; i < config.num_layers; ++i) {
      Recipe recipe = FERRY_TRY(number_recipe(source, i, *row, numbers[static_cast<size_t>(i)]));
      out.tensors.push_back({key_of(*row, i), std::move(recipe)});
    }
  }
  return {};
}

Result<std::vector<GgufKeyValue>> read_layer_numbers(const TensorSource& source,
                                                     const std::vector<KeyedTensor>& tensors,
                                                     const GgufArchitecture& architecture,
                                                     const ModelConfig& config) {
  const GgufTables tables(architecture);
  std::map<std::string, const KeyedTensor*> known;
  for (const KeyedTensor& tensor : tensors) known.emplace(tables.known(tensor.key), &tensor);
  std::vector<GgufKeyValue> keys;
  for (const GgufName* row : number_rows(architecture)) {
    std::vector<float> numbers;
    for (int64_t i = 0; i < config.num_layers; ++i) {
      const auto found = known.find(key_of(*row, i));
      if (found == known.end()) {
        return fail(
            ErrorCode::kUnsupported,
            fmt::format("{}: has no tensor {}", printable(source.path()), quoted(key_of(*row, i))));
      }
      numbers.push_back(FERRY_TRY(read_number(source, *found->second)));
    }
    keys.push_back({std::string(row->gguf), std::move(numbers)});
  }
  return keys;
}

}  // namespace ferry::converters
