// BuildOptions: the choices of a user about a program.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/attention_sink.h"
#include "core/dtype.h"
#include "core/encoding.h"
#include "core/image_grid.h"

namespace ferry::converters {

// Samples of a second, in audio encoders that take samples.
inline constexpr int64_t kSampleRate = 16000;
// Frames of a second, in audio encoders that take any number of frames.
inline constexpr int64_t kFrameRate = 100;

enum class ProgramStyle : uint8_t {
  kStateful,  // one method; caches are mutable buffers of the program
  kStatic,    // two methods of fixed shapes; caches, masks and positions are inputs and outputs
  kEncoder,   // one method, which takes a whole text and gives its states; no caches
};

// How softmax treats columns that the mask hides, in a static program.
enum class SoftmaxStyle : uint8_t {
  kPlain,   // the mask is added to the scores
  kMasked,  // the score of a hidden column is 20 less than the smallest one of the row
};

// The matrix that queries and keys are multiplied by after RoPE.
enum class Rotation : uint8_t {
  kNone,
  kR3,  // a Hadamard matrix over head_dim; K caches hold rotated keys
};

// The dtypes of inputs and outputs of a static program: f32, f16, bf16, u16 or u8 each. The program
// computes in f32 and converts its inputs and outputs.
struct PortTypes {
  DType cache = DType::kF32;  // cached and new keys and values
  DType mask = DType::kF32;
  DType logits = DType::kF32;
  // Encodings of u16 and u8 caches, from calibration: one for each layer with attention, in order.
  std::vector<Encoding> keys = {}, values = {};
  // Encodings of the caches of prefill_forward where they differ; else empty.
  std::vector<Encoding> prefill_keys = {}, prefill_values = {};
  Encoding logits_encoding = {};

  bool has_prefill_encodings() const { return !prefill_keys.empty(); }
  // Returns the types that prefill_forward has.
  PortTypes of_prefill() const {
    PortTypes types = *this;
    if (!has_prefill_encodings()) return types;
    types.keys = prefill_keys;
    types.values = prefill_values;
    return types;
  }
};

// The caller checks the options against the config: 1 <= prefill_length <= context_length <=
// max_positions. In a static program prefill_length and decode_length are less than context_length;
// in an encoder prefill_length is context_length.
struct BuildOptions {
  int64_t context_length = 0;  // positions of the KV caches
  int64_t prefill_length = 0;  // maximum number of tokens of one call
  bool all_logits = false;     // logits of all tokens, [1,T,V], instead of the last one, [1,V]
  ProgramStyle style = ProgramStyle::kStateful;
  int64_t texts_length = 0;  // encoder: most tokens of a call of several texts; 0: no such method
  // Vision encoders for images of any shape: most patches of an image, in whole blocks; else 0.
  int64_t image_patches = 0;
  // Vision encoders that take pictures of one shape alone, in patches: pixel_values are planes.
  std::optional<ImageShape> picture = {};
  // Rows of embeddings state their own places (placed_rows.h), and are as wide as that needs.
  bool placed_rows = false;
  int64_t source_length = 0;  // encoder-decoders: most tokens of a text of the encoder; else 0
  int64_t sound_samples = 0;  // audio encoders that take samples: most of a sound; else 0
  int64_t sound_frames = 0;   // audio encoders that take any number of frames: most of a sound
  int64_t frame_rate = kFrameRate;  // of these frames, in a second
  // Stateful programs: the dtype of the KV caches, f32, f16 or i8. An i8 cache has a scale and a
  // zero point for the head_dim elements of each position and head.
  DType kv_cache = DType::kF32;
  // Stateful programs: sequences have no end, and the caches hold a ring. context_length is then
  // attention_sink->slots(), and prefill_length at most the window.
  std::optional<AttentionSink> attention_sink = {};
  // Static programs have the following options.
  int64_t decode_length = 1;  // tokens of a call of kv_forward
  PortTypes ports = {};
  SoftmaxStyle softmax = SoftmaxStyle::kPlain;
  Rotation rotation = Rotation::kNone;  // kR3: head_dim is a power of two
};

}  // namespace ferry::converters
