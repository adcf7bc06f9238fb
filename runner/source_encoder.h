// SourceEncoder runs the text encoder of an encoder-decoder. Tokens of a text go in, keys and
// values of the text decoder's cross-attention come out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/encoder_probes.h"
#include "runner/program_set.h"

namespace ferry::runner {

class SourceEncoder {
 public:
  static bool is_in(const packer::Bundle& bundle);
  // Returns the most tokens of a text, as the manifest states them. kBadInput if the input does not
  // follow the protocol.
  static Result<int64_t> capacity_in(const packer::Bundle& bundle);
  // Returns the token that an answer begins with. kUnsupported where the manifest states none.
  static Result<int64_t> start_token_in(const packer::Bundle& bundle);
  // Loads the encoder, whose outputs are `outputs`. `pool` must outlive it. kBadInput for a program
  // that does not follow the protocol.
  static Result<SourceEncoder> load(const packer::Bundle& bundle, std::span<const PortType> outputs,
                                    ThreadPool& pool, const MethodOptions& options,
                                    MemoryBudget& budget);

  // Encodes the tokens of a text. kUsage for no token, for more than capacity_in(), and for a token
  // outside of the vocabulary.
  Status encode(std::span<const int64_t> tokens);
  // Returns an output in the order of load(), valid until the next encode().
  const TensorView& output(size_t index) const { return chain_.output(index); }

  // The sink is called for every probe in encode(): name, and f32 values [rows, width].
  using ProbeSink = EncoderProbeSink;
  Status set_probe_sink(ProbeSink sink);

 private:
  SourceEncoder(ProgramSet set, MethodChain chain, int64_t capacity)
      : set_(std::move(set)),
        chain_(std::move(chain)),
        capacity_(capacity),
        sink_(std::make_unique<ProbeSink>()) {}

  ProgramSet set_;
  MethodChain chain_;
  int64_t capacity_;
  std::unique_ptr<ProbeSink> sink_;  // on the heap, because methods point to it
  bool observing_ = false;
};

}  // namespace ferry::runner
