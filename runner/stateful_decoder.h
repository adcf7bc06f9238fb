// StatefulDecoder runs the programs of a bundle in sequence as one language model. The programs
// keep the caches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/decoder.h"
#include "runner/guesser.h"
#include "runner/method.h"

namespace ferry::runner {

class StatefulDecoder final : public Decoder {
 public:
  // `pool` must outlive the decoder. The bundle's files stay mapped while the decoder lives. The
  // memory is taken from `budget`, by default one of MethodOptions::memory. advance() runs the
  // guesses of `guesser`, if there is one. kBadInput for programs that do not follow the protocol,
  // kUsage for a guesser if they do not allow it.
  static Result<StatefulDecoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                                      const MethodOptions& options,
                                      std::unique_ptr<Guesser> guesser, MemoryBudget& budget);
  static Result<StatefulDecoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                                      const MethodOptions& options);
  ~StatefulDecoder() override;
  StatefulDecoder(StatefulDecoder&&) noexcept;
  StatefulDecoder& operator=(StatefulDecoder&&) noexcept;

  // Runs the tokens in calls of at most prefill_length. A sequence that grows beyond the manifest's
  // rope_switch without having been announced is recomputed from its start. Returns [1,V] of the
  // last token, or [T,V] of all tokens of the last call if the programs give them.
  Result<std::span<const float>> forward(std::span<const int64_t> tokens) override;
  // Runs one token in each of several decoders of one bundle, as forward() does in each. logits[i]
  // is the result of decoders[i].
  static Status forward_together(std::span<StatefulDecoder* const> decoders,
                                 std::span<const int64_t> tokens,
                                 std::span<std::span<const float>> logits);
  Result<std::optional<int64_t>> advance(int64_t token, const Choose& choose) override;
  std::optional<LookaheadCounts> lookahead_counts() const override;
  // Continues the sequence at an earlier position, if check_going_back() succeeds.
  void go_back(int64_t position);
  // Returns kUsage, with `who` in the message, for programs that cannot take back tokens: those
  // with a recurrent state, and those with two sets of RoPE factors.
  Status check_going_back(const std::string& who) const;
  // Returns the most tokens that go_back() may take back at a time.
  int64_t most_taken_back() const;
  int64_t tokens_together(int64_t position) const override;
  Status set_image_rows(std::span<const EmbeddingRows> rows) override;
  Status set_sound(std::span<const float> features) override;
  Status set_source(std::span<const int64_t> tokens) override;
  void restart(int64_t length = 0) override;
  int64_t position() const override;
  int64_t capacity() const override;
  void set_logits_sink(LogitsSink sink) override;
  Status set_probe_sink(ProbeSink sink) override;
  Status force_experts(const ExpertRoutes* routes) override;
  std::pair<int64_t, int64_t> experts_of(int64_t layer) const override;
  Result<TensorView> buffer(const std::string& name) const override;
  Result<std::vector<StateTensor>> state() const override;
  Status restore(std::span<const int64_t> tokens, size_t kept, const ReadState& read) override;

 private:
  struct Impl;
  // Checks that the first `kept` of `tokens` tokens may be continued, in a ring.
  Status check_ring(int64_t tokens, int64_t kept) const;
  explicit StatefulDecoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::runner
