// StaticPorts: inputs and outputs of a method of a static program, in the order that ExecuTorch's
// static llama has. Names: core/program_interface.h. Written A: tokens of a call, S: context
// length, C = S - A: cached positions, G: kv heads, D: head_dim.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "converters/blocks/graph_names.h"
#include "converters/build_options.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

class StaticPorts {
 public:
  // Adds the inputs, with the dtypes of options.ports: tokens, masks, input_pos, K of all attention
  // layers, V of all of them. States follow as blocks ask for them (caches.h), in f32.
  StaticPorts(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
              int64_t tokens);

  // Tokens i32 [1,A], or embeddings f32 [1,A,hidden_size].
  ValueId input() const { return input_; }
  ValueId input_pos() const { return input_pos_; }  // i32 [1,A]
  // f32 [1,1,A,S], additive. Columns [0, C) are the cache, [C, S) the tokens of the call.
  ValueId attention_mask() const { return attention_mask_; }
  ValueId window_mask() const { return window_mask_; }

  // Keys f32 [1,G,D,S] and values f32 [1,G,S,D] of attention layer `layer`: the cache and behind it
  // those of this call, keys [1,A,G,D] and values [1,A,G,D], which become outputs.
  std::pair<ValueId, ValueId> extend(GraphBuilder& b, int64_t layer, ValueId keys, ValueId values);
  void add_state(std::string name, ValueId after);

  // Adds the outputs: logits, new K, new V, states.
  void finish(GraphBuilder& b, ValueId logits);

 private:
  // An input or output of one dtype, and what its codes mean.
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
  // What an output gives for an f32 value, and the f32 value of an input.
  static ValueId stored(GraphBuilder& b, ValueId value, const Port& port);
  static ValueId real(GraphBuilder& b, ValueId value, const Port& port);

  void add_masks(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                 int64_t tokens);

  Port logits_, mask_;
  ValueId input_, attention_mask_, window_mask_, input_pos_;
  std::vector<Layer> layers_;
  std::vector<std::pair<std::string, ValueId>> states_;
};

// The first input of a decoder's method: tokens of dtype `ids` [1,count], or embeddings f32
// [1,count,hidden_size] where the config has a vision tower.
ValueId decoder_input(GraphBuilder& b, const ModelConfig& config, DType ids, Dim count);

// What a quantised mask holds: its greatest code is 0, which attends, code 0 is -65535. Float masks
// have no encoding.
Encoding mask_encoding(DType dtype);

// Whether sliding layers see less than the whole context.
// Whether a layer has keys and values of its own, and therefore ports for them.
bool has_cache(const ModelConfig& config, int64_t layer);

bool has_window(const ModelConfig& config, const BuildOptions& options);

}  // namespace ferry::converters
