#include "runner/vision_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::runner {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kMostSide = 1 << 14;

using Ports = std::vector<packer::ManifestPort> packer::ManifestMethod::*;

// Finds an input or output among the programs of the component.
const packer::ManifestPort* find_vision_port(const packer::ManifestComponent& component,
                                             Ports ports, std::string_view name) {
  for (const packer::ManifestProgram& program : component.programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    const auto found = std::ranges::find(method->*ports, name, &packer::ManifestPort::name);
    if (found != (method->*ports).end()) return &*found;
  }
  return nullptr;
}

}  // namespace

bool VisionEncoder::is_in(const packer::Bundle& bundle) {
  return bundle.manifest().find(kVisionEncoderRole) != nullptr;
}

Result<std::unique_ptr<VisionEncoder>> VisionEncoder::load_if_any(const packer::Bundle& bundle,
                                                                  ThreadPool& pool,
                                                                  const MethodOptions& options) {
  if (!is_in(bundle)) return std::unique_ptr<VisionEncoder>();
  return std::make_unique<VisionEncoder>(FERRY_TRY(load(bundle, pool, options)));
}

Result<VisionEncoder::Sizes> VisionEncoder::sizes_in(const packer::Bundle& bundle) {
  const packer::ManifestComponent* component = bundle.manifest().find(kVisionEncoderRole);
  if (component == nullptr) {
    return bad_input(
        fmt::format("{}: has no component {}", printable(bundle.path()), kVisionEncoderRole));
  }
  const auto* pixels =
      find_vision_port(*component, &packer::ManifestMethod::inputs, kPixelValuesPort);
  const auto* features =
      find_vision_port(*component, &packer::ManifestMethod::outputs, kImageFeaturesPort);
  const int64_t width = bundle.manifest().hidden_size;
  if (pixels == nullptr || pixels->shape.size() != 4 || pixels->shape[0] != 1 ||
      pixels->shape[1] != kChannels || pixels->shape[2] != pixels->shape[3] ||
      pixels->shape[2] < 1 || pixels->shape[2] > kMostSide) {
    return bad_input(fmt::format("{}: the vision encoder has no input {} of f32 [1, 3, S, S]",
                                 printable(bundle.path()), kPixelValuesPort));
  }
  if (features == nullptr || features->shape.size() != 3 || features->shape[0] != 1 ||
      features->shape[1] < 1) {
    return bad_input(fmt::format("{}: the vision encoder has no output {} of f32 [1, N, {}]",
                                 printable(bundle.path()), kImageFeaturesPort, width));
  }
  if (features->shape[2] != width) {
    return bad_input(fmt::format("{}: image features are {} wide, the text decoder takes {}",
                                 printable(bundle.path()), features->shape[2], width));
  }
  return Sizes{pixels->shape[2], features->shape[1], width};
}

Result<VisionEncoder> VisionEncoder::load(const packer::Bundle& bundle, ThreadPool& pool,
                                          const MethodOptions& options) {
  ProgramSet set = FERRY_TRY(ProgramSet::load(bundle, kVisionEncoderRole, pool, options));
  const Sizes sizes = FERRY_TRY(sizes_in(bundle));
  const int64_t side = sizes.image_size;
  const PortType inputs[] = {{kPixelValuesPort, DType::kF32, {1, kChannels, side, side}}};
  const PortType outputs[] = {{kImageFeaturesPort, DType::kF32, {1, sizes.rows, sizes.width}}};
  MethodChain chain = FERRY_TRY(set.bind(kForwardMethod, inputs, outputs));
  VisionEncoder encoder(std::move(set), std::move(chain));
  encoder.sizes_ = sizes;
  return encoder;
}

Result<std::vector<float>> VisionEncoder::encode(std::span<const float> pixels) {
  const auto tile = static_cast<size_t>(kChannels * image_size() * image_size());
  if (pixels.empty() || pixels.size() % tile != 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: {} pixel values are not whole tiles of {} (3 x {} x {})",
                            printable(set_.bundle().path()), pixels.size(), tile, image_size(),
                            image_size()));
  }
  const auto size = static_cast<size_t>(rows() * width());
  std::vector<float> features(pixels.size() / tile * size);
  for (size_t i = 0; i < pixels.size() / tile; ++i) {
    chain_.input(0).bytes = std::as_bytes(pixels.subspan(i * tile, tile));
    FERRY_RETURN_IF_ERROR(chain_.run());
    const std::span<const std::byte> out = chain_.output(0).bytes;
    if (out.size() != size * sizeof(float)) {
      return bad_input(fmt::format("{}: the vision encoder gave {} values, expected {}",
                                   printable(set_.bundle().path()), out.size() / sizeof(float),
                                   size));
    }
    std::memcpy(features.data() + i * size, out.data(), out.size());
  }
  return features;
}

Status VisionEncoder::set_probe_sink(ProbeSink sink) {
  *sink_ = std::move(sink);
  if (!*sink_ || std::exchange(observing_, true)) return {};
  for (const MethodChain::Link& link : chain_.links()) {
    for (const packer::ManifestProbe& probe : link.ports->probes) {
      FERRY_RETURN_IF_ERROR(link.method->observe(
          probe.value, [sink = sink_.get(), name = probe.name](const TensorView& value) {
            if (*sink) (*sink)(name, value.shape, probe_floats(value));
          }));
    }
  }
  return {};
}

}  // namespace ferry::runner
