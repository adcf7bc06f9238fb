// StaticDecoder runs a bundle of static programs as one language model. docs/static_programs.md
// describes the programs and the modes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/decoder.h"
#include "runner/method.h"

namespace ferry::runner {

class StaticDecoder final : public Decoder {
 public:
  // `pool` must outlive the decoder. The bundle's files stay mapped while the decoder lives.
  // kBadInput for programs that do not follow the protocol, kUnsupported for unsupported dtypes,
  // kUsage for a mode that the bundle does not have.
  static Result<StaticDecoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                                    const MethodOptions& options, const DecodeOptions& decode = {});
  ~StaticDecoder() override;
  StaticDecoder(StaticDecoder&&) noexcept;
  StaticDecoder& operator=(StaticDecoder&&) noexcept;

  // Returns the logits [V] of the last token.
  Result<std::span<const float>> forward(std::span<const int64_t> tokens) override;
  int64_t tokens_together(int64_t position) const override;
  Status set_image_rows(std::span<const EmbeddingRows> rows) override;
  Result<std::optional<int64_t>> advance(int64_t token, const Choose& choose) override;
  void restart(int64_t length = 0) override;
  int64_t position() const override;
  // Returns the context minus the tokens of a call of kv_forward, which is the size of the caches.
  int64_t capacity() const override;
  std::optional<LookaheadCounts> lookahead_counts() const override;
  void set_logits_sink(LogitsSink sink) override;
  // Rows of padding and guesses are not delivered.
  Status set_probe_sink(ProbeSink sink) override;
  Status force_experts(const ExpertRoutes* routes) override;
  std::pair<int64_t, int64_t> experts_of(int64_t layer) const override;
  // Returns the contents of the buffer with this name in a stateful program of the model: keys and
  // values of the positions so far, f32 [1,position(),heads,head_dim], not rotated by R3; or a
  // state. Valid until the next call of buffer().
  Result<TensorView> buffer(const std::string& name) const override;

 private:
  struct Impl;
  explicit StaticDecoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::runner
