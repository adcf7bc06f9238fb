#include "converters/blocks/placed_rows.h"

#include <algorithm>
#include <string>
#include <vector>

#include "converters/blocks/layer_inputs.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

constexpr int64_t kPlaces = 3;

bool has_ends(const ModelConfig& config) {
  return config.vision && config.vision->two_way_images && !config.vision->two_way_prompts;
}
bool has_tokens(const ModelConfig& config) { return takes_layer_tokens(config); }
bool has_places(const ModelConfig& config) { return !config.rope.axes.empty(); }

// Returns the columns behind those of the embedding and of DeepStack.
int64_t place_columns(const ModelConfig& config) {
  return (has_ends(config) ? 1 : 0) + (has_tokens(config) ? 1 : 0) +
         (has_places(config) ? kPlaces : 0);
}

// Returns the token whose layer inputs the rows of placeholders have.
int64_t layer_token(const ModelConfig& config, int64_t placeholder) {
  return std::ranges::count(config.padded_ids, placeholder) > 0 ? config.pad_id : placeholder;
}

ValueId constant_rows(GraphBuilder& b, const std::string& name, const std::vector<float>& values,
                      int64_t width) {
  const int64_t rows = std::ssize(values) / width;
  return b.literal(DType::kF32, {batch(), positions(rows), features(width)},
                   graph::literal_of(name, values));
}

// Returns the columns that say where the rows of an image are.
std::vector<float> image_places(const ModelConfig& config, ImageShape shape) {
  const int64_t count = shape.rows * shape.columns;
  std::vector<float> values;
  for (int64_t row = 0; row < count; ++row) {
    const bool last = row + 1 == count;
    if (has_ends(config)) values.push_back(static_cast<float>(count - 1 - row));
    if (has_tokens(config)) {
      values.push_back(static_cast<float>(layer_token(config, *config.vision->image_token_id)));
    }
    if (!has_places(config)) continue;
    const int64_t step = last ? std::max(shape.rows, shape.columns) : 0;
    for (const int64_t value : {step, row / shape.columns, row % shape.columns}) {
      values.push_back(static_cast<float>(value));
    }
  }
  return values;
}

// Returns column `index` of rows [1,T,width] as f32 [1,T].
ValueId column(GraphBuilder& b, ValueId rows, int64_t index) { return b.select(rows, 2, index); }

// Keeps the steps behind the rows of this call, and returns the sum of those before each row:
// f32 [1,T]. Sums of whole numbers are exact.
ValueId positions_before(GraphBuilder& b, DecoderContext& c, ValueId steps) {
  const ValueId buffer = b.buffer(std::string(kRopeStepsName), DType::kF32,
                                  {batch(), positions(c.options.context_length), heads(1), 1});
  b.update_cache(b.view(steps, {batch(), c.tokens, heads(1), 1}), buffer, c.start_pos);
  const Dim written = written_positions(b, c);
  const ValueId all =
      b.view(b.slice(buffer, 1, graph::IntArg(0), c.end_pos, written), {batch(), written});
  const ValueId sums = b.slice(b.cumsum_last(all), 1, c.start_pos, c.end_pos, c.tokens);
  return b.sub(sums, steps);
}

}  // namespace

bool has_placed_rows(const ModelConfig& config) {
  return config.deepstack() > 0 || place_columns(config) > 0;
}

int64_t row_width(const ModelConfig& config, const BuildOptions& options) {
  if (!options.placed_rows) return config.hidden_size;
  return config.hidden_size * (1 + config.deepstack()) + place_columns(config);
}

ValueId placed_text(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                    ValueId tokens, ValueId embeddings) {
  if (!options.placed_rows) return embeddings;
  const int64_t width = config.hidden_size;
  std::vector<float> before(
      static_cast<size_t>(width * config.deepstack() + (has_ends(config) ? 1 : 0)), 0.0F);
  std::vector<ValueId> parts = {embeddings};
  const auto add = [&](const char* name, const std::vector<float>& values) {
    if (values.empty()) return;
    const ValueId row = constant_rows(b, name, values, std::ssize(values));
    const Dim count = b.graph()[embeddings].shape[1];
    parts.push_back(b.expand(row, {batch(), positions(count), features(std::ssize(values))}));
  };
  add("text_ends", before);
  if (has_tokens(config)) parts.push_back(b.unsqueeze(b.to(tokens, DType::kF32), 2));
  if (has_places(config)) add("text_places", {1.0F, 0.0F, 0.0F});
  return b.cat(parts, 2);
}

ValueId placed_image(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                     ValueId features, const std::vector<ValueId>& deepstack, ImageShape shape) {
  if (!options.placed_rows) return features;
  std::vector<ValueId> parts = {features};
  parts.insert(parts.end(), deepstack.begin(), deepstack.end());
  if (const int64_t width = place_columns(config); width > 0) {
    parts.push_back(constant_rows(b, "image_places", image_places(config, shape), width));
  }
  return b.cat(parts, 2);
}

ValueId placed_sound(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                     ValueId features) {
  if (!options.placed_rows) return features;
  std::vector<float> values(static_cast<size_t>(config.hidden_size * config.deepstack()), 0.0F);
  if (has_ends(config)) values.push_back(0.0F);
  if (has_tokens(config))
    values.push_back(static_cast<float>(layer_token(config, config.audio->to_rows->token_id)));
  if (has_places(config)) values.insert(values.end(), {1.0F, 0.0F, 0.0F});
  if (values.empty()) return features;
  const int64_t width = std::ssize(values);
  const ValueId row = constant_rows(b, "sound_places", values, width);
  const Dim count = b.graph()[features].shape[1];
  return b.cat({features, b.expand(row, {batch(), positions(count), converters::features(width)})},
               2);
}

ValueId read_placed_rows(GraphBuilder& b, DecoderContext& c, ValueId rows) {
  const ModelConfig& config = c.config;
  const int64_t width = config.hidden_size;
  int64_t at = width * (1 + config.deepstack());
  std::vector<ValueId> deepstack;
  for (int64_t layer = 1; layer <= config.deepstack(); ++layer) {
    deepstack.push_back(b.slice(rows, 2, layer * width, (layer + 1) * width));
  }
  if (!deepstack.empty()) {
    c.deepstack = deepstack.size() == 1 ? deepstack.front() : b.cat(deepstack, 0);
  }
  if (has_ends(config)) {
    const ValueId behind = b.to(column(b, rows, at++), DType::kI64);
    const ValueId first = b.int_add(c.start_pos, 1);
    const ValueId end = b.int_add(c.end_pos, 1);
    const ValueId next = b.arange(first, end, c.tokens);
    c.attention_end = b.add(behind, b.unsqueeze(next, 0));
  }
  if (has_tokens(config)) c.layer_tokens = b.to(column(b, rows, at++), DType::kI64);
  if (has_places(config)) {
    const ValueId base = positions_before(b, c, column(b, rows, at));
    const ValueId down = b.add(base, column(b, rows, at + 1));
    const ValueId across = b.add(base, column(b, rows, at + 2));
    c.rope_positions = b.cat({base, down, across}, 0);
  }
  return b.slice(rows, 2, 0, width);
}

}  // namespace ferry::converters
