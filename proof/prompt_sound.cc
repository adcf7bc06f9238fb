#include "proof/prompt_sound.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::proof {
namespace {

constexpr size_t kFramesRank = 3, kSamplesRank = 2;

}  // namespace

Status PromptSound::give(runner::Decoder& decoder) const {
  return empty() ? Status() : decoder.set_sound(features);
}

std::string PromptSound::port() const {
  return std::string(shape.size() == kSamplesRank ? kInputValuesPort : kInputFeaturesPort);
}

Shape sound_shape(const packer::Manifest& manifest) {
  const packer::ManifestComponent* audio = manifest.find(kAudioEncoderRole);
  if (audio == nullptr) return {};
  for (const packer::ManifestProgram& program : audio->programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    for (const packer::ManifestPort& port : method->inputs) {
      const size_t rank = port.shape.size();
      if (port.name == kInputFeaturesPort && rank == kFramesRank) return port.shape;
      if (port.name == kInputValuesPort && rank == kSamplesRank) return port.shape;
    }
  }
  return {};
}

Result<PromptSound> sound_of(const Reference& reference, const ReferencePrompt& prompt,
                             const packer::Manifest& manifest) {
  PromptSound sound;
  if (manifest.find(kAudioEncoderRole) == nullptr) return sound;
  sound.shape = sound_shape(manifest);
  const std::string name = sound.port();
  if (!prompt.has(name)) {
    return bad_input(fmt::format("{} has no {}, which a model of speech needs",
                                 name_of(reference, prompt), name));
  }
  if (gives_labels(manifest)) {
    const Shape& stated = reference.shape(prompt, name);
    const int64_t most = sound.shape[1], count = stated.size() == kFramesRank ? stated[1] : 0;
    if (count < 1 || count > most) {
      return bad_input(fmt::format("{}: {} is {}, the audio encoder takes 1 to {} frames",
                                   name_of(reference, prompt), name, to_string(stated), most));
    }
    sound.shape[1] = count;
  }
  if (sound.shape.size() == kSamplesRank) {
    const Shape& stated = reference.shape(prompt, name);
    const int64_t most = sound.shape[1], count = stated.size() == kSamplesRank ? stated[1] : 0;
    if (count < kLeastSamples || count > most) {
      return bad_input(fmt::format("{}: {} is {}, the audio encoder takes {} to {} samples",
                                   name_of(reference, prompt), name, to_string(stated),
                                   kLeastSamples, most));
    }
    sound.shape[1] = count;
  }
  sound.features = FERRY_TRY(reference.floats(prompt, name, sound.shape));
  return sound;
}

bool is_encoder_tensor(const std::string& name) {
  return name == "encoder_last_hidden_state" || name.starts_with("encoder_hidden_states.");
}

bool gives_labels(const packer::Manifest& manifest) {
  const packer::ManifestComponent* main = manifest.main();
  return main != nullptr && main->role == kAudioEncoderRole;
}

int64_t encoder_layer(const std::string& name, const packer::Manifest& manifest) {
  if (const auto after = number_after(name, "encoder_hidden_states.")) return *after - 1;
  if (gives_labels(manifest)) return manifest.num_layers;
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
