// StatefulDecoder: the programs of a bundle in sequence as one language model that keeps its own
// cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/expert_routes.h"
#include "runner/method.h"

namespace ferry::runner {

class StatefulDecoder {
 public:
  // `pool` must outlive the decoder; the bundle's files stay mapped as long as it lives. kBadInput
  // for programs that do not follow the protocol.
  static Result<StatefulDecoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                                      const MethodOptions& options);
  ~StatefulDecoder();
  StatefulDecoder(StatefulDecoder&&) noexcept;
  StatefulDecoder& operator=(StatefulDecoder&&) noexcept;

  // Runs tokens at positions [position(), position() + n), in calls of at most prefill_length. A
  // sequence that grows beyond the manifest's rope_switch without having been announced is computed
  // again from its start. Position 0 starts a new sequence (call restart()). kUsage beyond the
  // context or for a token outside of the vocabulary. Returns f32 logits: [1,V] of the last token,
  // or [T,V] of all tokens of the last call when the bundle has them. They are valid until the next
  // call. A call of one token allocates nothing once one has been made.
  Result<std::span<const float>> forward(std::span<const int64_t> tokens);
  // `length`: how long the sequence is known to become, where its tokens are not passed at once.
  void restart(int64_t length = 0);
  int64_t position() const;

  // Called for every probe of every program in each call: name, first position, rows, f32 values
  // [rows, width]; integers appear as floats. An empty sink ends it.
  using ProbeSink = std::function<void(const std::string& name, int64_t position, int64_t rows,
                                       std::span<const float> values)>;
  Status set_probe_sink(ProbeSink sink);

  // Sends tokens through these experts instead of those that the routers choose; positions and
  // layers without a route keep the choice of the router. Probes still see that choice. kBadInput
  // unless every route has whole rows of distinct experts of the layer. `routes` must stay until it
  // is replaced; nullptr restores the routers' own choice.
  Status force_experts(const ExpertRoutes* routes);
  // Experts per token, and experts in all; {0, 0} for a layer without routed experts.
  std::pair<int64_t, int64_t> experts_of(int64_t layer) const;

  // Contents of a mutable buffer by its name.
  Result<TensorView> buffer(const std::string& name) const;

 private:
  struct Impl;
  explicit StatefulDecoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::runner
