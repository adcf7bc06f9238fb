// PromptSound holds the sound of a prompt for a model of speech. EncoderTensors collects what its
// audio encoder computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/manifest.h"
#include "proof/reference.h"
#include "runner/decoder.h"

namespace ferry::proof {

struct PromptSound {
  Shape shape = {};                  // [1,mels,frames], with labels [1,frames,mels], or [1,samples]
  std::vector<float> features = {};  // input_features or input_values in this shape

  bool empty() const { return features.empty(); }
  // Returns the name of the input that takes them.
  std::string port() const;
  // Gives the sound to the decoder, if there is any.
  Status give(runner::Decoder& decoder) const;
};

// Returns the shape of the input_features that the bundle's audio encoder takes, or the greatest
// one of its input_values; empty if it has none.
Shape sound_shape(const packer::Manifest& manifest);

// Whether the model of a bundle is an audio encoder alone, which gives outputs of labels.
bool gives_labels(const packer::Manifest& manifest);

// Returns the sound of a prompt; nothing for a bundle without an audio encoder. kBadInput if it is
// not of the encoder's shape, or if the prompt of a model of speech has none.
Result<PromptSound> sound_of(const Reference& reference, const ReferencePrompt& prompt,
                             const packer::Manifest& manifest);

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
