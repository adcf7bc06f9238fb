#include "proof/weight_rows.h"

#include <algorithm>
#include <string_view>

#include "core/checked.h"
#include "proof/stored_weights.h"
#include "proof/weight_proof.h"

namespace ferry::proof {
namespace {

std::vector<WeightRows> weights_with(const plan::Conversion& layers, bool single_dimension) {
  std::vector<WeightRows> list;
  for (const auto& [name, weight] : weights_of(layers)) {
    const Shape& shape = weight->recipe.output().shape;
    if (shape.empty() || (shape.size() == 1) != single_dimension || shape.back() < 2) continue;
    const int64_t elements = checked_numel(shape).value_or(0);
    if (elements > 0) list.push_back({name, weight, elements / shape.back(), shape.back()});
  }
  return list;
}

// Whether RoPE turns the outputs of this weight.
bool is_turned(std::string_view name) {
  constexpr std::string_view kTurned[] = {".wq.", ".wk.", ".q_norm.", ".k_norm."};
  return std::ranges::any_of(kTurned,
                             [&](std::string_view part) { return name.find(part) != name.npos; });
}

}  // namespace

std::vector<WeightRows> matrices_of(const plan::Conversion& layers) {
  return weights_with(layers, /*single_dimension=*/false);
}

std::vector<WeightRows> vectors_of(const plan::Conversion& layers) {
  return weights_with(layers, /*single_dimension=*/true);
}

Status read_rows(const WeightRows& of, const TensorSource& source, int64_t first,
                 std::span<float> out) {
  const auto offset = static_cast<uint64_t>(first * of.columns) * sizeof(float);
  return graph::materialize(of.weight->recipe, source, offset, std::as_writable_bytes(out));
}

std::string kind_of(const std::string& weight) {
  if (layer_of(weight) < 0) return weight;
  const size_t dot = weight.find('.', std::string_view("layers.").size());
  return weight.substr(dot + 1);
}

int64_t RowOrder::place_of(int64_t row) const {
  if (head == 0) return row;
  const int64_t in_head = row % head, half = turned / 2;
  const int64_t moved = in_head >= turned ? in_head
                        : in_head < half  ? 2 * in_head
                                          : 2 * (in_head - half) + 1;
  return row - in_head + moved;
}

std::vector<RowOrder> orders_of(const WeightRows& weight, const converters::ModelConfig& config) {
  std::vector<RowOrder> list = {{}};
  const int64_t head = config.head_dim;
  const int64_t outputs = weight.rows == 1 ? weight.columns : weight.rows;
  if (!is_turned(weight.name) || head <= 0 || outputs % head != 0) return list;
  for (const int64_t turned : {head, config.rotary_dim()}) {
    if (turned > 0 && turned % 2 == 0 && turned <= head) list.push_back({head, turned});
  }
  return list;
}

}  // namespace ferry::proof
