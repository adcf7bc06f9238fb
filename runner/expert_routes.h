// ExpertRouter sends tokens through given experts instead of those that a program's routers choose.
// The program stays unchanged: results of the routers are replaced while a method executes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runner/program_set.h"

namespace ferry::runner {

// The experts that tokens pass through: layer -> expert ids, row-major [positions, experts per
// token], from position 0 on.
using ExpertRoutes = std::map<int64_t, std::vector<int64_t>>;

// A probe of a loaded method.
struct MethodProbe {
  Method* method = nullptr;
  std::string_view name;
  int32_t value = -1;
};

class ExpertRouter {
 public:
  // The methods must outlive the router. A layer whose router lacks a probe has no experts here.
  // Only router_weights.N may be absent: without it the program looks scores up by the chosen
  // experts.
  explicit ExpertRouter(std::span<const MethodProbe> probes);
  explicit ExpertRouter(const MethodChain& chain);

  // Returns experts per token, and experts in all; {0, 0} for a layer without routed experts.
  std::pair<int64_t, int64_t> experts_of(int64_t layer) const;

  // kBadInput unless every route has whole rows of distinct experts of its layer. `routes` must
  // stay until it is replaced; nullptr ends the routing.
  Status force(const ExpertRoutes* routes);

  // Must be called with every probe value of a call, right after the instruction that produces the
  // value. `position` is that of the call's first token. take_error() returns errors.
  void see(std::string_view probe, const TensorView& value, int64_t position);
  Status take_error();

 private:
  // The probes of one router.
  struct Router {
    Method* method = nullptr;
    int32_t logits = -1, weights = -1, experts = -1;  // indices of the method's values
    int64_t width = 0, chosen = 0;                    // experts in all, and per token
    std::vector<float> seen;                          // router logits of the current call
  };

  Status replace(int64_t layer, const Router& router, const TensorView& chosen, int64_t position);
  Status replace_weights(int64_t layer, const Router& router, std::span<const int64_t> ids);

  std::map<int64_t, Router> routers_;  // by layer
  const ExpertRoutes* routes_ = nullptr;
  std::optional<Error> error_;
};

}  // namespace ferry::runner
