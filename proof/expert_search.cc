#include "proof/expert_search.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proof/expert_ties.h"
#include "proof/parity.h"
#include "proof/reference.h"

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
  // Whether both the reference and the bundle have the hidden states around the layer.
  bool can_search(int64_t layer) const {
    return prompt_.has(output_of(layer)) && prompt_.has(input_of(layer)) &&
           has_seen(output_of(layer), manifest_.hidden_size) &&
           has_seen(input_of(layer), manifest_.hidden_size);
  }

  // Executes the prompt and returns all probes by name.
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

  // Returns the signal-to-noise ratio of each row of a hidden state.
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

  // Returns the probe of one token; empty if the bundle does not have the probe.
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

  // A token whose layer output is suspect, with the best route that was tried.
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

  // Tries routes for all suspects at once, because tokens do not see the experts of others in the
  // same layer.
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

  // Fixes the routes of the layer. Later layers choose again.
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

constexpr size_t kExchanges = 12;     // exchanges tried for one token at a time
constexpr size_t kMostExchanges = 4;  // exchanges of one token in several layers
constexpr size_t kMostHidden = 2;     // exchanges at a time that gain enough only together
constexpr int kMostFailures = 4;      // a pass ends after this many tokens without success
constexpr int kMostPasses = 4;

// The experts of one token, by layer.
using TokenRoute = std::map<int64_t, std::vector<int64_t>>;

class LogitSearch {
 public:
  LogitSearch(runner::Decoder& decoder, const packer::Manifest& manifest,
              const Reference& reference, const ReferencePrompt& prompt, const ExpertGroups& groups,
              runner::ExpertRoutes known)
      : decoder_(decoder),
        manifest_(manifest),
        reference_(reference),
        prompt_(prompt),
        tokens_(prompt.input_ids.size()),
        groups_(groups),
        known_(std::move(known)) {
    found_.routes = known_;
  }

  Result<FoundRoutes> run() {
    want_ = FERRY_TRY(reference_.floats(prompt_, "logits",
                                        {1, static_cast<int64_t>(tokens_), manifest_.vocab_size}));
    FERRY_RETURN_IF_ERROR(decoder_.set_probe_sink(
        [this](const std::string& name, int64_t, int64_t rows, std::span<const float> values) {
          const auto width = values.size() / static_cast<size_t>(std::max<int64_t>(rows, 1));
          const auto last = values.last(width);
          last_[name].assign(last.begin(), last.end());
        }));
    Status searched = search();
    FERRY_RETURN_IF_ERROR(decoder_.force_experts(nullptr));
    FERRY_RETURN_IF_ERROR(decoder_.set_probe_sink({}));
    FERRY_RETURN_IF_ERROR(std::move(searched));
    return std::move(found_);
  }

 private:
  // A token with its routes and the router scores that they were chosen from, by layer.
  struct Trial {
    double db = 0;  // ratio of the token's logits
    TokenRoute route = {};
    std::map<int64_t, std::vector<float>> logits = {}, choice = {};
  };
  struct Candidate {
    double margin = 0;
    int64_t layer = 0;
    std::vector<int64_t> route = {};
  };

  // Searches again after a success: a corrected token brings later tokens near and shows how near
  // is usual, so that other tokens become suspect.
  Status search() {
    FERRY_RETURN_IF_ERROR(execute_from(0));
    for (int pass = 0; pass < kMostPasses; ++pass) {
      const int64_t before = found_.exchanged;
      FERRY_RETURN_IF_ERROR(mend_all());
      if (found_.exchanged == before) break;
    }
    return {};
  }

  Status mend_all() {
    int failures = 0;
    for (size_t t = 0; t < tokens_ && failures < kMostFailures; ++t) {
      const double usual = median(rows_db_);
      if (rows_db_[t] >= usual - kSuspectDb) continue;
      const bool mended = FERRY_TRY(mend(t, usual));
      if (!mended) failures += 1;
      if (mended) FERRY_RETURN_IF_ERROR(execute_from(t + 1));
    }
    return {};
  }

  // Executes all tokens. Tokens before `first` keep their routes, the others choose.
  Status execute_from(size_t first) {
    keep_tokens(first, found_.routes);
    const runner::ExpertRoutes settled = found_.routes;
    FERRY_RETURN_IF_ERROR(decoder_.force_experts(&settled));
    decoder_.restart(static_cast<int64_t>(tokens_));
    rows_db_.resize(tokens_);
    for (size_t t = 0; t < tokens_; ++t) {
      const auto row = FERRY_TRY(decoder_.forward({&prompt_.input_ids[t], 1}));
      rows_db_[t] = FERRY_TRY(db_of(row, t));
      if (t >= first) append(taken({}).route);
    }
    return decoder_.force_experts(nullptr);
  }

  // The exchanges that were made for one token.
  struct Path {
    Trial trial;
    TokenRoute pins = {};  // routes of the layers in which an exchange was made
    double enough = 0;     // ratio from which the logits are near
    bool is_near() const { return trial.db >= enough; }
  };

  // Exchanges experts of token `t` and returns whether its logits come near. If so, its route
  // becomes part of found_.routes. If several experts are wrong, each hides the gain of exchanging
  // another one, so the common gain counts.
  Result<bool> mend(size_t t, double usual) {
    Path path = {.trial = FERRY_TRY(attempt(t, {})), .enough = usual - kSuspectDb};
    Path kept = path;
    while (!path.is_near() && path.pins.size() < kMostExchanges &&
           path.pins.size() - kept.pins.size() < kMostHidden) {
      const bool stepped = FERRY_TRY(step(t, usual, path));
      if (!stepped) break;
      const auto gains = static_cast<double>(path.pins.size() - kept.pins.size());
      if (path.trial.db >= kept.trial.db + gains * kGainDb) kept = path;
    }
    if (kept.pins.empty()) return false;
    keep_tokens(t, found_.routes);
    append(kept.trial.route);
    found_.exchanged += static_cast<int64_t>(kept.pins.size());
    return true;
  }

  // Makes the exchange that gains most, or the first that is enough. Returns whether any gains.
  Result<bool> step(size_t t, double usual, Path& path) {
    const Path from = path;
    for (const Candidate& candidate : candidates(from.trial, from.pins, usual)) {
      TokenRoute pins = from.pins;
      pins[candidate.layer] = candidate.route;
      Trial trial = FERRY_TRY(attempt(t, pins));
      if (trial.db <= path.trial.db) continue;
      path.trial = std::move(trial);
      path.pins = std::move(pins);
      if (path.is_near()) break;
    }
    return path.trial.db > from.trial.db;
  }

  // Returns the nearest ties of all layers that are not pinned.
  std::vector<Candidate> candidates(const Trial& now, const TokenRoute& pins, double usual) const {
    std::vector<Candidate> all;
    for (const auto& [layer, route] : now.route) {
      const auto logits = now.logits.find(layer), choice = now.choice.find(layer);
      const bool settled = pins.contains(layer) || known_.contains(layer);
      if (settled || logits == now.logits.end()) continue;
      RouterScores scores = {.logits = logits->second};
      if (choice != now.choice.end()) scores.choice = choice->second;
      for (NearRoute& near : near_routes({scores, route}, groups_, usual, kExchanges)) {
        all.push_back({near.margin, layer, std::move(near.experts)});
      }
    }
    std::ranges::stable_sort(all, {}, &Candidate::margin);
    if (all.size() > kExchanges) all.resize(kExchanges);
    return all;
  }

  // Executes the tokens up to `t`. Token `t` has the routes in `pins`.
  Result<Trial> attempt(size_t t, const TokenRoute& pins) {
    runner::ExpertRoutes routes = found_.routes;
    keep_tokens(t, routes);
    for (auto& [layer, route] : routes) {
      const auto pin = pins.find(layer);
      if (pin != pins.end()) route.insert(route.end(), pin->second.begin(), pin->second.end());
    }
    FERRY_RETURN_IF_ERROR(decoder_.force_experts(&routes));
    decoder_.restart(static_cast<int64_t>(tokens_));
    const auto computed = decoder_.forward(std::span(prompt_.input_ids).first(t + 1));
    FERRY_RETURN_IF_ERROR(decoder_.force_experts(nullptr));
    const std::span<const float> rows = FERRY_TRY(computed);
    Trial trial = taken(pins);
    trial.db = FERRY_TRY(db_of(rows, t));
    return trial;
  }

  // Returns the probes of the last token.
  Trial taken(const TokenRoute& pins) const {
    Trial trial;
    for (int64_t layer = 0; layer < manifest_.num_layers; ++layer) {
      const auto chosen = last_.find(route_name(layer));
      if (chosen == last_.end() || chosen->second.size() != per_token(layer)) continue;
      const auto pin = pins.find(layer);
      trial.route[layer] = pin != pins.end()
                               ? pin->second
                               : std::vector<int64_t>(chosen->second.begin(), chosen->second.end());
      keep_scores("router_logits", layer, trial.logits);
      keep_scores("router_choice", layer, trial.choice);
    }
    return trial;
  }

  void keep_scores(const char* probe, int64_t layer,
                   std::map<int64_t, std::vector<float>>& into) const {
    const auto scores = last_.find(fmt::format("{}.{}", probe, layer));
    const auto experts = static_cast<size_t>(decoder_.experts_of(layer).second);
    if (scores != last_.end() && scores->second.size() == experts) into[layer] = scores->second;
  }

  void append(const TokenRoute& token) {
    for (const auto& [layer, route] : token) {
      if (known_.contains(layer)) continue;
      std::vector<int64_t>& all = found_.routes[layer];
      all.insert(all.end(), route.begin(), route.end());
    }
  }

  // Keeps only the routes of the first `count` tokens in layers whose routes are not known.
  void keep_tokens(size_t count, runner::ExpertRoutes& routes) const {
    for (auto& [layer, route] : routes) {
      if (!known_.contains(layer)) route.resize(count * per_token(layer));
    }
  }

  size_t per_token(int64_t layer) const {
    return static_cast<size_t>(decoder_.experts_of(layer).first);
  }

  // Returns the ratio of the logits of token `t`, which are the last row of `rows`.
  Result<double> db_of(std::span<const float> rows, size_t t) const {
    const auto vocab = static_cast<size_t>(manifest_.vocab_size);
    if (rows.size() < vocab) return bad_input("the bundle's logits are not [rows, vocabulary]");
    ValueComparison comparison;
    comparison.add(rows.last(vocab), std::span(want_).subspan(t * vocab, vocab));
    return comparison.metrics().sqnr_db;
  }

  runner::Decoder& decoder_;
  const packer::Manifest& manifest_;
  const Reference& reference_;
  const ReferencePrompt& prompt_;
  const size_t tokens_;
  const ExpertGroups groups_;
  const runner::ExpertRoutes known_;
  std::vector<float> want_;                         // [T, vocab]
  std::vector<double> rows_db_;                     // ratio of the logits of each token
  std::map<std::string, std::vector<float>> last_;  // probes of the last token
  FoundRoutes found_;
};

}  // namespace

Result<FoundRoutes> find_routes(runner::Decoder& decoder, const packer::Manifest& manifest,
                                const Reference& reference, const ReferencePrompt& prompt) {
  return Search(decoder, manifest, reference, prompt).run();
}

Result<FoundRoutes> find_routes_by_logits(runner::Decoder& decoder,
                                          const packer::Manifest& manifest,
                                          const Reference& reference, const ReferencePrompt& prompt,
                                          const ExpertGroups& groups, runner::ExpertRoutes known) {
  return LogitSearch(decoder, manifest, reference, prompt, groups, std::move(known)).run();
}

}  // namespace ferry::proof
