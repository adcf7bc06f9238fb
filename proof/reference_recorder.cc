#include "proof/reference_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/image_grid.h"
#include "core/program_interface.h"
#include "proof/prompt_sounds.h"

namespace ferry::proof {
namespace {

// Reorders [1,context,heads,dim] to [1,heads,tokens,dim].
std::vector<float> heads_first(std::span<const float> cache, int64_t tokens, int64_t heads,
                               int64_t dim) {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(heads * tokens * dim));
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t t = 0; t < tokens; ++t) {
      const auto row =
          cache.subspan(static_cast<size_t>((t * heads + h) * dim), static_cast<size_t>(dim));
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  return out;
}

std::vector<float> copied_floats(const runner::TensorView& view) {
  std::vector<float> values(view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), view.bytes.data(), values.size() * sizeof(float));
  return values;
}

}  // namespace

std::vector<int64_t> RecordedPrompt::executed() const {
  std::vector<int64_t> all = tokens;
  if (!continuation.empty()) all.insert(all.end(), continuation.begin(), continuation.end() - 1);
  return all;
}

void PromptRecorder::append(Rows& all, int64_t position, size_t width,
                            std::span<const float> values) {
  const size_t have = all.size() / width;
  const size_t skip =
      have > static_cast<size_t>(position) ? have - static_cast<size_t>(position) : 0;
  if (skip * width >= values.size()) return;
  const auto fresh = values.subspan(skip * width);
  all.insert(all.end(), fresh.begin(), fresh.end());
}

void PromptRecorder::keep_probe(const std::string& name, int64_t position, int64_t rows,
                                std::span<const float> values) {
  if (rows < 1 || values.empty()) return;
  auto& [width, all] = probes_[name];
  width = values.size() / static_cast<size_t>(rows);
  append(all, position, width, values);
}

void PromptRecorder::keep_logits(int64_t position, std::span<const float> rows) {
  append(logits_, position, static_cast<size_t>(vocab_size_), rows);
}

void PromptRecorder::keep_cache(const ReferenceTensor& tensor, const runner::TensorView& view) {
  if (view.dtype != DType::kF32) return;
  std::vector<float> values = copied_floats(view);
  Shape shape = view.shape;
  if (tensor.is_kv_cache()) {
    if (shape.size() != 4 || shape[1] < tokens()) return;
    values = heads_first(values, tokens(), shape[2], shape[3]);
    shape = {1, shape[2], tokens(), shape[3]};
  }
  caches_[tensor.name] = {std::move(shape), std::move(values)};
}

void PromptRecorder::keep_tensor(const std::string& name, const Shape& shape,
                                 std::vector<float> values) {
  caches_[name] = {shape, std::move(values)};
}

void PromptRecorder::write_logits(const std::string& prefix, MemorySource& out) const {
  const auto end = static_cast<std::ptrdiff_t>(tokens() * vocab_size_);
  out.add(prefix + "logits", DType::kF32, {1, tokens(), vocab_size_},
          Rows(logits_.begin(), logits_.begin() + end));
  write_greedy(prefix, out);
}

void PromptRecorder::write_greedy(const std::string& prefix, MemorySource& out) const {
  if (prompt_->continuation.empty()) return;
  const auto vocab = static_cast<size_t>(vocab_size_);
  const auto from = static_cast<std::ptrdiff_t>(static_cast<size_t>(tokens() - 1) * vocab);
  const Rows rows(logits_.begin() + from, logits_.end());
  const auto chosen = static_cast<int64_t>(prompt_->continuation.size());
  out.add(prefix + "greedy_ids", DType::kI64, {chosen}, prompt_->continuation);
  out.add(prefix + "greedy_logits", DType::kF32, {chosen, vocab_size_}, rows);
}

namespace {

// Returns the first `count` tiles or patches of `pixels` of `shape`, which keeps the others; lists
// get the length that they have in the reference.
std::pair<Shape, std::vector<float>> take_tiles(const PromptImages& images, size_t first,
                                                int64_t count, Shape& shape,
                                                std::vector<float>& pixels) {
  const auto tile = std::ssize(pixels) / std::max<int64_t>(shape[0], 1);
  const auto end = pixels.begin() + static_cast<std::ptrdiff_t>(count * tile);
  std::vector<float> taken(pixels.begin(), end);
  Shape own = shape;
  own[0] = count;
  pixels.erase(pixels.begin(), end);
  shape[0] -= count;
  if (first < images.list_lengths.size()) fit_list_length(own, taken, images.list_lengths[first]);
  return {own, std::move(taken)};
}

// Writes the pixels of images, windows of sounds, or frames of videos.
void write_pixels(const PromptImages& images, const std::string& prefix, MemorySource& out) {
  const auto videos = std::ssize(images.video_groups);
  Shape left = images.pixel_shape;
  std::vector<float> pixels = images.pixels;
  if (images.stills > 0) {
    const auto [shape, own] = take_tiles(images, 0, images.still_tiles(), left, pixels);
    out.add(prefix + std::string(kPixelValuesPort), DType::kF32, shape, own);
  }
  auto [shape, own] = take_tiles(images, images.stills, left[0], left, pixels);
  if (videos > 0 && images.tiled) {
    shape[0] /= videos;
    shape.insert(shape.begin(), videos);
  }
  out.add(prefix + (videos > 0 ? "pixel_values_videos" : std::string(images.encoder->input)),
          DType::kF32, shape, own);
  if (images.shown_frames.empty()) return;
  out.add(prefix + std::string(kFramesMask), DType::kI64, {shape[0], shape[1]},
          frames_mask(images));
}

// Writes the rows and columns of patches of images of any shape, and of groups of frames.
void write_shapes(const PromptImages& images, const std::string& prefix, MemorySource& out) {
  const bool films = !images.video_groups.empty();
  const size_t stills = films ? images.stills : images.shapes.size();
  std::vector<int64_t> grids, film_grids;
  for (size_t i = 0; i < stills; ++i) {
    grids.insert(grids.end(), {1, images.shapes[i].rows, images.shapes[i].columns});
  }
  size_t shape = stills;
  for (const int64_t groups : images.video_groups) {
    const ImageShape& own = images.shapes[shape];
    film_grids.insert(film_grids.end(), {groups, own.rows, own.columns});
    shape += static_cast<size_t>(groups);
  }
  const auto add = [&](const char* name, const std::vector<int64_t>& numbers) {
    if (!numbers.empty())
      out.add(prefix + name, DType::kI64, {std::ssize(numbers) / 3, 3}, numbers);
  };
  add("image_grid_thw", grids);
  add("video_grid_thw", film_grids);
  if (images.group_seconds.empty()) return;
  out.add(prefix + "second_per_grid_ts", DType::kF32, {std::ssize(images.group_seconds)},
          images.group_seconds);
}

// Writes the rows and columns of lists of patches, or the sizes of pictures of several tiles.
void write_sides(const PromptImages& images, const std::string& prefix, MemorySource& out) {
  const auto videos = std::ssize(images.video_groups);
  const size_t stated = videos > 0 && images.tiled ? images.stills : images.shapes.size();
  if (stated == 0) return;
  std::vector<int64_t> numbers;
  for (const ImageShape& shape : std::span(images.shapes).first(stated)) {
    numbers.insert(numbers.end(), {shape.rows, shape.columns});
  }
  const auto count = static_cast<int64_t>(stated);
  out.add(prefix + (images.tiled ? "image_sizes" : "spatial_shapes"), DType::kI64, {count, 2},
          numbers);
  if (videos > 0 && !images.tiled) {
    out.add(prefix + "num_frames_per_video", DType::kI64, {videos}, images.video_groups);
  }
}

void write_kind(const PromptImages& images, const std::string& prefix, MemorySource& out) {
  if (!images.pixels.empty()) write_pixels(images, prefix, out);
  if (images.grid) write_shapes(images, prefix, out);
  if (!images.grid && !images.shapes.empty()) write_sides(images, prefix, out);
  const int64_t rows = images.row_count(), width = std::ssize(images.features) / rows;
  if (width == 0) return;
  std::vector<float> values;
  for (int64_t row = 0; row < rows; ++row) {
    const auto from = images.features.begin() + row * width;
    values.insert(values.end(), from, from + images.width);
  }
  const bool equal = !images.grid && !images.pixels.empty() && !images.joins_features();
  const int64_t tiles = equal ? images.pixel_shape[0] : 1;
  out.add(prefix + std::string(images.encoder->output), DType::kF32,
          {tiles, rows / tiles, images.width}, values);
}

}  // namespace

void PromptRecorder::write_images(const std::string& prefix, MemorySource& out) const {
  for (const PromptImages* images : prompt_->images.kinds()) {
    if (!images->empty()) write_kind(*images, prefix, out);
  }
}

// Returns the experts of all tokens: those of the prompt's routes, followed by `chosen`, the
// choices of the routers.
std::vector<int64_t> PromptRecorder::route_of(const std::string& name, const Rows& chosen) const {
  std::vector<int64_t> taken(chosen.begin(), chosen.end());
  for (const auto& [layer, route] : prompt_->routes) {
    if (name != route_name(layer)) continue;
    std::copy_n(route.begin(), std::min(route.size(), taken.size()), taken.begin());
  }
  return taken;
}

// Rows of the continuation are kept for routers only.
void PromptRecorder::write_probe(const std::string& name, const std::string& prefix,
                                 MemorySource& out) const {
  const auto& [width, rows] = probes_.at(name);
  const auto columns = static_cast<int64_t>(width);
  const size_t end = static_cast<size_t>(tokens()) * width;
  // These probes help to follow routers; their effect on the outputs is compared instead.
  const bool helps = name.starts_with("router_weights.") || name.starts_with("router_choice.");
  if (rows.size() < end || helps) return;
  if (!name.starts_with("router_experts.")) {
    out.add(prefix + name, DType::kF32, {1, tokens(), columns},
            Rows(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(end)));
    return;
  }
  const std::vector<int64_t> taken = route_of(name, rows);
  const auto split = taken.begin() + static_cast<std::ptrdiff_t>(end);
  out.add(prefix + name, DType::kI64, {1, tokens(), columns},
          std::vector<int64_t>(taken.begin(), split));
  const int64_t more = static_cast<int64_t>((rows.size() - end) / width);
  if (more == 0) return;
  out.add(prefix + "greedy_" + name, DType::kI64, {1, more, columns},
          std::vector<int64_t>(split, taken.end()));
}

void PromptRecorder::write(MemorySource& out) const {
  const std::string prefix = prompt_->name.empty() ? "" : prompt_->name + ".";
  if (tokens() > 0) out.add(prefix + "input_ids", DType::kI64, {1, tokens()}, prompt_->tokens);
  if (!prompt_->types.empty()) {
    out.add(prefix + kTokenTypeIds, DType::kI64, {1, tokens()}, prompt_->types);
  }
  if (!logits_.empty()) write_logits(prefix, out);
  write_images(prefix, out);
  if (!prompt_->encoder_input.empty()) {
    const EncoderInput& input = prompt_->encoder_input;
    if (input.ids.empty()) {
      out.add(prefix + input.port(), DType::kF32, input.shape, input.features);
    } else {
      out.add(prefix + input.port(), DType::kI64, input.shape, input.ids);
    }
  }
  for (const auto& [name, rows] : probes_) write_probe(name, prefix, out);
  for (const auto& [name, cache] : caches_) {
    out.add(prefix + name, DType::kF32, cache.first, cache.second);
  }
}

namespace {

Status record_prompt(runner::Decoder& decoder, const packer::Manifest& manifest,
                     const RecordedPrompt& prompt, PromptRecorder& recorder) {
  const std::vector<int64_t> tokens = prompt.executed();
  decoder.restart(static_cast<int64_t>(prompt.tokens.size()));
  const auto vocab = static_cast<size_t>(manifest.vocab_size);
  for (size_t t = 0; t < tokens.size();) {
    const auto count = static_cast<size_t>(decoder.tokens_together(static_cast<int64_t>(t)));
    const std::span<const float> rows =
        FERRY_TRY(decoder.forward(std::span(tokens).subspan(t, count)));
    if (rows.empty() || rows.size() % vocab != 0) {
      return bad_input("the bundle's logits are not [rows, vocabulary]");
    }
    // Logits of image rows before the last are compared with nothing; the last stand for them.
    for (const size_t end = t + count; t < end; ++t) {
      recorder.keep_logits(static_cast<int64_t>(t), rows.last(vocab));
    }
    if (t != prompt.tokens.size()) continue;
    for (const ReferenceTensor& tensor : reference_tensors(manifest.num_layers)) {
      if (tensor.is_probe()) continue;
      const Result<runner::TensorView> view = decoder.buffer(tensor.source);
      if (view) recorder.keep_cache(tensor, *view);  // other models have other caches
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TensorSource>> record_reference(runner::Decoder& decoder,
                                                       const packer::Manifest& manifest,
                                                       const std::vector<RecordedPrompt>& prompts,
                                                       const std::string& name) {
  auto source = std::make_unique<MemorySource>(name);
  for (const RecordedPrompt& prompt : prompts) {
    PromptRecorder recorder(prompt, manifest.vocab_size);
    FERRY_RETURN_IF_ERROR(decoder.set_probe_sink([&](const std::string& probe, int64_t position,
                                                     int64_t rows, std::span<const float> values) {
      if (!is_encoder_tensor(probe)) return recorder.keep_probe(probe, position, rows, values);
      recorder.keep_tensor(probe, {1, rows, std::ssize(values) / rows},
                           {values.begin(), values.end()});
    }));
    FERRY_RETURN_IF_ERROR(prompt.encoder_input.give(decoder));
    FERRY_RETURN_IF_ERROR(decoder.force_experts(prompt.routes.empty() ? nullptr : &prompt.routes));
    FERRY_RETURN_IF_ERROR(decoder.set_image_rows(prompt.images.rows()));
    Status recorded = record_prompt(decoder, manifest, prompt, recorder);
    FERRY_RETURN_IF_ERROR(decoder.set_image_rows({}));
    FERRY_RETURN_IF_ERROR(decoder.force_experts(nullptr));
    FERRY_RETURN_IF_ERROR(decoder.set_probe_sink({}));
    FERRY_RETURN_IF_ERROR(std::move(recorded));
    recorder.write(*source);
  }
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace ferry::proof
