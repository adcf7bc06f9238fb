// The input and the output of `ferry embed`: texts as the tokens that the encoder takes, and the
// file of vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/atomic_file.h"
#include "core/result.h"
#include "packer/bundle_reader.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::cli {

struct EmbedTextOptions {
  std::optional<std::string> prompt;  // what precedes texts
  std::string prompt_name;            // a prompt of config_sentence_transformers.json instead
  bool truncate = false;              // cut texts that are too long
};

class EmbedInput {
 public:
  // Without a prompt and a name the prompt is the default of the bundle, if any. `most`: tokens of
  // the longest text. `is_stripped`: texts lose white space at both ends, as sentence-transformers
  // does before it encodes them.
  static Result<EmbedInput> open(const packer::Bundle& bundle, const EmbedTextOptions& options,
                                 int64_t most, bool is_stripped);

  Result<std::vector<int64_t>> tokens_of(const std::string& text);

 private:
  EmbedInput(text::Tokenizer tokenizer, std::string prompt, size_t most, bool is_stripped)
      : tokenizer_(std::move(tokenizer)),
        prompt_(std::move(prompt)),
        most_(most),
        is_stripped_(is_stripped) {}

  text::Tokenizer tokenizer_;
  std::string prompt_;
  size_t most_;
  bool is_stripped_;
  std::optional<text::Tokenizer::Cut> cut_;  // of texts that are too long
};

// Vectors as the rows of one f32 array in NumPy's file format (.npy, version 1.0).
class VectorFile {
 public:
  // A new file; nothing is left of it unless it is finished. kUsage unless the name ends in .npy,
  // kIo where the file exists or cannot be made.
  static Result<VectorFile> create(const std::string& path, int64_t width);

  // `row` has as many values as the file is wide.
  Status add(std::span<const float> row);
  Status finish();
  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }

 private:
  VectorFile(AtomicFile file, int64_t width) : file_(std::move(file)), width_(width) {}

  AtomicFile file_;
  int64_t width_, rows_ = 0;
};

}  // namespace ferry::cli
