#include "proof/encoded_rows.h"

#include <utility>

#include "runner/picture_tiles.h"

namespace ferry::proof {
namespace {

// Appends the rows of videos whose frames are tiles, [frames,rows,width].
void append_videos(const PromptImages& images, std::span<const float> frames, size_t width,
                   std::vector<float>& rows) {
  const auto tile = static_cast<size_t>(images.tiled->rows_of_tile()) * width;
  for (const int64_t count : images.video_groups) {
    const size_t own = static_cast<size_t>(count) * tile;
    const std::vector<float> video = runner::pool_video(*images.tiled, frames.first(own), width);
    rows.insert(rows.end(), video.begin(), video.end());
    frames = frames.subspan(own);
  }
}

}  // namespace

Result<std::vector<float>> encode_kind(runner::VisionEncoder& encoder, const PromptImages& images) {
  if (!images.shown_frames.empty()) {
    return encoder.encode_sounds(images.pixels, images.shown_frames);
  }
  if (!images.tiled || images.video_groups.empty()) {
    return encoder.encode(images.pixels, images.shapes);
  }
  const size_t tile = images.pixels.size() / static_cast<size_t>(images.pixel_shape[0]);
  const size_t stills = static_cast<size_t>(images.still_tiles()) * tile;
  const auto pixels = std::span(images.pixels);
  const auto shapes = std::span(images.shapes);
  std::vector<float> rows;
  if (stills > 0) {
    rows = FERRY_TRY(encoder.encode(pixels.first(stills), shapes.first(images.stills)));
  }
  const std::vector<float> frames =
      FERRY_TRY(encoder.encode(pixels.subspan(stills), shapes.subspan(images.stills)));
  append_videos(images, frames, static_cast<size_t>(encoder.row_width()), rows);
  return rows;
}

Result<std::vector<float>> rows_of_tiles(const PromptImages& images,
                                         std::span<const float> features) {
  const size_t size = features.size() / static_cast<size_t>(images.pixel_shape[0]);
  const size_t width = size / static_cast<size_t>(images.tiled->rows_of_tile());
  const bool films = !images.video_groups.empty();
  const auto pictures =
      std::span(images.shapes).first(films ? images.stills : images.shapes.size());
  const auto stills =
      static_cast<size_t>(films ? images.still_tiles() : images.pixel_shape[0]) * size;
  std::vector<float> rows;
  if (stills > 0) {
    rows = FERRY_TRY(runner::pack_pictures(*images.tiled, pictures, features.first(stills),
                                           static_cast<int64_t>(width), "image_features"));
  }
  append_videos(images, features.subspan(stills), width, rows);
  return rows;
}

}  // namespace ferry::proof
