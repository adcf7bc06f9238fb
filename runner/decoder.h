// load_decoder() loads the programs of a bundle as one language model, whatever their kind: tokens
// go in, logits come out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/expert_routes.h"
#include "runner/method.h"
#include "runner/token_embedder.h"

namespace ferry::runner {

// How a static program decodes. Every mode gives the same tokens if a call finds in the caches the
// numbers that it computed itself: with caches of f32, or programs that round before they attend.
enum class DecodeMode {
  kKv,         // every token runs in kv_forward, but for images whose rows attend to each other
  kHybrid,     // prompts run in prefill_forward
  kLookahead,  // like kHybrid, with several tokens from one call of kv_forward
};

inline constexpr std::string_view kDecodeModeNames[] = {"kv", "hybrid", "lookahead"};
constexpr std::string_view name_of(DecodeMode mode) {
  return kDecodeModeNames[static_cast<int>(mode)];
}

// Options of the guesses of the next tokens (runner/static_program/lookahead.h).
struct LookaheadOptions {
  int64_t ngram = 3, window = 2, gcap = 2;
  uint64_t seed = 0;  // seed of the first guesses; no effect on the output
};

struct DecodeOptions {
  // The default is kHybrid if a static program has prefill_forward, else kKv.
  std::optional<DecodeMode> mode = {};
  LookaheadOptions lookahead = {};
  // Guesses of the next tokens, which have no effect on the output. They are for stateful programs
  // with the logits of all tokens. One of two: the most tokens that a call guesses from earlier
  // ones (runner/prompt_lookup.h; 0 for none), or a model that guesses them (runner/draft_model.h),
  // whose bundle must outlive load_decoder().
  int64_t lookup = 0;
  const packer::Bundle* draft = nullptr;
};
inline constexpr int64_t kMostLookup = 64;

// Counts the tokens that lookahead or lookup has given.
struct LookaheadCounts {
  int64_t generated = 0;  // all tokens, without those that prompts gave
  int64_t accepted = 0;   // tokens that took no call of their own
};

// The contents of a mutable buffer after the sequence so far, in the dtype of the program.
struct StateTensor {
  std::string name;
  TensorView values;
  bool is_cache = false;  // has a row for each position in dimension 1, after a dimension of 1
  int64_t most_rows = 0;  // of a cache: those that it has where no sequence has more
};

// A decoder is move-only, runs one sequence at a time, and is not thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // Runs tokens at positions [position(), position() + n). Position 0 starts a new sequence (call
  // restart()). kUsage beyond capacity() or for a token outside of the vocabulary. The result ends
  // with the f32 logits [V] of the last token, and is valid until the next call. A call of one
  // token allocates nothing after the first such call.
  virtual Result<std::span<const float>> forward(std::span<const int64_t> tokens) = 0;

  // Replaces the embeddings of later tokens by rows of images; EmbeddingRows::first is a position.
  // The values must stay until they are replaced. kUsage if rows are not whole, disjoint, ascending
  // and inside of capacity(), and for a bundle whose decoder takes tokens.
  virtual Status set_image_rows(std::span<const EmbeddingRows> rows) = 0;

  // Gives a model of speech its sound, the input_features f32 [mels,frames] or the input_values f32
  // [samples] of its audio encoder, for this and later sequences. Such a model runs no token
  // without (kUsage). kUsage for another number of values, and for a bundle without an audio
  // encoder. Probes of the encoder are delivered in this call, with all of its rows.
  virtual Status set_sound(std::span<const float> features);

  // Gives an encoder-decoder the tokens of the text that its encoder reads, for this and later
  // sequences. Such a model runs no token without (kUsage). kUsage for a bundle without a source
  // encoder, and as SourceEncoder::encode(). Probes are delivered as by set_sound().
  virtual Status set_source(std::span<const int64_t> tokens);

  // Returns how many tokens from `position` on must be passed to one call of forward(): the rows of
  // an image that begins there, if they attend to each other; elsewhere 1.
  virtual int64_t tokens_together(int64_t /*position*/) const { return 1; }

  // Runs `token`, and gives the logits [V] after it to `choose`, which returns the next token, or
  // nothing to end. If lookahead or lookup has already computed the logits after that token, it
  // continues with them; position() counts up before each call of `choose`. Returns the last chosen
  // token, which has not been run, or nothing. Errors as for forward(), and those of `choose`.
  using Choose = std::function<Result<std::optional<int64_t>>(std::span<const float> logits)>;
  virtual Result<std::optional<int64_t>> advance(int64_t token, const Choose& choose);

  // `length` is the known final length of the sequence, if its tokens are not passed at once.
  virtual void restart(int64_t length = 0) = 0;
  virtual int64_t position() const = 0;
  // Returns the number of positions that a sequence can have.
  virtual int64_t capacity() const = 0;
  // Returns nullopt without lookahead and lookup.
  virtual std::optional<LookaheadCounts> lookahead_counts() const { return std::nullopt; }

  // The sink is called in forward() for the logits of each call: first position, rows, f32 values
  // [rows, V]. An empty sink ends the calls.
  using LogitsSink =
      std::function<void(int64_t position, int64_t rows, std::span<const float> values)>;
  virtual void set_logits_sink(LogitsSink sink) = 0;

  // The sink is called for every probe of every program in each call: name, first position, rows,
  // f32 values [rows, width]; integers appear as floats. If the decoder takes embeddings as
  // they are, these are delivered as hidden_states.0, for which no program has a probe. An empty
  // sink ends the calls.
  using ProbeSink = std::function<void(const std::string& name, int64_t position, int64_t rows,
                                       std::span<const float> values)>;
  virtual Status set_probe_sink(ProbeSink sink) = 0;

  // Sends tokens through these experts instead of those that the routers choose. Positions and
  // layers without a route keep the router's choice. Probes still see that choice. kBadInput unless
  // every route has whole rows of distinct experts of the layer. `routes` must stay until it is
  // replaced; nullptr restores the routers' own choice.
  virtual Status force_experts(const ExpertRoutes* routes) = 0;
  // Returns experts per token, and experts in all; {0, 0} for a layer without routed experts.
  virtual std::pair<int64_t, int64_t> experts_of(int64_t layer) const = 0;

  // Returns the contents of a mutable buffer by its name (KV caches of f16 and i8 in f32), or their
  // equivalent in a static program: KV caches are [1,position() or more,heads,head_dim]. Valid
  // until the next call of buffer() or forward(). kUsage if there is no such buffer.
  virtual Result<TensorView> buffer(const std::string& name) const = 0;

  // Returns the mutable buffers; caches have position() rows. Valid until the next call.
  // kUnsupported for programs whose caches are inputs.
  virtual Result<std::vector<StateTensor>> state() const;
  // Continues after the first `kept` of `tokens`, with what state() returned after all of them:
  // `read` gives the first `rows` rows of a cache, or all bytes of another buffer. kUsage if the
  // programs cannot take back the others; kBadInput for tokens outside of the vocabulary, kUsage
  // beyond capacity().
  using ReadState =
      std::function<Result<std::vector<std::byte>>(const StateTensor& buffer, int64_t rows)>;
  virtual Status restore(std::span<const int64_t> tokens, size_t kept, const ReadState& read);

 protected:
  Decoder() = default;
  Decoder(Decoder&&) = default;
  Decoder& operator=(Decoder&&) = default;
};

// `pool` must outlive the decoder. The bundle's files stay mapped while the decoder lives.
// kBadInput for programs that do not follow the protocol of their kind, kUsage for a mode that the
// bundle does not have, and for lookup in programs that cannot go back in a sequence.
Result<std::unique_ptr<Decoder>> load_decoder(const packer::Bundle& bundle, ThreadPool& pool,
                                              const MethodOptions& options,
                                              const DecodeOptions& decode = {});

// The functions below are for implementations.
// wrong_mode() returns kUsage for a mode of a bundle whose programs are not static.
Failure wrong_mode(const packer::Bundle& bundle, DecodeMode mode);
inline constexpr const char* kEmbeddingsProbe = "hidden_states.0";
// Checks the numbers of the manifest that loops and divisions rely on.
Status check_model_sizes(const packer::Bundle& bundle);
// Returns kUsage unless the tokens are in the vocabulary and end within `capacity`.
Status check_tokens(std::span<const int64_t> tokens, int64_t vocab, int64_t position,
                    int64_t capacity);

}  // namespace ferry::runner
