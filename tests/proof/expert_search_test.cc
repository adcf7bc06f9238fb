#include "proof/expert_search.h"

#include <gtest/gtest.h>

#include "proof/reference.h"
#include "tests/proof/toy_router.h"

namespace ferry::proof::expert_search_test {
namespace {

constexpr int64_t kTokens = 16, kExperts = 8;
constexpr float kNoise = 0.01F;
constexpr float kTie = 0.01F;   // difference of two scores that is about as large as their error
constexpr float kApart = 0.5F;  // difference that is far above the error

Experts best_two(const Scores& scores) { return toy_best(scores, 2); }
Experts best_two_of_half(const Scores& scores) { return toy_best_of_half(scores, 2); }

// Returns scores that are far from each other, in another order for each layer and position.
Scores apart(int64_t layer, int64_t position) {
  Scores scores(kExperts);
  for (int64_t e = 0; e < kExperts; ++e) {
    scores[size_t(e)] = 0.5F * static_cast<float>((3 * e + 5 * position + layer) % kExperts);
  }
  return scores;
}

// Returns the scores of a token whose second choice is better than the third by `margin`; with
// `flipped`, worse.
Scores tied(int64_t layer, int64_t position, float margin, bool flipped) {
  Scores scores = apart(layer, position);
  const Experts order = toy_best(scores, 3);
  const float lower = scores[size_t(order[2])];
  scores[size_t(order[1])] = lower + (flipped ? 0 : margin);
  scores[size_t(order[2])] = lower + (flipped ? margin : 0);
  return scores;
}

struct Ways {
  ToyRouter::Router ours, theirs;
  ToyRouter::Choose choose = best_two;
  ExpertGroups groups = {};
  int64_t layers = 2;
  bool hidden_states = false;
};

struct Found {
  FoundRoutes routes;
  runner::ExpertRoutes own, wanted;  // experts that the routers of both sides choose
};

runner::ExpertRoutes choices(ToyRouter& model, int64_t layers) {
  runner::ExpertRoutes routes;
  (void)model.set_probe_sink(
      [&](const std::string& name, int64_t, int64_t, std::span<const float> row) {
        for (int64_t layer = 0; layer < layers; ++layer) {
          if (name != "router_experts." + std::to_string(layer)) continue;
          for (const float id : row) routes[layer].push_back(static_cast<int64_t>(id));
        }
      });
  model.restart(0);
  for (int64_t t = 0; t < kTokens; ++t) (void)model.forward({&t, 1});
  (void)model.set_probe_sink({});
  return routes;
}

// Sorts the experts of every token in ascending order.
runner::ExpertRoutes sorted(runner::ExpertRoutes routes) {
  for (auto& [layer, all] : routes) {
    for (size_t at = 0; at + 2 <= all.size(); at += 2) {
      std::sort(all.begin() + std::ptrdiff_t(at), all.begin() + std::ptrdiff_t(at) + 2);
    }
  }
  return routes;
}

Found search(const Ways& ways, const runner::ExpertRoutes& known = {}) {
  ToyRouter ours(ways.layers, ways.ours, ways.choose, kNoise);
  ToyRouter theirs(ways.layers, ways.theirs, ways.choose, 0);
  const MemorySource source = toy_reference(theirs, kTokens, ways.hidden_states);
  const Reference reference = Reference::open(source).value();
  const packer::Manifest manifest = ours.manifest();
  const ReferencePrompt& prompt = reference.prompts().front();
  Found found;
  found.routes =
      ways.hidden_states
          ? find_routes(ours, manifest, reference, prompt).value()
          : find_routes_by_logits(ours, manifest, reference, prompt, ways.groups, known).value();
  found.routes.routes = sorted(found.routes.routes);
  found.own = sorted(choices(ours, ways.layers));
  found.wanted = sorted(choices(theirs, ways.layers));
  return found;
}

// Both sides have equal scores, except for one token of one layer, where two scores are `margin`
// apart.
Ways one_flip(float margin, int64_t layer = 1, int64_t position = 7) {
  const auto router = [=](bool theirs) {
    return [=](int64_t l, int64_t t, const Experts&) {
      return l == layer && t == position ? tied(l, t, margin, theirs) : apart(l, t);
    };
  };
  return {router(false), router(true)};
}

TEST(LogitSearch, TakesAnExpertThatTies) {
  const Found found = search(one_flip(kTie));
  EXPECT_NE(found.own, found.wanted);
  EXPECT_EQ(found.routes.routes, found.wanted);
  EXPECT_EQ(found.routes.exchanged, 1);
}

TEST(LogitSearch, LeavesAnExpertThatDoesNotTie) {
  const Found found = search(one_flip(kApart));
  EXPECT_NE(found.own, found.wanted);
  EXPECT_EQ(found.routes.routes, found.own);
  EXPECT_EQ(found.routes.exchanged, 0);
}

TEST(LogitSearch, LeavesATieThatBringsNothingNear) {
  Ways ways = one_flip(kTie);
  // No tie explains the experts that the reference chose.
  ways.theirs = [](int64_t l, int64_t t, const Experts&) {
    Scores scores = apart(l, t);
    if (t == 7) std::ranges::reverse(scores);
    return scores;
  };
  const Found found = search(ways);
  EXPECT_EQ(found.routes.routes, found.own);
}

TEST(LogitSearch, FindsManyTokensWhoseErrorsReachLaterOnes) {
  const auto router = [](bool theirs) {
    return [=](int64_t l, int64_t t, const Experts&) {
      const bool flips = (l == 0 && t % 5 == 0) || (l == 1 && t % 4 == 1);
      return flips ? tied(l, t, kTie, theirs) : apart(l, t);
    };
  };
  const Found found = search({router(false), router(true)});
  EXPECT_EQ(found.routes.routes, found.wanted);
}

TEST(LogitSearch, LayersBehindAnExchangeChooseAgain) {
  // The scores of layer 1 depend on the experts of layer 0.
  const auto router = [](bool theirs) {
    return [=](int64_t l, int64_t t, const Experts& before) {
      if (l == 0) return t == 3 ? tied(l, t, kTie, theirs) : apart(l, t);
      return apart(l, t + (before.empty() ? 0 : before[0] + 2 * before[1]));
    };
  };
  const Found found = search({router(false), router(true)});
  EXPECT_EQ(found.routes.routes, found.wanted);
  EXPECT_EQ(found.routes.exchanged, 1);
}

TEST(LogitSearch, KnownLayersKeepTheirRoutes) {
  const Ways ways = one_flip(kTie);
  const runner::ExpertRoutes own = search(ways).own;
  const Found found = search(ways, {{1, own.at(1)}});
  EXPECT_EQ(found.routes.routes, own);
}

// Returns scores whose halves tie within `margin`. All other scores are far apart.
Scores tied_halves(float margin, bool flipped) {
  const float more = flipped ? -margin : margin;
  return {4.0F + more, 0.5F, 3.0F, 1.0F, 1.5F, 4.5F, 0.0F, 2.5F};
}

Ways one_group_flip(float margin) {
  const auto router = [=](bool theirs) {
    return [=](int64_t l, int64_t t, const Experts&) {
      return l == 1 && t == 7 ? tied_halves(margin, theirs) : apart(l, t);
    };
  };
  return {router(false), router(true), best_two_of_half, {2, 1, 2}};
}

TEST(LogitSearch, TakesAGroupThatTies) {
  const Found found = search(one_group_flip(kTie));
  EXPECT_NE(found.own, found.wanted);
  EXPECT_EQ(found.routes.routes, found.wanted);
}

TEST(LogitSearch, LeavesAGroupThatDoesNotTie) {
  const Found found = search(one_group_flip(kApart));
  EXPECT_NE(found.own, found.wanted);
  EXPECT_EQ(found.routes.routes, found.own);
}

TEST(ExpertSearch, TakesWhatTiesByHiddenStates) {
  for (Ways ways : {one_flip(kTie), one_flip(kTie, 0), one_group_flip(kTie)}) {
    ways.hidden_states = true;
    const Found found = search(ways);
    EXPECT_NE(found.own, found.wanted);
    EXPECT_EQ(found.routes.routes, found.wanted);
  }
}

TEST(ExpertSearch, LeavesWhatDoesNotTieByHiddenStates) {
  for (Ways ways : {one_flip(kApart), one_flip(kApart, 0), one_group_flip(kApart)}) {
    ways.hidden_states = true;
    const Found found = search(ways);
    EXPECT_NE(found.own, found.wanted);
    EXPECT_EQ(found.routes.routes, found.own);
    EXPECT_EQ(found.routes.exchanged, 0);
  }
}

TEST(ExpertTies, GroupsAreThoseBehindTheChoices) {
  std::vector<Scores> scores;
  for (int64_t t = 0; t < 40; ++t) {
    Scores& row = scores.emplace_back();
    for (int64_t e = 0; e < kExperts; ++e) row.push_back(toy_value(5, t, e));
  }
  std::vector<RoutedToken> plain, halves;
  for (const Scores& row : scores) {
    plain.push_back({{row}, best_two(row)});
    halves.push_back({{row}, best_two_of_half(row)});
  }
  EXPECT_EQ(groups_behind(plain), ExpertGroups());
  EXPECT_EQ(groups_behind(halves), (ExpertGroups{2, 1, 2}));
}

TEST(ExpertTies, RoutesThatAreNoBetterThanTheGroupsAllowAreLeft) {
  const Scores scores = {4.0F, 0.0F, 3.0F, 1.0F, 3.001F, 0.5F, 0.2F, 2.0F};
  const RoutedToken token = {{scores}, best_two_of_half(scores)};
  // Expert 4 ties with expert 2, but their halves do not tie.
  EXPECT_TRUE(near_routes(token, {2, 1, 2}, 40, 12).empty());
  const std::vector<NearRoute> plain = near_routes({{scores}, best_two(scores)}, {}, 40, 12);
  ASSERT_EQ(plain.size(), 1U);
  EXPECT_EQ(plain[0].experts, (Experts{0, 2}));
}

}  // namespace
}  // namespace ferry::proof::expert_search_test
