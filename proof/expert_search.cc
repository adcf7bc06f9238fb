#include "proof/expert_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "proof/expert_ties.h"
#include "proof/logit_search.h"
#include "proof/parity.h"
#include "proof/reference_names.h"

namespace ferry::proof {
namespace {

constexpr int kLayerAttempts = 3;  // exchanges tried for one token in one layer

using Values = std::vector<float>;

class Search {
 public:
  Search(runner::Decoder& decoder, const packer::Manifest& manifest, const Reference& reference,
         const ReferencePrompt& prompt)
      : decoder_(decoder),
        manifest_(manifest),
        reference_(reference),
        prompt_(prompt),
        tokens_(prompt.input_ids.size()) {}

  Result<FoundRoutes> run() {
    seen_ = FERRY_TRY(execute(nullptr));
    for (int64_t layer = 0; layer < manifest_.num_layers; ++layer) {
      const auto chosen = seen_.find(route_name(layer));
      const auto per_token = static_cast<size_t>(decoder_.experts_of(layer).first);
      if (chosen == seen_.end() || chosen->second.size() != tokens_ * per_token) continue;
      found_.routes[layer].assign(chosen->second.begin(), chosen->second.end());
    }
    runner::ExpertRoutes searched;
    for (const auto& [layer, route] : found_.routes) {
      if (!can_search(layer)) continue;
      FERRY_RETURN_IF_ERROR(search_layer(layer));
      searched[layer] = route;
    }
    if (searched.size() == found_.routes.size()) return std::move(found_);
    FoundRoutes rest = FERRY_TRY(
        find_routes_by_logits(decoder_, manifest_, reference_, prompt_, std::move(searched)));
    rest.exchanged += found_.exchanged;
    return rest;
  }

 private:
  using Seen = std::map<std::string, Values>;

  static std::string input_of(int64_t layer) { return fmt::format("hidden_states.{}", layer); }
  std::string output_of(int64_t layer) const {
    const bool last = layer + 1 == manifest_.num_layers;
    return last ? "last_layer_prenorm" : fmt::format("hidden_states.{}", layer + 1);
  }

  // Whether the reference has the hidden states around the layer, and the bundle all its probes.
  bool can_search(int64_t layer) const {
    const auto seen = [&](const std::string& name, int64_t width) {
      const auto found = seen_.find(name);
      return found != seen_.end() && found->second.size() == tokens_ * static_cast<size_t>(width);
    };
    return prompt_.has(output_of(layer)) && prompt_.has(input_of(layer)) &&
           seen(output_of(layer), manifest_.hidden_size) &&
           seen(input_of(layer), manifest_.hidden_size) &&
           seen(fmt::format("router_logits.{}", layer), decoder_.experts_of(layer).second);
  }

  // All probes of the prompt, by name.
  Result<Seen> execute(const runner::ExpertRoutes* routes) {
    Seen seen;
    FERRY_RETURN_IF_ERROR(decoder_.set_probe_sink(
        [&](const std::string& name, int64_t, int64_t, std::span<const float> values) {
          Values& all = seen[name];
          all.insert(all.end(), values.begin(), values.end());
        }));
    FERRY_RETURN_IF_ERROR(decoder_.force_experts(routes));
    decoder_.restart();
    const auto logits = decoder_.forward(prompt_.input_ids);
    FERRY_RETURN_IF_ERROR(decoder_.force_experts(nullptr));
    FERRY_RETURN_IF_ERROR(decoder_.set_probe_sink({}));
    if (!logits) return tl::unexpected<Error>(logits.error());
    return seen;
  }

  // Signal to noise of each row of a hidden state.
  Result<std::vector<double>> rows_db(const Seen& seen, const std::string& name) const {
    const Values& got = seen.at(name);
    const Values want = FERRY_TRY(reference_.floats(
        prompt_, name, {1, static_cast<int64_t>(tokens_), manifest_.hidden_size}));
    const auto width = static_cast<size_t>(manifest_.hidden_size);
    std::vector<double> rows(tokens_);
    for (size_t t = 0; t < tokens_; ++t) {
      ValueComparison comparison;
      comparison.add(std::span(got).subspan(t * width, width),
                     std::span(want).subspan(t * width, width));
      rows[t] = comparison.metrics().sqnr_db;
    }
    return rows;
  }

  // Of one token; empty where the bundle has no such probe.
  std::span<const float> scores_of(const char* probe, int64_t layer, size_t token) const {
    const auto width = static_cast<size_t>(decoder_.experts_of(layer).second);
    const auto found = seen_.find(fmt::format("{}.{}", probe, layer));
    if (found == seen_.end() || found->second.size() != tokens_ * width) return {};
    return std::span(found->second).subspan(token * width, width);
  }

  // Exchanges between nearly equal scores, given the error of the layer's input.
  std::vector<Exchange> exchanges(int64_t layer, size_t token, double input_db) const {
    const auto k = static_cast<size_t>(decoder_.experts_of(layer).first);
    const std::vector<int64_t>& route = found_.routes.at(layer);
    const RouterScores scores = {scores_of("router_logits", layer, token),
                                 scores_of("router_choice", layer, token)};
    return near_ties(scores, std::span(route).subspan(token * k, k), input_db);
  }

  Status search_layer(int64_t layer) {
    const auto k = static_cast<size_t>(decoder_.experts_of(layer).first);
    for (size_t attempt = 0; attempt < kLayerAttempts; ++attempt) {
      const std::vector<double> input = FERRY_TRY(rows_db(seen_, input_of(layer)));
      const std::vector<double> output = FERRY_TRY(rows_db(seen_, output_of(layer)));
      const double usual = median(output);
      runner::ExpertRoutes trial = found_.routes;
      std::vector<size_t> tried;
      for (size_t t = 0; t < tokens_; ++t) {
        if (output[t] >= usual - kSuspectDb) continue;
        const std::vector<Exchange> possible = exchanges(layer, t, input[t]);
        if (attempt >= possible.size()) continue;
        trial[layer][t * k + possible[attempt].slot] = possible[attempt].expert;
        tried.push_back(t);
      }
      if (tried.empty()) return {};
      const Seen after = FERRY_TRY(execute(&trial));
      const std::vector<double> now = FERRY_TRY(rows_db(after, output_of(layer)));
      for (size_t t : tried) {
        if (now[t] < output[t] + kGainDb) continue;
        std::copy_n(trial[layer].begin() + static_cast<std::ptrdiff_t>(t * k), k,
                    found_.routes[layer].begin() + static_cast<std::ptrdiff_t>(t * k));
        found_.exchanged += 1;
      }
      seen_ = FERRY_TRY(execute(&found_.routes));
    }
    return {};
  }

  runner::Decoder& decoder_;
  const packer::Manifest& manifest_;
  const Reference& reference_;
  const ReferencePrompt& prompt_;
  const size_t tokens_;
  Seen seen_;  // with the routes found so far
  FoundRoutes found_;
};

}  // namespace

Result<FoundRoutes> find_routes(runner::Decoder& decoder, const packer::Manifest& manifest,
                                const Reference& reference, const ReferencePrompt& prompt) {
  return Search(decoder, manifest, reference, prompt).run();
}

}  // namespace ferry::proof
