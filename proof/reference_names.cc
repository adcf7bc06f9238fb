#include "proof/reference_names.h"

#include <fmt/format.h>

#include "core/program_interface.h"

namespace ferry::proof {
namespace {

using Kind = ReferenceTensor::Kind;

struct CacheName {
  const char* reference;
  const char* buffer;
  Kind kind;
};
constexpr CacheName kCaches[] = {
    {"key", "kv_cache.k_cache", Kind::kKey},
    {"value", "kv_cache.v_cache", Kind::kValue},
    {"conv_state", "conv_state", Kind::kConvState},
    {"recurrent_state", "recurrent_state", Kind::kRecurrentState},
};

}  // namespace

std::vector<ReferenceTensor> reference_tensors(int64_t layers) {
  std::vector<ReferenceTensor> all;
  const auto add = [&](Kind kind, const std::string& name, int64_t layer) {
    all.push_back({kind, name, name, layer});
  };
  add(Kind::kHidden, "hidden_states.0", -1);
  for (int64_t n = 0; n < layers; ++n) {
    for (const CacheName& cache : kCaches) {
      all.push_back({cache.kind, fmt::format("cache.{}.{}", n, cache.reference),
                     fmt::format("layers.{}.attention.{}", n, cache.buffer), n});
    }
    add(Kind::kRouterLogits, fmt::format("router_logits.{}", n), n);
    const bool last = n + 1 == layers;
    add(Kind::kHidden, last ? "last_layer_prenorm" : fmt::format("hidden_states.{}", n + 1), n);
  }
  add(Kind::kHidden, fmt::format("hidden_states.{}", layers), layers);
  add(Kind::kState, std::string(kLastHiddenStatePort), layers);
  add(Kind::kVector, std::string(kSentenceEmbeddingPort), layers);
  return all;
}

std::string route_name(int64_t layer) { return fmt::format("router_experts.{}", layer); }
std::string greedy_route_name(int64_t layer) {
  return fmt::format("greedy_router_experts.{}", layer);
}

}  // namespace ferry::proof
