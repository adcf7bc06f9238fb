#include "runner/audio_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::runner {

bool AudioEncoder::is_in(const packer::Bundle& bundle) {
  return bundle.manifest().find(kAudioEncoderRole) != nullptr;
}

Result<AudioEncoder::Sizes> AudioEncoder::sizes_in(const packer::Bundle& bundle) {
  const packer::ManifestComponent* component = bundle.manifest().find(kAudioEncoderRole);
  if (component == nullptr) {
    return bad_input(
        fmt::format("{}: has no component {}", printable(bundle.path()), kAudioEncoderRole));
  }
  for (const packer::ManifestProgram& program : component->programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    const auto port =
        std::ranges::find(method->inputs, kInputFeaturesPort, &packer::ManifestPort::name);
    if (port == method->inputs.end()) continue;
    const Shape& shape = port->shape;
    if (shape.size() == 3 && shape[0] == 1 && shape[1] >= 1 && shape[2] >= 1) {
      return Sizes{shape[1], shape[2]};
    }
  }
  return bad_input(fmt::format("{}: the audio encoder has no input {} of f32 [1, mels, frames]",
                               printable(bundle.path()), kInputFeaturesPort));
}

Result<AudioEncoder> AudioEncoder::load(const packer::Bundle& bundle,
                                        std::span<const PortType> outputs, ThreadPool& pool,
                                        const MethodOptions& options, MemoryBudget& budget) {
  const Sizes sizes = FERRY_TRY(sizes_in(bundle));
  ProgramSet set = FERRY_TRY(ProgramSet::load(bundle, kAudioEncoderRole, pool, options, budget));
  const PortType inputs[] = {{kInputFeaturesPort, DType::kF32, {1, sizes.mel_bins, sizes.frames}}};
  MethodChain chain = FERRY_TRY(set.bind(kForwardMethod, inputs, outputs));
  return AudioEncoder(std::move(set), std::move(chain), sizes);
}

Status AudioEncoder::encode(std::span<const float> features) {
  if (std::ssize(features) != sizes_.values()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: {} values of sound, the audio encoder takes {} frames of {}",
                            printable(set_.bundle().path()), features.size(), sizes_.frames,
                            sizes_.mel_bins));
  }
  chain_.input(0).bytes = std::as_bytes(features);
  return chain_.run();
}

Status AudioEncoder::set_probe_sink(ProbeSink sink) {
  *sink_ = std::move(sink);
  if (!*sink_ || std::exchange(observing_, true)) return {};
  for (const MethodChain::Link& link : chain_.links()) {
    for (const packer::ManifestProbe& probe : link.ports->probes) {
      FERRY_RETURN_IF_ERROR(link.method->observe(
          probe.value, [sink = sink_.get(), name = probe.name](const TensorView& value) {
            if (!*sink || value.shape.empty() || value.shape.back() < 1) return;
            const std::vector<float> values = probe_floats(value);
            (*sink)(name, std::ssize(values) / value.shape.back(), values);
          }));
    }
  }
  return {};
}

}  // namespace ferry::runner
