// TokenEmbedder is the token embedding of a vision-language bundle, the first step of its text
// decoder. Rows of images replace the embeddings of their placeholder tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/program_set.h"

namespace ferry::runner {

// Values f32 [n, hidden_size] that replace the embeddings of positions [first, first + n).
struct EmbeddingRows {
  int64_t first = 0;
  std::span<const float> values;
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
  // Embeds ids [1,n] at positions [position, position + n). Allocates nothing.
  Status run(const TensorView& ids, int64_t position);
  // Embeds tokens without a position in the sequence, so rows of images are not used.
  Status run(const TensorView& ids);
  // Returns f32 [1,n,hidden_size], valid until the next run().
  const TensorView& output() const { return output_; }

 private:
  TokenEmbedder(MethodChain chain, size_t most_values)
      : chain_(std::move(chain)), most_values_(most_values) {}

  MethodChain chain_;
  size_t most_values_;  // of one call
  TensorView output_;
  std::vector<EmbeddingRows> rows_;
  std::vector<float> merged_;
};

// kUsage for a bundle whose decoder takes tokens, and unless the rows are whole, disjoint, in
// ascending order and inside of `capacity` positions.
Status check_rows(const packer::Bundle& bundle, std::span<const EmbeddingRows> rows,
                  int64_t capacity);

}  // namespace ferry::runner
