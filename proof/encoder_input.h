// EncoderInput holds what the encoder of a model reads beside a prompt of its text decoder: sound,
// or the tokens of a text. EncoderTensors collects what that encoder computes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "packer/manifest.h"
#include "proof/reference.h"
#include "runner/decoder.h"

namespace ferry::proof {

struct EncoderInput {
  // Sound is [1,mels,frames], with labels [1,frames,mels], or [1,samples]; a text is [1,tokens].
  Shape shape = {};
  std::vector<float> features = {};  // input_features or input_values in this shape
  std::vector<int64_t> ids = {};     // source_ids in this shape

  bool empty() const { return features.empty() && ids.empty(); }
  // Returns the name and the dtype of the input that takes them, and their bytes.
  std::string port() const;
  DType dtype() const { return ids.empty() ? DType::kF32 : DType::kI64; }
  std::span<const std::byte> bytes() const;
  // Gives them to the decoder, if there are any.
  Status give(runner::Decoder& decoder) const;
};

// Returns the encoder whose output the text decoder attends to, or nullptr.
const packer::ManifestComponent* attended_encoder(const packer::Manifest& manifest);

// Whether the model of a bundle is an audio encoder alone, which gives outputs of labels.
bool gives_labels(const packer::Manifest& manifest);

// Returns an input of that encoder: its exact shape, or the greatest one of samples and of tokens;
// empty values and an empty shape if there is none.
EncoderInput greatest_input(const packer::Manifest& manifest);

// Returns the input of a prompt; nothing for a bundle without such an encoder. kBadInput if it is
// not of the encoder's shape, or if a prompt has none.
Result<EncoderInput> encoder_input_of(const Reference& reference, const ReferencePrompt& prompt,
                                      const packer::Manifest& manifest);

// Returns why a bundle cannot run the prompt, which is made for another encoder; else nullptr.
const char* foreign_input(const ReferencePrompt& prompt, const packer::Manifest& manifest);

// Whether a tensor is one of the encoder: encoder_hidden_states.N, the input of layer N, or
// encoder_last_hidden_state.
bool is_encoder_tensor(const std::string& name);
// Returns the layer of the encoder that computes such a tensor; -1 for those before the first.
int64_t encoder_layer(const std::string& name, const packer::Manifest& manifest);

class EncoderTensors {
 public:
  struct Tensor {
    std::string name;
    Shape shape;  // [1,rows,width]
    std::vector<float> values;
  };

  // Returns a sink that keeps the tensors of the encoder. This object must outlive it.
  runner::Decoder::ProbeSink sink();
  const std::vector<Tensor>& tensors() const { return tensors_; }  // in the order of computation

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace ferry::proof
