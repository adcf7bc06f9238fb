#include "proof/encoder_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::proof {
namespace {

constexpr size_t kFramesRank = 3, kCountedRank = 2;

bool is_source(const packer::ManifestComponent& encoder) {
  return encoder.role == kSourceEncoderRole;
}

// Returns the shape of the input that the encoder takes.
Shape input_shape(const packer::ManifestComponent& encoder) {
  for (const packer::ManifestProgram& program : encoder.programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    for (const packer::ManifestPort& port : method->inputs) {
      const size_t rank = port.shape.size();
      if (port.name == kInputFeaturesPort && rank == kFramesRank) return port.shape;
      const bool counted = port.name == kInputValuesPort || port.name == kSourceIdsPort;
      if (counted && rank == kCountedRank) return port.shape;
    }
  }
  return {};
}

// Returns the shape of a prompt's samples or tokens, of which there are `least` to `most`.
Result<Shape> counted_shape(const Reference& reference, const ReferencePrompt& prompt,
                            const std::string& name, int64_t least, int64_t most) {
  const Shape& stated = reference.shape(prompt, name);
  const int64_t count = stated.size() == kCountedRank ? stated[1] : 0;
  if (count >= least && count <= most) return Shape{1, count};
  return bad_input(fmt::format("{}: {} is {}, the encoder takes [1,{}] to [1,{}]",
                               name_of(reference, prompt), name, to_string(stated), least, most));
}

Status check_ids(const EncoderInput& input, const std::string& who, int64_t vocab) {
  for (const int64_t id : input.ids) {
    if (id >= 0 && id < vocab) continue;
    return bad_input(fmt::format("{}: token {} of {} is outside of the bundle's vocabulary of {}",
                                 who, id, kSourceIdsPort, vocab));
  }
  return {};
}

}  // namespace

Status EncoderInput::give(runner::Decoder& decoder) const {
  if (empty()) return {};
  return ids.empty() ? decoder.set_sound(features) : decoder.set_source(ids);
}

std::string EncoderInput::port() const {
  if (!ids.empty()) return std::string(kSourceIdsPort);
  return std::string(shape.size() == kCountedRank ? kInputValuesPort : kInputFeaturesPort);
}

std::span<const std::byte> EncoderInput::bytes() const {
  return ids.empty() ? std::as_bytes(std::span(features)) : std::as_bytes(std::span(ids));
}

const packer::ManifestComponent* attended_encoder(const packer::Manifest& manifest) {
  const packer::ManifestComponent* source = manifest.find(kSourceEncoderRole);
  if (source != nullptr) return source;
  return packer::row_encoder(manifest, kAudioEncoderRole) != nullptr
             ? nullptr
             : manifest.find(kAudioEncoderRole);
}

EncoderInput greatest_input(const packer::Manifest& manifest) {
  EncoderInput input;
  const packer::ManifestComponent* encoder = attended_encoder(manifest);
  if (encoder == nullptr) return input;
  input.shape = input_shape(*encoder);
  if (is_source(*encoder)) input.ids = {0};
  return input;
}

Result<EncoderInput> encoder_input_of(const Reference& reference, const ReferencePrompt& prompt,
                                      const packer::Manifest& manifest) {
  EncoderInput input = greatest_input(manifest);
  if (input.shape.empty()) return input;
  const std::string name = input.port();
  if (!prompt.has(name)) {
    return bad_input(fmt::format("{} has no {}, which the encoder of this model needs",
                                 name_of(reference, prompt), name));
  }
  if (!input.ids.empty()) {
    input.shape = FERRY_TRY(counted_shape(reference, prompt, name, 1, input.shape[1]));
    input.ids = FERRY_TRY(reference.integers(prompt, name, input.shape));
    FERRY_RETURN_IF_ERROR(check_ids(input, name_of(reference, prompt), manifest.vocab_size));
    return input;
  }
  if (gives_labels(manifest)) {
    const Shape& stated = reference.shape(prompt, name);
    const int64_t most = input.shape[1], count = stated.size() == kFramesRank ? stated[1] : 0;
    if (count < 1 || count > most) {
      return bad_input(fmt::format("{}: {} is {}, the audio encoder takes 1 to {} frames",
                                   name_of(reference, prompt), name, to_string(stated), most));
    }
    input.shape[1] = count;
  }
  if (input.shape.size() == kCountedRank) {
    input.shape = FERRY_TRY(counted_shape(reference, prompt, name, kLeastSamples, input.shape[1]));
  }
  input.features = FERRY_TRY(reference.floats(prompt, name, input.shape));
  return input;
}

const char* foreign_input(const ReferencePrompt& prompt, const packer::Manifest& manifest) {
  if (prompt.needs_sound() && manifest.find(kAudioEncoderRole) == nullptr) {
    return "needs sound, which this bundle does not take";
  }
  if (prompt.needs_source() && manifest.find(kSourceEncoderRole) == nullptr) {
    return "needs a text for an encoder, which this bundle does not have";
  }
  return nullptr;
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
  return attended_encoder(manifest)->programs.back().layer_count;
}

runner::Decoder::ProbeSink EncoderTensors::sink() {
  return [this](const std::string& name, int64_t, int64_t rows, std::span<const float> values) {
    if (!is_encoder_tensor(name) || rows < 1) return;
    tensors_.push_back(
        {name, {1, rows, std::ssize(values) / rows}, {values.begin(), values.end()}});
  };
}

}  // namespace ferry::proof
