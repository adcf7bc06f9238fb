// RopePlaces gives the positions in time, height and width of the tokens of a sequence with images
// (M-RoPE). The three are equal for a token of text. The rows of an image are at one time, and at
// the row and column of their blocks behind the position where the image begins; the text behind
// it goes on behind the larger of its sides. Those of a video are such images one after the other,
// a step apart in time, at the same rows and columns; the text behind it goes on as behind an
// image, and the answer behind the latest place of the prompt. Source: transformers,
// get_rope_index() in models/qwen2_vl, qwen2_5_vl and qwen3_vl.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "runner/token_embedder.h"

namespace ferry::runner {

class RopePlaces {
 public:
  // Sets the images at `position` and behind it. Those before it, which are part of the sequence
  // already, stay: their shapes decide the positions behind them. check_rows() must have accepted
  // the rows.
  void set(std::span<const EmbeddingRows> rows, int64_t position);
  // Begins a new sequence with the images that were set last.
  void restart();

  // Returns the positions of `token`, the number of a token in the sequence.
  std::array<int64_t, 3> at(int64_t token) const;
  // Writes those of `count` tokens from `token` on: [3,count].
  void write(int64_t token, size_t count, int64_t* out) const;

 private:
  struct Image {
    int64_t first, end;     // tokens
    int64_t rows, columns;  // blocks
    float step;             // in time, of the groups of frames of a video
    int64_t start, behind;  // positions of its first row, and of the token behind it
    int64_t last;           // the latest position in time
  };
  void add(const EmbeddingRows& rows);
  void join();
  // Returns the positions of a token of the prompt.
  std::array<int64_t, 3> in_prompt(int64_t token) const;

  std::vector<EmbeddingRows> past_, set_;  // shapes alone: the values may be gone
  std::vector<Image> images_;              // in ascending order
  int64_t prompt_tokens_ = 0;              // 0: answers go on as the text of the prompt
  int64_t answer_ = 0;                     // the position of the token behind these
};

}  // namespace ferry::runner
