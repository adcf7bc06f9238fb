// DraftModel guesses the next tokens of a sequence with a smaller model of the same vocabulary:
// those that it finds likeliest, as long as it is sure enough. (Leviathan et al., "Fast Inference
// from Transformers via Speculative Decoding", 2023.)
#pragma once

#include <memory>
#include <vector>

#include "runner/guesser.h"
#include "runner/stateful_decoder.h"

namespace ferry::runner {

class DraftModel final : public Guesser {
 public:
  // Guesses at most this many tokens at a time.
  static constexpr int64_t kMost = 16;

  // kUsage for a model of another vocabulary than that of `bundle`, and for one that cannot go back
  // in a sequence (StatefulDecoder::check_going_back). Its memory is taken from `budget`. Other
  // errors as for StatefulDecoder::load().
  static Result<std::unique_ptr<Guesser>> load(const packer::Bundle& draft,
                                               const packer::Bundle& bundle, ThreadPool& pool,
                                               const MethodOptions& options, MemoryBudget& budget);

  void restart() override;
  void add(std::span<const int64_t> tokens) override;
  Result<std::span<const int64_t>> guess(int64_t token, size_t limit) override;

 private:
  DraftModel(StatefulDecoder decoder, int64_t vocab)
      : Guesser(kMost), decoder_(std::move(decoder)), vocab_(vocab) {}

  StatefulDecoder decoder_;  // has run tokens_, or fewer
  int64_t vocab_;
  std::vector<int64_t> tokens_, call_;
};

}  // namespace ferry::runner
