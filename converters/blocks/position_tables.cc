#include "converters/blocks/position_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "converters/blocks/blocks.h"

namespace ferry::converters {

ValueId tabled(GraphBuilder& b, ValueId at, const std::string& name, int64_t count,
               const std::function<float(int64_t)>& function) {
  std::vector<float> rows;
  for (int64_t number = 0; number < count; ++number) rows.push_back(function(number));
  const auto fill = [rows](uint64_t offset, std::span<std::byte> out) {
    std::ranges::copy(std::as_bytes(std::span(rows)).subspan(offset, out.size()), out.begin());
  };
  const uint64_t bytes = rows.size() * sizeof(float);
  const ValueId table =
      b.literal(DType::kF32, {positions(count), 1},
                {.key = fmt::format("{}:{}", name, count), .bytes = bytes, .fill = fill});
  return b.embedding(table, at);
}

ValueId in_chunk(GraphBuilder& b, const DecoderContext& c, ValueId distance) {
  const int64_t chunk = *c.config.sliding_window;
  const ValueId places =
      tabled(b, call_positions(b, c), "place_in_chunk", c.options.context_length,
             [chunk](int64_t position) { return static_cast<float>(position % chunk); });
  return b.ge(b.sub(b.to(places, DType::kI64), distance), 0);
}

bool plain_queries_grow(const DecoderContext& c) {
  const ScalarConfig& scalars = c.config.scalars;
  const bool all_turned = std::ranges::count(c.config.rope_layers, false) == 0;
  return scalars.query_growth != 0.0 && !all_turned &&
         scalars.query_growth_step <= c.options.context_length;
}

ValueId query_growth(GraphBuilder& b, const DecoderContext& c, ValueId positions) {
  const ScalarConfig& scalars = c.config.scalars;
  const auto factor = [&](int64_t position) {
    const auto steps = static_cast<double>((position + 1) / scalars.query_growth_step);
    return static_cast<float>(1.0 + scalars.query_growth * std::log1p(steps));
  };
  const ValueId factors =
      b.unsqueeze(tabled(b, positions, "query_growth", c.options.context_length, factor), -1);
  b.name(factors, "query_growth");
  return factors;
}

}  // namespace ferry::converters
