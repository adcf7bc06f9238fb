// Decoder: a bundle's programs in sequence as one language model with a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/method.h"

namespace ferry::runner {

// Experts that tokens pass through: layer -> expert ids, row-major [positions, experts per token],
// from position 0 on.
using ExpertRoutes = std::map<int64_t, std::vector<int64_t>>;

class Decoder {
 public:
  // `bundle` and `pool` must outlive the Decoder.
  static Result<Decoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                              const MethodOptions& options);
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
  // [rows, width]; integers appear as floats. Empty to stop.
  using ProbeSink = std::function<void(const std::string& name, int64_t position, int64_t rows,
                                       std::span<const float> values)>;
  Status set_probe_sink(ProbeSink sink);

  // Sends tokens through these experts instead of those that the routers choose; positions and
  // layers without a route keep the choice of the router. Probes still see that choice. kBadInput
  // unless every route has whole rows of distinct experts of the layer. `routes` must stay until it
  // is replaced; nullptr: the routers' own choice.
  Status force_experts(const ExpertRoutes* routes);
  // Experts per token and experts in all, of a layer with routed experts; {0, 0} for others.
  std::pair<int64_t, int64_t> experts_of(int64_t layer) const;

  // Contents of a mutable buffer by its name.
  Result<TensorView> buffer(const std::string& name) const;

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::runner
