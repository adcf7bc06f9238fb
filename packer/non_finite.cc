#include "packer/non_finite.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/text.h"

namespace ferry::packer {

Result<NonFiniteCount> count_non_finite(const graph::Recipe& recipe, const TensorSource& source,
                                        uint64_t offset, std::span<const std::byte> tile) {
  NonFiniteCount counted{.stored = count_non_finite(recipe.output().dtype, tile)};
  if (counted.stored == 0 || recipe.is_copy() || recipe.output().dtype == DType::kF32)
    return counted;
  const auto width = static_cast<size_t>(dtype_bytes(recipe.output().dtype));
  graph::Recipe before = recipe;  // the recipe before the cast
  before.cast(DType::kF32);
  std::vector<float> values(tile.size() / width);
  FERRY_RETURN_IF_ERROR(graph::materialize(before, source, offset / width * sizeof(float),
                                           std::as_writable_bytes(std::span(values))));
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    counted.overflowed += count_non_finite(recipe.output().dtype, tile.subspan(i * width, width));
  }
  return counted;
}

namespace {

// Returns the name of the weight that the user knows: the name in the checkpoint if there is a
// single one.
std::string name_for_user(const WrittenWeight& weight) {
  return quoted(weight.sources.size() == 1 ? weight.sources[0] : weight.name);
}

std::string values_text(uint64_t count) {
  return fmt::format("{} value{}", count, count == 1 ? "" : "s");
}

// Weights for which a count is not zero.
struct Affected {
  uint64_t values = 0;  // sum over the weights
  const WrittenWeight* first = nullptr;
  std::vector<std::string> lines = {};  // one line per weight

  std::string names() const {
    const std::string more =
        lines.size() > 1 ? fmt::format(" and {} more", lines.size() - 1) : std::string();
    return fmt::format("(tensor {}{})", name_for_user(*first), more);
  }
};

Affected affected_weights(std::span<const WrittenWeight> weights,
                          std::span<const NonFiniteCount> counts,
                          uint64_t NonFiniteCount::*count_of) {
  Affected found;
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint64_t count = counts[i].*count_of;
    if (count == 0 || weights[i].name.empty()) continue;
    if (found.first == nullptr) found.first = &weights[i];
    found.values += count;
    found.lines.push_back(fmt::format("{}: {}", name_for_user(weights[i]), values_text(count)));
  }
  return found;
}

Status refuse(const TensorSource& source, Affected weights, const std::string& reason) {
  Error error{ErrorCode::kUnsupported,
              fmt::format("{}: {} {}", printable(source.path()), reason, weights.names())};
  if (weights.lines.size() > 1) error.details = std::move(weights.lines);
  return Failure(std::move(error));
}

}  // namespace

Status check_values(std::span<const WrittenWeight> weights, std::span<const NonFiniteCount> counts,
                    const TensorSource& source) {
  Affected cast = affected_weights(weights, counts, &NonFiniteCount::overflowed);
  if (cast.first != nullptr) {
    const DType dtype = cast.first->dtype;
    const std::string reason =
        fmt::format("{} too large for {}, which a program in {} can hold", values_text(cast.values),
                    dtype_name(dtype), dtype == DType::kF16 ? "bf16 or f32" : "f32");
    return refuse(source, std::move(cast), reason);
  }
  Affected coded = affected_weights(weights, counts, &NonFiniteCount::unquantized);
  if (coded.first != nullptr) {
    const std::string reason =
        fmt::format("NaN and infinity cannot be quantised: {}", values_text(coded.values));
    return refuse(source, std::move(coded), reason);
  }
  Affected large = affected_weights(weights, counts, &NonFiniteCount::too_large);
  if (large.first == nullptr) return {};
  const std::string reason =
      fmt::format("{} of blocks whose scale is too large for f16", values_text(large.values));
  return refuse(source, std::move(large), reason);
}

std::vector<NonFiniteWeight> non_finite_weights(std::span<const WrittenWeight> weights,
                                                std::span<const NonFiniteCount> counts) {
  std::vector<NonFiniteWeight> found;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (counts[i].stored == 0 || weights[i].name.empty()) continue;
    found.push_back({weights[i].name, weights[i].sources, counts[i].stored});
  }
  return found;
}

}  // namespace ferry::packer
