// TextEncoder runs the text encoder of a bundle. The tokens of a whole text go in. States come out,
// and one vector if the bundle makes one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/program_set.h"

namespace ferry::runner {

// Views of the encoder's memory, valid until its next call.
struct EncodedText {
  std::span<const float> states;     // f32 [T,width]
  std::span<const float> embedding;  // f32 [embedding_width]; empty if the bundle makes none
};

class TextEncoder {
 public:
  struct Sizes {
    int64_t tokens = 0;  // tokens of the longest text
    int64_t vocabulary = 0;
    int64_t width = 0;            // elements of a state
    int64_t embedding_width = 0;  // 0 if the bundle makes no vector of a text
  };
  // Returns the sizes that the manifest states. Error messages begin with `path`. kBadInput if its
  // inputs and outputs do not follow the protocol, kUnsupported for a bundle of another program
  // kind.
  static Result<Sizes> sizes_in(const packer::Manifest& manifest, const std::string& path);
  // `pool` must outlive the encoder. Errors are those of sizes_in(), and kBadInput for a program
  // that does not follow the protocol.
  static Result<TextEncoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                                  const MethodOptions& options);

  const Sizes& sizes() const { return sizes_; }

  // kUsage if there are no tokens or more than sizes().tokens, and for a token outside of the
  // vocabulary.
  Result<EncodedText> encode(std::span<const int64_t> tokens);

  // The sink is called for every probe in each call: name, and f32 values [T, width].
  using ProbeSink = std::function<void(const std::string& name, std::span<const float> values)>;
  Status set_probe_sink(ProbeSink sink);

 private:
  TextEncoder(ProgramSet set, MethodChain chain, const Sizes& sizes)
      : set_(std::move(set)),
        chain_(std::move(chain)),
        sink_(std::make_unique<ProbeSink>()),
        sizes_(sizes) {}

  ProgramSet set_;
  MethodChain chain_;
  std::unique_ptr<ProbeSink> sink_;  // on the heap, because methods point to it
  bool observing_ = false;
  Sizes sizes_;
};

}  // namespace ferry::runner
