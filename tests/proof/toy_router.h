// A small decoder whose routers are chosen by tests, and references that it makes.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor_source.h"
#include "packer/manifest.h"
#include "runner/decoder.h"

namespace ferry::proof {

using Experts = std::vector<int64_t>;
using Scores = std::vector<float>;

// Returns a pseudo-random number between -1 and 1 that depends on the arguments.
inline float toy_value(int64_t a, int64_t b, int64_t c) {
  auto x = static_cast<uint64_t>(a * 1000003 + b * 10007 + c + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9;
  return static_cast<float>(static_cast<double>((x ^ (x >> 29)) >> 11) / double(1ULL << 52) - 1);
}

// Each layer adds a vector for each expert of the token. A token also sees the vectors of the
// tokens before it. The logits are the hidden state.
class ToyRouter : public runner::Decoder {
 public:
  static constexpr int64_t kWidth = 24;
  // Returns the router's logits of a layer at a position, given the experts of the previous layer.
  using Router = std::function<Scores(int64_t layer, int64_t position, const Experts& before)>;
  // Returns the experts that a router chooses from its logits.
  using Choose = std::function<Experts(const Scores&)>;

  ToyRouter(int64_t layers, Router router, Choose choose, float noise)
      : layers_(layers),
        router_(std::move(router)),
        choose_(std::move(choose)),
        noise_(noise),
        past_(static_cast<size_t>(layers) * kWidth) {}

  packer::Manifest manifest() const {
    packer::Manifest manifest;
    manifest.vocab_size = manifest.hidden_size = kWidth;
    manifest.num_layers = layers_;
    return manifest;
  }

  Result<std::span<const float>> forward(std::span<const int64_t> tokens) override {
    for (const int64_t token : tokens) run(token);
    return std::span<const float>(hidden_);
  }
  void restart(int64_t) override {
    position_ = 0;
    std::ranges::fill(past_, 0.0F);
  }
  Status set_probe_sink(ProbeSink sink) override {
    sink_ = std::move(sink);
    return {};
  }
  Status force_experts(const runner::ExpertRoutes* routes) override {
    routes_ = routes;
    return {};
  }
  std::pair<int64_t, int64_t> experts_of(int64_t layer) const override {
    const Scores scores = router_(layer, 0, {});
    return {std::ssize(choose_(scores)), std::ssize(scores)};
  }
  Status set_image_rows(std::span<const runner::EmbeddingRows>) override { return {}; }
  int64_t position() const override { return position_; }
  int64_t capacity() const override { return 1000; }
  void set_logits_sink(LogitsSink) override {}
  Result<runner::TensorView> buffer(const std::string&) const override {
    return fail(ErrorCode::kUsage, "no buffers");
  }

 private:
  void run(int64_t token) {
    hidden_.resize(kWidth);
    for (int64_t i = 0; i < kWidth; ++i) hidden_[size_t(i)] = toy_value(-1, token, i);
    Experts before;
    for (int64_t layer = 0; layer < layers_; ++layer) before = run_layer(layer, before);
    see("last_layer_prenorm", hidden_);
    position_ += 1;
  }

  Experts run_layer(int64_t layer, const Experts& before) {
    see("hidden_states." + std::to_string(layer), hidden_);
    const Scores scores = router_(layer, position_, before);
    const Experts own = choose_(scores);
    see("router_logits." + std::to_string(layer), scores);
    see("router_experts." + std::to_string(layer), {own.begin(), own.end()});
    const Experts taken = route(layer, own);
    for (int64_t i = 0; i < kWidth; ++i) {
      float& past = past_[static_cast<size_t>(layer * kWidth + i)];
      float sum = 0;
      for (const int64_t e : taken) sum += 2 * toy_value(layer, e, i);
      hidden_[size_t(i)] += sum + 0.2F * past;
      hidden_[size_t(i)] *= 1 + noise_ * toy_value(position_, layer + 100, i);
      past = 0.5F * (past + sum);
    }
    return taken;
  }

  Experts route(int64_t layer, const Experts& own) const {
    if (routes_ == nullptr || !routes_->contains(layer)) return own;
    const Experts& all = routes_->at(layer);
    const size_t from = static_cast<size_t>(position_) * own.size();
    if (from + own.size() > all.size()) return own;
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(from);
    return {begin, begin + std::ssize(own)};
  }

  void see(const std::string& name, const Scores& row) const {
    if (sink_) sink_(name, position_, 1, row);
  }

  int64_t layers_;
  Router router_;
  Choose choose_;
  float noise_;
  std::vector<float> past_, hidden_;
  int64_t position_ = 0;
  ProbeSink sink_;
  const runner::ExpertRoutes* routes_ = nullptr;
};

// Returns the `count` best experts, the best first.
inline Experts toy_best(const Scores& scores, size_t count) {
  Experts ids(scores.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  std::ranges::stable_sort(ids, std::greater{}, [&](int64_t e) { return scores[size_t(e)]; });
  ids.resize(count);
  return ids;
}

// Returns the `count` best experts of the half whose best two have the larger sum.
inline Experts toy_best_of_half(const Scores& scores, size_t count) {
  const auto half = static_cast<std::ptrdiff_t>(scores.size() / 2);
  const auto worth = [&](std::ptrdiff_t begin) {
    const Scores part(scores.begin() + begin, scores.begin() + begin + half);
    const Experts best = toy_best(part, 2);
    return part[size_t(best[0])] + part[size_t(best[1])];
  };
  const std::ptrdiff_t begin = worth(0) >= worth(half) ? 0 : half;
  Scores masked(scores.size(), -100.0F);
  std::copy_n(scores.begin() + begin, half, masked.begin() + begin);
  return toy_best(masked, count);
}

// Returns the outputs of `model` for the tokens 0, 1, ... as a prompt of a reference, with or
// without hidden states.
inline MemorySource toy_reference(ToyRouter& model, int64_t tokens, bool hidden_states) {
  std::map<std::string, std::vector<float>> rows;
  std::vector<int64_t> ids;
  (void)model.set_probe_sink(
      [&](const std::string& name, int64_t, int64_t, std::span<const float> row) {
        rows[name].insert(rows[name].end(), row.begin(), row.end());
      });
  model.restart(tokens);
  std::vector<float> logits;
  for (int64_t t = 0; t < tokens; ++t) {
    ids.push_back(t % ToyRouter::kWidth);
    const std::span<const float> row = model.forward({&ids.back(), 1}).value();
    logits.insert(logits.end(), row.begin(), row.end());
  }
  (void)model.set_probe_sink({});
  MemorySource source("toy");
  source.add("p.input_ids", DType::kI64, {1, tokens}, ids);
  source.add("p.logits", DType::kF32, {1, tokens, ToyRouter::kWidth}, logits);
  for (const auto& [name, values] : rows) {
    const bool hidden = name.starts_with("hidden_states.") || name == "last_layer_prenorm";
    if (!hidden_states || !hidden) continue;
    source.add("p." + name, DType::kF32, {1, tokens, ToyRouter::kWidth}, values);
  }
  return source;
}

}  // namespace ferry::proof
