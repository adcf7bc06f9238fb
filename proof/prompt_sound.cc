#include "proof/prompt_sound.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::proof {

Status PromptSound::give(runner::Decoder& decoder) const {
  return empty() ? Status() : decoder.set_sound(features);
}

Shape sound_shape(const packer::Manifest& manifest) {
  const packer::ManifestComponent* audio = manifest.find(kAudioEncoderRole);
  if (audio == nullptr) return {};
  for (const packer::ManifestProgram& program : audio->programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    const auto port =
        std::ranges::find(method->inputs, kInputFeaturesPort, &packer::ManifestPort::name);
    if (port != method->inputs.end() && port->shape.size() == 3) return port->shape;
  }
  return {};
}

Result<PromptSound> sound_of(const Reference& reference, const ReferencePrompt& prompt,
                             const packer::Manifest& manifest) {
  PromptSound sound;
  if (manifest.find(kAudioEncoderRole) == nullptr) return sound;
  const std::string name(kInputFeaturesPort);
  if (!prompt.needs_sound()) {
    return bad_input(fmt::format("{} has no {}, which a model of speech needs",
                                 name_of(reference, prompt), name));
  }
  sound.shape = sound_shape(manifest);
  sound.features = FERRY_TRY(reference.floats(prompt, name, sound.shape));
  return sound;
}

bool is_encoder_tensor(const std::string& name) {
  return name == "encoder_last_hidden_state" || name.starts_with("encoder_hidden_states.");
}

int64_t encoder_layer(const std::string& name, const packer::Manifest& manifest) {
  if (const auto after = number_after(name, "encoder_hidden_states.")) return *after - 1;
  return manifest.find(kAudioEncoderRole)->programs.back().layer_count;
}

runner::Decoder::ProbeSink EncoderTensors::sink() {
  return [this](const std::string& name, int64_t, int64_t rows, std::span<const float> values) {
    if (!is_encoder_tensor(name) || rows < 1) return;
    tensors_.push_back(
        {name, {1, rows, std::ssize(values) / rows}, {values.begin(), values.end()}});
  };
}

}  // namespace ferry::proof
