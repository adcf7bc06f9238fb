#include "runner/expert_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace ferry::runner {
namespace {

constexpr std::string_view kRouterLogits = "router_logits.";
constexpr std::string_view kWeights = "router_weights.";
constexpr std::string_view kExperts = "router_experts.";

// Returns the layer N of a probe "PREFIX.N".
std::optional<int64_t> probe_layer(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  int64_t layer = 0;
  const auto [end, error] =
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return layer;
}

// Returns the columns of a matrix; 0 for values of other kinds.
int64_t columns_of(const Method& method, int32_t value) {
  const Result<TensorView> view = method.value_meta(value);
  return view && view->shape.size() == 2 ? view->shape[1] : 0;
}

Status check_route(int64_t layer, std::span<const int64_t> ids, int64_t chosen, int64_t width) {
  const auto row_size = static_cast<size_t>(chosen);
  if (chosen == 0 || ids.size() % row_size != 0) {
    return bad_input(fmt::format("expert routes of layer {} do not fit the bundle", layer));
  }
  for (size_t at = 0; at < ids.size(); at += row_size) {
    std::vector<int64_t> row(ids.begin() + static_cast<std::ptrdiff_t>(at),
                             ids.begin() + static_cast<std::ptrdiff_t>(at + row_size));
    std::ranges::sort(row);
    if (row.front() < 0 || row.back() >= width || std::ranges::adjacent_find(row) != row.end()) {
      return bad_input(fmt::format("expert routes of layer {} are not {} distinct experts of {}",
                                   layer, chosen, width));
    }
  }
  return {};
}

std::vector<MethodProbe> probes_of(const MethodChain& chain) {
  std::vector<MethodProbe> probes;
  for (const MethodChain::Link& link : chain.links()) {
    for (const packer::ManifestProbe& probe : link.ports->probes) {
      probes.push_back({link.method, probe.name, probe.value});
    }
  }
  return probes;
}

}  // namespace

ExpertRouter::ExpertRouter(const MethodChain& chain) : ExpertRouter(probes_of(chain)) {}

ExpertRouter::ExpertRouter(std::span<const MethodProbe> probes) {
  for (const MethodProbe& probe : probes) {
    const auto at = [&](std::string_view prefix, int32_t Router::*value) {
      if (const auto layer = probe_layer(probe.name, prefix)) {
        routers_[*layer].method = probe.method;
        routers_[*layer].*value = probe.value;
      }
    };
    at(kRouterLogits, &Router::logits);
    at(kWeights, &Router::weights);
    at(kExperts, &Router::experts);
  }
  for (auto& [layer, router] : routers_) {
    router.width = columns_of(*router.method, router.logits);
    router.chosen = columns_of(*router.method, router.experts);
  }
  std::erase_if(routers_, [](const auto& item) {
    const Router& router = item.second;
    return router.chosen < 1 || router.chosen > router.width ||
           (router.weights >= 0 && columns_of(*router.method, router.weights) != router.chosen);
  });
}

std::pair<int64_t, int64_t> ExpertRouter::experts_of(int64_t layer) const {
  const auto found = routers_.find(layer);
  if (found == routers_.end()) return {0, 0};
  return {found->second.chosen, found->second.width};
}

Status ExpertRouter::force(const ExpertRoutes* routes) {
  routes_ = nullptr;
  if (routes == nullptr) return {};
  for (const auto& [layer, ids] : *routes) {
    const auto [chosen, width] = experts_of(layer);
    FERRY_RETURN_IF_ERROR(check_route(layer, ids, chosen, width));
  }
  routes_ = routes;
  return {};
}

// Probes of a router arrive in order of execution: its logits, then its choice.
void ExpertRouter::see(std::string_view probe, const TensorView& value, int64_t position) {
  if (const auto layer = probe_layer(probe, kRouterLogits); layer && routers_.contains(*layer)) {
    routers_[*layer].seen = probe_floats(value);
  }
  const auto layer = probe_layer(probe, kExperts);
  if (routes_ == nullptr || !layer || !routers_.contains(*layer)) return;
  if (Status replaced = replace(*layer, routers_[*layer], value, position); !replaced) {
    error_ = std::move(replaced).error();
  }
}

Status ExpertRouter::take_error() {
  if (!error_) return {};
  return Failure(*std::exchange(error_, std::nullopt));
}

// Replaces the router's choice for positions with a route.
Status ExpertRouter::replace(int64_t layer, const Router& router, const TensorView& chosen,
                             int64_t position) {
  const auto route = routes_->find(layer);
  if (route == routes_->end() || chosen.bytes.empty()) return {};
  const auto k = static_cast<size_t>(router.chosen);
  std::vector<int64_t> ids(chosen.bytes.size() / sizeof(int64_t));
  std::memcpy(ids.data(), chosen.bytes.data(), ids.size() * sizeof(int64_t));
  const std::vector<int64_t> own = ids;
  const size_t rows = ids.size() / k;
  size_t known = 0;  // number of rows with a route
  for (; known < rows; ++known) {
    const size_t from = (static_cast<size_t>(position) + known) * k;
    if (from + k > route->second.size()) break;
    std::copy_n(route->second.begin() + static_cast<std::ptrdiff_t>(from), k,
                ids.begin() + static_cast<std::ptrdiff_t>(known * k));
  }
  if (ids == own) return {};  // the scores then keep the bits that the program gives them
  if (router.weights >= 0) {
    FERRY_RETURN_IF_ERROR(replace_weights(layer, router, std::span(ids).first(known * k)));
  }
  return router.method->overwrite(router.experts, std::as_bytes(std::span(ids)));
}

// Replaces the scores of the first rows by those of `ids`: softmax values of the router's logits.
Status ExpertRouter::replace_weights(int64_t layer, const Router& router,
                                     std::span<const int64_t> ids) {
  const auto k = static_cast<size_t>(router.chosen);
  const auto width = static_cast<size_t>(router.width);
  std::vector<float> weights = probe_floats(FERRY_TRY(router.method->value(router.weights)));
  const size_t rows = weights.size() / k;
  if (weights.size() % k != 0 || ids.size() > weights.size() ||
      router.seen.size() != rows * width) {
    return bad_input(fmt::format("the probes of the router of layer {} do not match", layer));
  }
  for (size_t row = 0; row < ids.size() / k; ++row) {
    const auto logits = std::span(router.seen).subspan(row * width, width);
    const float largest = *std::ranges::max_element(logits);
    float sum = 0;
    for (float logit : logits) sum += std::exp(logit - largest);
    for (size_t i = row * k; i < (row + 1) * k; ++i) {
      weights[i] = std::exp(logits[static_cast<size_t>(ids[i])] - largest) / sum;
    }
  }
  return router.method->overwrite(router.weights, std::as_bytes(std::span(weights)));
}

}  // namespace ferry::runner
