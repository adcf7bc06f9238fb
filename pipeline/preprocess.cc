#include "pipeline/preprocess.h"

#include <span>
#include <utility>

#include "core/interrupt.h"
#include "formats/safetensors/writer.h"
#include "media/decode.h"
#include "media/pixel_values.h"
#include "media/settings.h"
#include "media/tiles.h"

namespace ferry::pipeline {
namespace {

Status write(const std::string& path, const media::PixelValues& pixels) {
  std::vector<formats::TensorData> tensors = {
      {{"pixel_values", DType::kF32, pixels.shape}, std::as_bytes(std::span(pixels.values))}};
  if (!pixels.mask_shape.empty()) {
    tensors.push_back({{"pixel_attention_mask", DType::kI64, pixels.mask_shape},
                       std::as_bytes(std::span(pixels.mask))});
  }
  return formats::write_safetensors(path, tensors);
}

}  // namespace

Result<PreprocessReport> preprocess(const PreprocessRequest& request, ThreadPool& pool) {
  const media::Settings settings = FERRY_TRY(media::load_settings(request.checkpoint));
  PreprocessReport report;
  media::Sample sample;
  for (const std::string& path : request.images) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const media::Image image = FERRY_TRY(media::read_image(path));
    sample.push_back(media::cut(image, settings, request.backend, pool));
    report.images.push_back({path, image.size, sample.back().grid, sample.back().tiles.size()});
  }
  const media::PixelValues pixels =
      media::pixel_values(std::span(&sample, 1), settings, request.backend);
  FERRY_RETURN_IF_ERROR(write(request.output, pixels));
  report.pixel_values = pixels.shape;
  report.pixel_attention_mask = pixels.mask_shape;
  return report;
}

}  // namespace ferry::pipeline
