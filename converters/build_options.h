// BuildOptions: what a user chooses about a program.
#pragma once

#include <cstdint>

namespace ferry::converters {

enum class ProgramStyle : uint8_t {
  kStateful,  // one method; caches are mutable buffers of the program
  kStatic,    // two methods of fixed shapes; caches, masks and positions are inputs and outputs
};

// What softmax does with columns that the mask hides. Static style.
enum class SoftmaxStyle : uint8_t {
  kPlain,   // the mask is added to the scores
  kMasked,  // their score is 20 less than the smallest one of the row
};

// What queries and keys are multiplied by after RoPE. Static style.
enum class Rotation : uint8_t {
  kNone,
  kR3,  // a Hadamard matrix over head_dim; K caches hold rotated keys
};

// Checked against the config by the caller: 1 <= prefill_length <= context_length <= max_positions;
// in the static style prefill_length and decode_length are less than context_length.
struct BuildOptions {
  int64_t context_length = 0;  // positions of the KV caches
  int64_t prefill_length = 0;  // maximum number of tokens of one call
  bool all_logits = false;     // logits of all tokens, [1,T,V], instead of the last one, [1,V]
  ProgramStyle style = ProgramStyle::kStateful;
  int64_t decode_length = 1;  // tokens of a call of kv_forward, static style
  SoftmaxStyle softmax = SoftmaxStyle::kPlain;
  Rotation rotation = Rotation::kNone;  // kR3: head_dim is a power of two
};

}  // namespace ferry::converters
