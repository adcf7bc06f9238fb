// Decoder: a bundle's programs in sequence as one language model with a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/method.h"

namespace ferry {

class Decoder {
 public:
  // `bundle` and `pool` must outlive the Decoder.
  static Result<Decoder> load(const Bundle& bundle, ThreadPool& pool, const MethodOptions& options);
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  // Runs tokens at positions [position(), position() + n), in calls of at most prefill_length.
  // Where they take a sequence beyond the manifest's rope_switch that was not announced to get
  // there, all of it is computed again. Position 0 starts a new sequence (call restart()). kUsage
  // beyond the context or for a token outside the vocabulary. Logits are f32: [1,V] of the last
  // token, or [T,V] of all tokens of the last call when the bundle has them.
  Result<std::vector<float>> forward(std::span<const int64_t> tokens);
  // `length`: how long the sequence is known to become, where its tokens are not given at once.
  void restart(int64_t length = 0);
  int64_t position() const;

  // Called for every probe of every program in each call: name, first position, rows, f32 values
  // [rows, width]. Empty to stop.
  using ProbeSink = std::function<void(const std::string& name, int64_t position, int64_t rows,
                                       std::span<const float> values)>;
  Status set_probe_sink(ProbeSink sink);

  // Contents of a mutable buffer by its name.
  Result<TensorView> buffer(const std::string& name) const;

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
