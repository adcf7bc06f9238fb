// load_decoder: the programs of a bundle as one language model, whatever their kind: tokens go in,
// logits come out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/expert_routes.h"
#include "runner/method.h"
#include "runner/token_embedder.h"

namespace ferry::runner {

// How a static program decodes. Every mode gives the same tokens if a call finds in the caches the
// numbers that it computed itself: with caches of f32, or programs that round before they attend.
enum class DecodeMode {
  kKv,         // every token by kv_forward
  kHybrid,     // prompts by prefill_forward
  kLookahead,  // as kHybrid, and several tokens from one call of kv_forward
};

inline constexpr std::string_view kDecodeModeNames[] = {"kv", "hybrid", "lookahead"};
constexpr std::string_view name_of(DecodeMode mode) {
  return kDecodeModeNames[static_cast<int>(mode)];
}

// Guesses of the tokens that follow (runner/static_program/lookahead.h).
struct LookaheadOptions {
  int64_t ngram = 3, window = 2, gcap = 2;
  uint64_t seed = 0;  // of the first guesses; has no effect on the output
};

struct DecodeOptions {
  // Without a value: kHybrid where a static program has prefill_forward, else kKv.
  std::optional<DecodeMode> mode = {};
  LookaheadOptions lookahead = {};
};

// Tokens that lookahead has given.
struct LookaheadCounts {
  int64_t generated = 0;  // in all, beside those that prompts gave
  int64_t accepted = 0;   // those of them that took no call of their own
};

// Move-only, one sequence at a time, not thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // Runs tokens at positions [position(), position() + n). Position 0 starts a new sequence (call
  // restart()). kUsage beyond capacity() or for a token outside of the vocabulary. The result ends
  // with the f32 logits [V] of the last token, and is valid until the next call. A call of one
  // token allocates nothing once one has been made.
  virtual Result<std::span<const float>> forward(std::span<const int64_t> tokens) = 0;

  // From here on, rows of images take the place of the embeddings of tokens; EmbeddingRows::first
  // is a position. The values must stay until they are replaced. kUsage where rows are not whole,
  // disjoint, ascending and inside of capacity(), and for a bundle whose decoder takes tokens.
  virtual Status set_image_rows(std::span<const EmbeddingRows> rows) = 0;

  // Runs `token`, and gives the logits [V] after it to `choose`, which returns the token that
  // follows, or nothing to end. Lookahead then goes on with the logits after that token where it
  // has computed them already; position() counts up before each. Returns the last token that was
  // chosen, which has not been run, or nothing. Errors as for forward(), and those of `choose`.
  using Choose = std::function<Result<std::optional<int64_t>>(std::span<const float> logits)>;
  virtual Result<std::optional<int64_t>> advance(int64_t token, const Choose& choose);

  // `length`: how long the sequence is known to become, where its tokens are not passed at once.
  virtual void restart(int64_t length = 0) = 0;
  virtual int64_t position() const = 0;
  // The positions that a sequence can have.
  virtual int64_t capacity() const = 0;
  // Nothing in other modes.
  virtual std::optional<LookaheadCounts> lookahead_counts() const { return std::nullopt; }

  // Called in forward() for the logits that each of its calls gives: first position, rows, f32
  // values [rows, V]. An empty sink ends it.
  using LogitsSink =
      std::function<void(int64_t position, int64_t rows, std::span<const float> values)>;
  virtual void set_logits_sink(LogitsSink sink) = 0;

  // Called for every probe of every program in each call: name, first position, rows, f32 values
  // [rows, width]; integers appear as floats. Where the decoder takes embeddings, they are
  // delivered as hidden_states.0, which no program has a probe for. An empty sink ends it.
  using ProbeSink = std::function<void(const std::string& name, int64_t position, int64_t rows,
                                       std::span<const float> values)>;
  virtual Status set_probe_sink(ProbeSink sink) = 0;

  // Sends tokens through these experts instead of those that the routers choose; positions and
  // layers without a route keep the choice of the router. Probes still see that choice. kBadInput
  // unless every route has whole rows of distinct experts of the layer. `routes` must stay until it
  // is replaced; nullptr restores the routers' own choice.
  virtual Status force_experts(const ExpertRoutes* routes) = 0;
  // Experts per token, and experts in all; {0, 0} for a layer without routed experts.
  virtual std::pair<int64_t, int64_t> experts_of(int64_t layer) const = 0;

  // Contents of a mutable buffer by its name (KV caches of f16 and i8 in f32), or what a static
  // program has instead: KV caches are [1,position() or more,heads,head_dim]. Valid until the next
  // call of buffer() or forward(). kUsage if there is none.
  virtual Result<TensorView> buffer(const std::string& name) const = 0;

 protected:
  Decoder() = default;
  Decoder(Decoder&&) = default;
  Decoder& operator=(Decoder&&) = default;
};

// `pool` must outlive the decoder; the bundle's files stay mapped as long as it lives. kBadInput
// for programs that do not follow the protocol of their kind, kUsage for a mode that the bundle
// does not have.
Result<std::unique_ptr<Decoder>> load_decoder(const packer::Bundle& bundle, ThreadPool& pool,
                                              const MethodOptions& options,
                                              const DecodeOptions& decode = {});

// For implementations.
// kUsage: a mode of a bundle whose programs are not static.
Failure wrong_mode(const packer::Bundle& bundle, DecodeMode mode);
inline constexpr const char* kEmbeddingsProbe = "hidden_states.0";
// The numbers of the manifest that loops and divisions rely on.
Status check_model_sizes(const packer::Bundle& bundle);
// kUsage unless the tokens are of the vocabulary and end within `capacity`.
Status check_tokens(std::span<const int64_t> tokens, int64_t vocab, int64_t position,
                    int64_t capacity);

}  // namespace ferry::runner
