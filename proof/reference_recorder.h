// Records the outputs of a model for a prompt as the tensors of a reference file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor_source.h"
#include "proof/encoder_input.h"
#include "proof/prompt_images.h"
#include "proof/reference.h"
#include "runner/decoder.h"

namespace ferry::proof {

// Tokens at the positions from 0 on. `continuation` is given, not chosen.
struct RecordedPrompt {
  std::string name;
  std::vector<int64_t> tokens;
  std::vector<int64_t> continuation;
  runner::ExpertRoutes routes =
      {};  // experts that tokens pass through; routers choose for tokens without routes
  PromptImages images = {};
  EncoderInput encoder_input = {};
  std::vector<int64_t> types = {};  // of the tokens, where they tell texts of a pair apart
  // Returns the tokens that are executed: all but the last one of the continuation.
  std::vector<int64_t> executed() const;
};

// Rows must be added in ascending order of positions. A position that has a row keeps it.
class PromptRecorder {
 public:
  // `prompt` must outlive the recorder.
  PromptRecorder(const RecordedPrompt& prompt, int64_t vocab_size)
      : prompt_(&prompt), vocab_size_(vocab_size) {}

  void keep_probe(const std::string& name, int64_t position, int64_t rows,
                  std::span<const float> values);
  void keep_logits(int64_t position, std::span<const float> rows);
  // Keeps the contents of a cache or state after the prompt, if they are f32.
  void keep_cache(const ReferenceTensor& tensor, const runner::TensorView& view);

  // Keeps a tensor that is written unchanged.
  void keep_tensor(const std::string& name, const Shape& shape, std::vector<float> values);

  // Adds what was kept to `out` under the prompt's name: logits, the continuation as greedy_ids,
  // its greedy_logits, hidden states, caches and routers.
  void write(MemorySource& out) const;

 private:
  using Rows = std::vector<float>;
  static void append(Rows& all, int64_t position, size_t width, std::span<const float> values);
  int64_t tokens() const { return static_cast<int64_t>(prompt_->tokens.size()); }
  void write_logits(const std::string& prefix, MemorySource& out) const;
  void write_greedy(const std::string& prefix, MemorySource& out) const;
  void write_images(const std::string& prefix, MemorySource& out) const;
  void write_probe(const std::string& name, const std::string& prefix, MemorySource& out) const;
  std::vector<int64_t> route_of(const std::string& name, const Rows& chosen) const;

  const RecordedPrompt* prompt_;
  int64_t vocab_size_;
  std::map<std::string, std::pair<size_t, Rows>> probes_;  // width and rows
  Rows logits_;
  // Caches and other whole tensors.
  std::map<std::string, std::pair<Shape, std::vector<float>>> caches_;
};

// Runs every prompt token by token. Messages call the result `name`.
Result<std::unique_ptr<TensorSource>> record_reference(runner::Decoder& decoder,
                                                       const packer::Manifest& manifest,
                                                       const std::vector<RecordedPrompt>& prompts,
                                                       const std::string& name);

}  // namespace ferry::proof
