#include "converters/blocks/token_ranges.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace ferry::converters {
namespace {

// The weights of an embedding: NAME.weight, NAME.norm.weight and PROJECTION.weight.
struct RangeNames {
  std::string name, projection;
};

ValueId projected(GraphBuilder& b, const ModelConfig& config, const TokenRangeConfig& range,
                  const std::string& name, ValueId x) {
  const ValueId y = projection(b, x, name, range.width, config.hidden_size, /*bias=*/false);
  return bare_rms_norm(b, y, range.norm_eps);
}

// `local` are places in the table of the range, i64 [1,T].
ValueId embedded(GraphBuilder& b, const ModelConfig& config, const TokenRangeConfig& range,
                 const RangeNames& names, ValueId local) {
  const ValueId table =
      b.weight(names.name + ".weight", {features(range.table_rows), features(range.width)});
  const ValueId normed =
      rms_norm(b, b.embedding(table, local), names.name + ".norm.weight", range.norm_eps);
  return projected(b, config, range, names.projection, normed);
}

}  // namespace

std::vector<TieRule> range_ties(const TokenRangeConfig& range, bool pads) {
  const std::string tokens = range.name + ".tokens", padding = range.name + ".padding";
  std::vector<TieRule> ties = {{.name = "linear behind the encoder",
                                .target = range.name + ".connector.w1.weight",
                                .same_as = tokens + ".projection.weight"}};
  if (!pads) return ties;
  ties.insert(
      ties.begin(),
      {{.name = "table of padding", .target = padding + ".weight", .same_as = tokens + ".weight"},
       {.name = "norm of padding",
        .target = padding + ".norm.weight",
        .same_as = tokens + ".norm.weight"}});
  return ties;
}

ValueId encoded_rows(GraphBuilder& b, const ModelConfig& config, const TokenRangeConfig& range,
                     ValueId x) {
  const ValueId normed = rms_norm(b, x, range.name + ".connector.norm.weight", range.norm_eps);
  return projected(b, config, range, range.name + ".connector.w1", normed);
}

ValueId with_token_ranges(GraphBuilder& b, const ModelConfig& config, ValueId ids, ValueId rows) {
  for (const TokenRangeConfig& range : config.token_ranges) {
    const ValueId behind = b.ge(ids, range.first);
    const ValueId inside = b.logical_and(behind, b.lt(ids, range.end));
    const ValueId local = b.sub(ids, int_scalar(b, range.first));
    const ValueId first = int_scalar(b, 0);
    const ValueId places = b.where(inside, local, first);
    const RangeNames names = {range.name + ".tokens", range.name + ".tokens.projection"};
    const ValueId own = embedded(b, config, range, names, places);
    rows = b.where(b.unsqueeze(inside, 2), own, rows);
  }
  return rows;
}

ValueId padding_row(GraphBuilder& b, const ModelConfig& config, const TokenRangeConfig& range,
                    int64_t id) {
  const int64_t place = id - range.first;
  const ValueId local =
      b.literal(DType::kI64, {batch(), positions(1)},
                graph::literal_of(fmt::format("place {}", place), std::vector<int64_t>{place}));
  const RangeNames names = {range.name + ".padding", range.name + ".connector.w1"};
  return embedded(b, config, range, names, local);
}

}  // namespace ferry::converters
