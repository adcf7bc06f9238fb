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

constexpr size_t kAttempts = 12;  // routes tried for one token in one layer

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
    groups_ = groups_behind(all_tokens());
    bool all_searched = true;
    for (int64_t layer = 0; layer < manifest_.num_layers; ++layer) {
      if (!is_routed(layer)) continue;
      all_searched = all_searched && can_search(layer);
      if (can_search(layer)) FERRY_RETURN_IF_ERROR(search_layer(layer));
    }
    if (all_searched) return std::move(found_);
    FoundRoutes rest = FERRY_TRY(find_routes_by_logits(decoder_, manifest_, reference_, prompt_,
                                                       groups_, std::move(found_.routes)));
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

  bool has_seen(const std::string& name, int64_t width) const {
    const auto found = seen_.find(name);
    return found != seen_.end() && found->second.size() == tokens_ * static_cast<size_t>(width);
  }
  // Whether the bundle has all probes of the layer's router.
  bool is_routed(int64_t layer) const {
    const auto [chosen, experts] = decoder_.experts_of(layer);
    return chosen > 0 && has_seen(route_name(layer), chosen) &&
           has_seen(fmt::format("router_logits.{}", layer), experts);
  }
  // Whether the reference has the hidden states around the layer, and the bundle too.
  bool can_search(int64_t layer) const {
    return prompt_.has(output_of(layer)) && prompt_.has(input_of(layer)) &&
           has_seen(output_of(layer), manifest_.hidden_size) &&
           has_seen(input_of(layer), manifest_.hidden_size);
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
    if (!logits) return Failure(logits.error());
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
  RoutedToken routed_token(int64_t layer, size_t token) const {
    const auto k = static_cast<size_t>(decoder_.experts_of(layer).first);
    const auto chosen = std::span(seen_.at(route_name(layer))).subspan(token * k, k);
    return {{scores_of("router_logits", layer, token), scores_of("router_choice", layer, token)},
            {chosen.begin(), chosen.end()}};
  }
  std::vector<RoutedToken> all_tokens() const {
    std::vector<RoutedToken> all;
    for (int64_t layer = 0; layer < manifest_.num_layers; ++layer) {
      for (size_t t = 0; is_routed(layer) && t < tokens_; ++t) {
        all.push_back(routed_token(layer, t));
      }
    }
    return all;
  }

  // A token whose output of the layer is suspect, with the best of the routes that were tried.
  struct Suspect {
    size_t token = 0;
    std::vector<NearRoute> routes;
    double db = 0, best_db = 0;
    size_t best = 0;
  };

  std::vector<Suspect> suspects(int64_t layer, const std::vector<double>& input,
                                const std::vector<double>& output) const {
    const double usual = median(output);
    std::vector<Suspect> all;
    for (size_t t = 0; t < tokens_; ++t) {
      if (output[t] >= usual - kSuspectDb) continue;
      std::vector<NearRoute> routes =
          near_routes(routed_token(layer, t), groups_, std::min(input[t], usual), kAttempts);
      if (!routes.empty()) all.push_back({t, std::move(routes), output[t], output[t]});
    }
    return all;
  }

  void set_route(int64_t layer, const Suspect& suspect, size_t which,
                 runner::ExpertRoutes& routes) const {
    const std::vector<int64_t>& experts = suspect.routes[which].experts;
    std::ranges::copy(experts, routes[layer].begin() +
                                   static_cast<std::ptrdiff_t>(suspect.token * experts.size()));
  }

  // Tokens do not see the experts of others in the same layer, so all are tried at once.
  Status try_routes(int64_t layer, std::vector<Suspect>& suspects, double enough) {
    for (size_t attempt = 0; attempt < kAttempts; ++attempt) {
      runner::ExpertRoutes trial = found_.routes;
      const auto tries = [&](const Suspect& suspect) {
        return attempt < suspect.routes.size() && suspect.best_db < enough;
      };
      if (std::ranges::none_of(suspects, tries)) return {};
      for (const Suspect& suspect : suspects) {
        if (tries(suspect)) set_route(layer, suspect, attempt, trial);
      }
      const Seen after = FERRY_TRY(execute(&trial));
      const std::vector<double> now = FERRY_TRY(rows_db(after, output_of(layer)));
      for (Suspect& suspect : suspects) {
        if (!tries(suspect) || now[suspect.token] <= suspect.best_db) continue;
        suspect.best_db = now[suspect.token];
        suspect.best = attempt;
      }
    }
    return {};
  }

  // Settles the routes of the layer. Later layers choose again.
  Status search_layer(int64_t layer) {
    const std::vector<double> input = FERRY_TRY(rows_db(seen_, input_of(layer)));
    const std::vector<double> output = FERRY_TRY(rows_db(seen_, output_of(layer)));
    const Values& own = seen_.at(route_name(layer));
    found_.routes[layer].assign(own.begin(), own.end());
    std::vector<Suspect> all = suspects(layer, input, output);
    FERRY_RETURN_IF_ERROR(try_routes(layer, all, median(output) - kSuspectDb));
    const int64_t before = found_.exchanged;
    for (const Suspect& suspect : all) {
      if (suspect.best_db < suspect.db + kGainDb) continue;
      set_route(layer, suspect, suspect.best, found_.routes);
      found_.exchanged += 1;
    }
    if (found_.exchanged > before) seen_ = FERRY_TRY(execute(&found_.routes));
    return {};
  }

  runner::Decoder& decoder_;
  const packer::Manifest& manifest_;
  const Reference& reference_;
  const ReferencePrompt& prompt_;
  const size_t tokens_;
  ExpertGroups groups_;
  Seen seen_;  // with the routes found so far
  FoundRoutes found_;
};

}  // namespace

Result<FoundRoutes> find_routes(runner::Decoder& decoder, const packer::Manifest& manifest,
                                const Reference& reference, const ReferencePrompt& prompt) {
  return Search(decoder, manifest, reference, prompt).run();
}

}  // namespace ferry::proof
