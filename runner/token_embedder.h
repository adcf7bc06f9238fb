// TokenEmbedder is the token embedding of a vision-language bundle, the first step of its text
// decoder. Rows of images replace the embeddings of their placeholder tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "runner/method.h"
#include "runner/program_set.h"

namespace ferry::runner {

// The most places that groups of frames of a video may be apart in time.
inline constexpr float kMostFrameStep = 1e9F;

// Values f32 [n, width] that replace the embeddings of positions [first, first + n). The width is
// embedding_width(); where the outputs of K layers get features added too, these are behind the
// embedding in each row, and the width is (1 + K) hidden_size.
struct EmbeddingRows {
  int64_t first = 0;
  std::span<const float> values;
  int64_t grid_rows = 0, grid_columns = 0;  // of an image that has places in three dimensions
  // Where all tokens of a prompt attend to each other, the position behind its last one, else 0.
  int64_t prompt_end = 0;
  bool is_sound = false;  // rows of a sound are as tokens of text: they see those before them
  // For rows of a video, the groups of frames, each with the rows and columns above, and how far
  // they are apart in time.
  int64_t grid_frames = 1;
  float frame_step = 1;
  // For a video whose groups are apart in time, the tokens of the prompt: those behind them are
  // placed behind all its places.
  int64_t prompt_tokens = 0;
};

class TokenEmbedder {
 public:
  // Returns whether the text decoder of the bundle takes embeddings.
  static bool is_in(const packer::Bundle& bundle);
  // Binds `method` of the component, for up to `tokens` ids of dtype `ids`. `set` must outlive the
  // result.
  static Result<TokenEmbedder> bind(ProgramSet& set, std::string_view method, DType ids,
                                    int64_t tokens);

  // Sets the rows for later calls. The values must stay until they are replaced.
  void set_rows(std::span<const EmbeddingRows> rows);
  // Sets the width of the rows, at least that of embeddings, which is the width without this call.
  void set_row_width(int64_t width) { row_width_ = width; }
  // Embeds ids [1,n] at positions [position, position + n). Allocates nothing.
  Status run(const TensorView& ids, int64_t position);
  // Embeds tokens without a position in the sequence, so rows of images are not used.
  Status run(const TensorView& ids);
  // Returns f32 [1,n,embedding_width()], valid until the next run().
  const TensorView& output() const { return output_; }

 private:
  TokenEmbedder(MethodChain chain, size_t most_values)
      : chain_(std::move(chain)), most_values_(most_values) {}

  MethodChain chain_;
  size_t most_values_;  // of one call
  TensorView output_;
  std::vector<EmbeddingRows> rows_;
  int64_t row_width_ = 0;  // 0: that of the embeddings
  std::vector<float> merged_;
};

// kUsage for a bundle whose decoder takes tokens, and unless the rows are whole, disjoint, in
// ascending order and inside of `capacity` positions; where images have places in three dimensions,
// also unless each has its own; where they have such places or state their own, also unless there
// is a token behind the one before.
Status check_rows(const packer::Bundle& bundle, std::span<const EmbeddingRows> rows,
                  int64_t capacity);

// Returns the width of the embeddings that the text decoder of the bundle takes: hidden_size, or
// more where they state their places (kEmbeddingsPort).
int64_t embedding_width(const packer::Manifest& manifest);
// Returns whether embeddings state their places.
bool has_placed_rows(const packer::Manifest& manifest);
// Returns the width of the rows that the text decoder of the bundle takes; see EmbeddingRows.
int64_t row_width(const packer::Manifest& manifest);
// Returns whether the images of the text decoder have places in three dimensions.
bool has_places(const packer::Manifest& manifest);
// Returns whether the first layer of the text decoder takes embeddings as they are, so that no
// program has a probe for what it takes.
bool takes_plain_rows(const packer::Manifest& manifest);
// Returns the number K of layers whose outputs get features of images added.
int64_t deepstack_layers(const packer::Manifest& manifest);

// The component that turns tokens into the decoder's inputs.
struct Embedding {
  ProgramSet set;
  TokenEmbedder embedder;
};

// Returns nullptr if the bundle has no such component.
Result<std::unique_ptr<Embedding>> load_embedding(const packer::Bundle& bundle, ThreadPool& pool,
                                                  const MethodOptions& options,
                                                  MemoryBudget& budget);

}  // namespace ferry::runner
