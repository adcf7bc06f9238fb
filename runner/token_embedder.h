// TokenEmbedder: the token embedding of a vision-language bundle, as the first step of its text
// decoder. Rows of images take the place of the embeddings of their placeholder tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/program_set.h"

namespace ferry::runner {

// f32 [n, hidden_size] that take the place of the embeddings of positions [first, first + n).
struct EmbeddingRows {
  int64_t first = 0;
  std::span<const float> values;
};

class TokenEmbedder {
 public:
  // Whether the text decoder of the bundle takes embeddings.
  static bool is_in(const packer::Bundle& bundle);
  // `method` of the component, for up to `tokens` ids of dtype `ids`. `set` must outlive the
  // result.
  static Result<TokenEmbedder> bind(ProgramSet& set, std::string_view method, DType ids,
                                    int64_t tokens);

  // From here on. The values must stay until they are replaced.
  void set_rows(std::span<const EmbeddingRows> rows);
  // Embeds ids [1,n] at positions [position, position + n). Allocates nothing.
  Status run(const TensorView& ids, int64_t position);
  // Embeds tokens that have no position in the sequence: no rows of images take part.
  Status run(const TensorView& ids);
  // f32 [1,n,hidden_size], until the next run().
  const TensorView& output() const { return output_; }

 private:
  TokenEmbedder(MethodChain chain, size_t most_values)
      : chain_(std::move(chain)), most_values_(most_values) {}

  MethodChain chain_;
  size_t most_values_;  // of a call
  TensorView output_;
  std::vector<EmbeddingRows> rows_;
  std::vector<float> merged_;
};

// kUsage for a bundle whose decoder takes tokens, and unless the rows are whole, disjoint, in
// ascending order and inside of `capacity` positions.
Status check_rows(const packer::Bundle& bundle, std::span<const EmbeddingRows> rows,
                  int64_t capacity);

}  // namespace ferry::runner
