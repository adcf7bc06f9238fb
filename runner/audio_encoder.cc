#include "runner/audio_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "runner/encoder_probes.h"
#include "runner/memory.h"

namespace ferry::runner {
namespace {

// The sizes that an input states, if it is one of sound. An encoder of any number of frames has the
// frames first.
std::optional<AudioEncoder::Sizes> sizes_of(const packer::ManifestPort& port, bool frames_first) {
  const Shape& shape = port.shape;
  if (shape.empty() || shape[0] != 1 || std::ranges::min(shape) < 1) return std::nullopt;
  if (port.name == kInputFeaturesPort && shape.size() == 3) {
    return frames_first ? AudioEncoder::Sizes{.mel_bins = shape[2], .frames = shape[1]}
                        : AudioEncoder::Sizes{.mel_bins = shape[1], .frames = shape[2]};
  }
  if (port.name == kInputValuesPort && shape.size() == 2) {
    return AudioEncoder::Sizes{.samples = shape[1]};
  }
  return std::nullopt;
}

// Returns the output of labels, if the encoder has one.
const packer::ManifestPort* labels_in(const packer::ManifestComponent& component) {
  for (const packer::ManifestProgram& program : component.programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    for (const packer::ManifestPort& port : method->outputs) {
      if (port.name == kTokenLogitsPort && port.shape.size() == 3 && port.shape[0] == 1) {
        return &port;
      }
    }
  }
  return nullptr;
}

}  // namespace

bool AudioEncoder::is_in(const packer::Bundle& bundle) {
  return bundle.manifest().find(kAudioEncoderRole) != nullptr;
}

Result<AudioEncoder::Sizes> AudioEncoder::sizes_in(const packer::Bundle& bundle) {
  const packer::ManifestComponent* component = bundle.manifest().find(kAudioEncoderRole);
  if (component == nullptr) {
    return bad_input(
        fmt::format("{}: has no component {}", printable(bundle.path()), kAudioEncoderRole));
  }
  const packer::ManifestPort* labels = labels_in(*component);
  for (const packer::ManifestProgram& program : component->programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    for (const packer::ManifestPort& port : method->inputs) {
      const bool counted = labels != nullptr || bundle.manifest().audio_row_frames.has_value();
      auto sizes = sizes_of(port, counted);
      if (!sizes) continue;
      if (labels == nullptr) return *sizes;
      sizes->rows = labels->shape[1];
      sizes->labels = labels->shape[2];
      return *sizes;
    }
  }
  return bad_input(fmt::format(
      "{}: the audio encoder has neither an input {} of f32 [1, mels, frames] nor {} of f32 [1, "
      "samples]",
      printable(bundle.path()), kInputFeaturesPort, kInputValuesPort));
}

Result<AudioEncoder> AudioEncoder::load(const packer::Bundle& bundle,
                                        std::span<const PortType> outputs, ThreadPool& pool,
                                        const MethodOptions& options, MemoryBudget& budget) {
  const Sizes sizes = FERRY_TRY(sizes_in(bundle));
  ProgramSet set = FERRY_TRY(ProgramSet::load(bundle, kAudioEncoderRole, pool, options, budget));
  PortType input = {kInputFeaturesPort, DType::kF32, {1, sizes.mel_bins, sizes.frames}};
  if (sizes.gives_labels()) input.shape = {1, sizes.frames, sizes.mel_bins};
  if (sizes.takes_samples()) input = {kInputValuesPort, DType::kF32, {1, sizes.samples}};
  MethodChain chain = FERRY_TRY(set.bind(kForwardMethod, {&input, 1}, outputs));
  return AudioEncoder(std::move(set), std::move(chain), sizes);
}

Result<AudioEncoder> AudioEncoder::load_with_labels(const packer::Bundle& bundle, ThreadPool& pool,
                                                    const MethodOptions& options) {
  const Sizes sizes = FERRY_TRY(sizes_in(bundle));
  if (!sizes.gives_labels()) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: the audio encoder has no output {}",
                                                     printable(bundle.path()), kTokenLogitsPort));
  }
  MemoryBudget budget(options.memory);
  const PortType output = {kTokenLogitsPort, DType::kF32, {1, sizes.rows, sizes.labels}};
  return load(bundle, {&output, 1}, pool, options, budget);
}

std::span<const float> AudioEncoder::logits() const {
  const TensorView& view = chain_.output(0);
  return {reinterpret_cast<const float*>(view.bytes.data()), view.bytes.size() / sizeof(float)};
}

Status AudioEncoder::encode(std::span<const float> features) {
  if (sizes_.gives_labels()) return encode_frames(features);
  if (sizes_.takes_samples()) return encode_samples(features);
  if (std::ssize(features) != sizes_.mel_bins * sizes_.frames) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: {} values of sound, the audio encoder takes {} frames of {}",
                            printable(set_.bundle().path()), features.size(), sizes_.frames,
                            sizes_.mel_bins));
  }
  chain_.input(0).bytes = std::as_bytes(features);
  return chain_.run();
}

Status AudioEncoder::encode_samples(std::span<const float> samples) {
  const int64_t count = std::ssize(samples);
  if (count < kLeastSamples || count > sizes_.samples) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a sound of {} samples, the audio encoder takes {} to {}",
                            printable(set_.bundle().path()), count, kLeastSamples, sizes_.samples));
  }
  chain_.input(0).shape[1] = count;
  chain_.input(0).bytes = std::as_bytes(samples);
  return chain_.run();
}

Status AudioEncoder::encode_frames(std::span<const float> frames) {
  const int64_t count = std::ssize(frames) / sizes_.mel_bins;
  const bool whole = count * sizes_.mel_bins == std::ssize(frames);
  if (!whole || count < 1 || count > sizes_.frames) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a sound of {} frames, the audio encoder takes 1 to {}",
                            printable(set_.bundle().path()), count, sizes_.frames));
  }
  chain_.input(0).shape[1] = count;
  chain_.input(0).bytes = std::as_bytes(frames);
  return chain_.run();
}

Status AudioEncoder::set_probe_sink(ProbeSink sink) {
  *sink_ = std::move(sink);
  if (!*sink_ || std::exchange(observing_, true)) return {};
  return observe_encoder(chain_, sink_.get());
}

}  // namespace ferry::runner
