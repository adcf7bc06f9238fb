// StaticPorts: inputs and outputs of a method of a static program, in the order that ExecuTorch's
// static llama has. Their names are in core/program_interface.h. In shapes, A is the tokens of a
// call, S the context length, C = S - A the cached positions, G the kv heads, D the head_dim.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

class StaticPorts {
 public:
  // Adds the inputs, with the dtypes of options.ports: tokens, masks, input_pos, in some models
  // layer_tokens, then K of all attention layers, then V of all of them. States, in f32, follow
  // when blocks ask for them (caches.h).
  StaticPorts(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
              int64_t tokens);

  // Returns tokens i32 [1,A], or embeddings f32 [1,A,hidden_size].
  ValueId input() const { return input_; }
  ValueId input_pos() const { return input_pos_; }  // i32 [1,A]
  // Returns layer_tokens i32 [1,A]; invalid where the model has none.
  ValueId layer_tokens() const { return layer_tokens_; }
  // Returns the additive mask f32 [1,1,A,S]. Columns [0, C) are the cache, [C, S) the tokens of the
  // call.
  ValueId attention_mask() const { return attention_mask_; }
  ValueId window_mask() const { return window_mask_; }

  // Returns keys f32 [1,G,D,S] and values f32 [1,G,S,D] of attention layer `layer`: those of the
  // cache, then those of this call. `keys` and `values`, [1,A,G,D] each, become outputs.
  std::pair<ValueId, ValueId> extend(GraphBuilder& b, int64_t layer, ValueId keys, ValueId values);
  void add_state(std::string name, ValueId after);

  // Adds the outputs: logits, new K, new V, states.
  void finish(GraphBuilder& b, ValueId logits);

 private:
  // An input or output of one dtype, and the encoding of its codes.
  struct Port {
    DType dtype = DType::kF32;
    Encoding encoding = {};
  };
  struct Layer {
    int64_t number;
    Port key_port, value_port;
    ValueId past_keys = {}, past_values = {}, new_keys = {}, new_values = {};
  };
  static ValueId input(GraphBuilder& b, std::string name, const Port& port, Dims shape);
  // stored() converts an f32 value to the form of an output, real() an input to f32.
  static ValueId stored(GraphBuilder& b, ValueId value, const Port& port);
  static ValueId real(GraphBuilder& b, ValueId value, const Port& port);

  void add_masks(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                 int64_t tokens);

  Port logits_, mask_;
  ValueId input_, attention_mask_, window_mask_, input_pos_, layer_tokens_;
  std::vector<Layer> layers_;
  std::vector<std::pair<std::string, ValueId>> states_;
};

// Adds the first input of a decoder's method: tokens of dtype `ids` [1,count], or embeddings f32
// [1,count,hidden_size] where the config has a vision tower.
ValueId decoder_input(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                      DType ids, Dim count);

// Returns the encoding of a quantised mask. The greatest code stands for 0, which lets a query
// attend; code 0 stands for -65535. Float masks have no encoding.
Encoding mask_encoding(DType dtype);

// Whether a layer has keys and values of its own, and therefore inputs and outputs for them.
bool has_cache(const ModelConfig& config, int64_t layer);

// Whether sliding layers see less than the whole context, or rows of images that other layers do
// not see.
bool has_window(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
