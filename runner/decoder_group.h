// DecoderGroup runs several sequences of one bundle at a time. Each has its own caches; one pass
// over the weights serves a token of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "runner/stateful_decoder.h"

namespace ferry::runner {

inline constexpr size_t kMostSequences = 64;

class DecoderGroup {
 public:
  // Loads `count` decoders within one budget of planned memory. Errors as for load_decoder(), and
  // kUsage for static programs and for a count outside of 1 to kMostSequences.
  static Result<DecoderGroup> load(const packer::Bundle& bundle, ThreadPool& pool,
                                   const MethodOptions& options, size_t count);

  size_t size() const { return decoders_.size(); }
  Decoder& sequence(size_t i) { return decoders_[i]; }

  struct Turn {
    size_t sequence;
    int64_t token;
    std::span<const float> logits = {};  // set by forward(); as Decoder::forward()
  };
  // Runs one token in each of some sequences, no sequence twice. The logits have the bits that
  // Decoder::forward() gives.
  Status forward(std::span<Turn> turns);

 private:
  DecoderGroup() = default;
  std::vector<StatefulDecoder> decoders_;
};

}  // namespace ferry::runner
