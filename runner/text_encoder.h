// TextEncoder runs the text encoder of a bundle. The tokens of a whole text go in. States come out,
// and one vector if the bundle makes one, or the outputs of a classifier.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/program_set.h"

namespace ferry::runner {

struct TextTokens {
  std::vector<int64_t> ids = {};
  std::vector<int64_t> types = {};  // one for each token; empty: all are 0
};

// Views of the encoder's memory, valid until its next call.
struct EncodedText {
  std::span<const float> states;     // f32 [T,width]
  std::span<const float> embedding;  // f32 [texts, embedding_width]; empty if the bundle makes none
  // Outputs of a classifier, f32 [texts, labels], or [T, labels] where tokens have labels.
  std::span<const float> logits;
};

class TextEncoder {
 public:
  struct Sizes {
    int64_t tokens = 0;  // tokens of the longest text
    int64_t vocabulary = 0;
    int64_t width = 0;            // elements of a state
    int64_t embedding_width = 0;  // 0 if the bundle makes no vector of a text
    // The tokens of a call of several texts; 0 if the bundle's programs take one text only.
    int64_t texts_tokens = 0;
    int64_t labels = 0;      // 0 if the bundle is no classifier
    bool per_token = false;  // whether tokens have labels, not texts
    bool takes_types =
        false;  // whether types tell the texts of a pair apart; else they are ignored
  };
  // Returns the sizes that the manifest states. Error messages begin with `path`. kBadInput if its
  // inputs and outputs do not follow the protocol, kUnsupported for a bundle of another program
  // kind.
  static Result<Sizes> sizes_in(const packer::Manifest& manifest, const std::string& path);
  // `pool` must outlive the encoder. Errors are those of sizes_in(), and kBadInput for a program
  // that does not follow the protocol. The memory is taken from `budget`, by default one of
  // MethodOptions::memory.
  static Result<TextEncoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                                  const MethodOptions& options, MemoryBudget& budget);
  static Result<TextEncoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                                  const MethodOptions& options);

  const Sizes& sizes() const { return sizes_; }

  // kUsage if there are no tokens or more than sizes().tokens, and for a token outside of the
  // vocabulary. `types` is empty, or has one for each token.
  Result<EncodedText> encode(std::span<const int64_t> tokens, std::span<const int64_t> types = {});

  // Encodes texts in one call: states of all tokens, one text behind another, and an embedding for
  // each text. kUsage for no texts, a text of no tokens, more than sizes().texts_tokens in all, and
  // a token outside of the vocabulary.
  Result<EncodedText> encode_texts(std::span<const TextTokens> texts);

  // The sink is called for every probe in each call: name, and f32 values [T, width].
  using ProbeSink = std::function<void(const std::string& name, std::span<const float> values)>;
  Status set_probe_sink(ProbeSink sink);

 private:
  TextEncoder(ProgramSet set, MethodChain chain, std::optional<MethodChain> texts,
              const Sizes& sizes)
      : set_(std::move(set)),
        chain_(std::move(chain)),
        texts_(std::move(texts)),
        sink_(std::make_unique<ProbeSink>()),
        sizes_(sizes) {}

  Result<EncodedText> outputs_of(const MethodChain& chain, size_t tokens, size_t texts) const;

  ProgramSet set_;
  MethodChain chain_;
  std::optional<MethodChain> texts_;
  // The inputs of the call of several texts.
  std::vector<int64_t> tokens_, text_ids_, position_ids_, last_tokens_, types_;
  std::unique_ptr<ProbeSink> sink_;  // on the heap, because methods point to it
  bool observing_ = false;
  Sizes sizes_;
};

}  // namespace ferry::runner
