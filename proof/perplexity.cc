#include "proof/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/program_interface.h"
#include "core/text.h"
#include "proof/checkpoint_execution.h"
#include "proof/parity.h"

namespace ferry::proof {
namespace {

Result<double> log_loss(std::span<const float> logits, int64_t token) {
  const double loss = log_sum_exp(logits) - static_cast<double>(logits[static_cast<size_t>(token)]);
  if (std::isfinite(loss)) return loss;
  if (loss > 0) return bad_input(fmt::format("token {} has probability 0", token));
  return bad_input("the logits are not finite");
}

constexpr size_t kTop = 5;

// Returns the tokens with the largest logits, largest first; equal logits in the order of tokens.
std::vector<size_t> likeliest(std::span<const float> logits) {
  std::vector<size_t> top;
  for (size_t token = 0; token < logits.size(); ++token) {
    if (top.size() == kTop && logits[token] <= logits[top.back()]) continue;
    const auto at =
        std::ranges::find_if(top, [&](size_t other) { return logits[token] > logits[other]; });
    top.insert(at, token);
    if (top.size() > kTop) top.pop_back();
  }
  return top;
}

void compare_tops(std::span<const float> logits, std::span<const float> other, size_t token,
                  PerplexityComparison& comparison) {
  const std::vector<size_t> ours = likeliest(logits), theirs = likeliest(other);
  comparison.top1.add(ours.front() == theirs.front() ? 1 : 0);
  const auto common = std::ranges::count_if(
      theirs, [&](size_t candidate) { return std::ranges::count(ours, candidate) > 0; });
  comparison.top5.add(static_cast<double>(common) / static_cast<double>(theirs.size()));
  comparison.flips.add((ours.front() == token) != (theirs.front() == token) ? 1 : 0);
}

}  // namespace

void MeanEstimate::add(double sample) {
  count_ += 1;
  sum_ += sample;
  const double before = sample - mean_;
  mean_ += before / static_cast<double>(count_);
  squares_ += before * (sample - mean_);
}

double MeanEstimate::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

double MeanEstimate::standard_error() const {
  if (count_ < 2) return 0;
  const auto n = static_cast<double>(count_);
  return std::sqrt(std::max(squares_, 0.0) / n / (n - 1));
}

double Perplexity::value() const { return std::exp(nll.mean()); }
double Perplexity::standard_error() const { return value() * nll.standard_error(); }

double PerplexityComparison::kl_max() const {
  return divergences.empty() ? 0 : *std::ranges::max_element(divergences);
}

double PerplexityComparison::kl_quantile(double share) const {
  if (divergences.empty()) return 0;
  std::vector<float> sorted = divergences;
  const auto n = static_cast<double>(sorted.size());
  const auto at = static_cast<size_t>(std::clamp(std::ceil(share * n) - 1, 0.0, n - 1));
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(at));
  return sorted[at];
}

double PerplexityComparison::kl_quantile_error(double share) const {
  const auto n = static_cast<double>(divergences.size());
  if (n < 2) return 0;
  const double deviation = std::sqrt(share * (1 - share) / n);
  return (kl_quantile(std::min(share + deviation, 1.0)) - kl_quantile(share - deviation)) / 2;
}

std::vector<CheckedLimit> check_limits(const PerplexityComparison& comparison,
                                       const QualityLimits& limits) {
  std::vector<CheckedLimit> checked;
  const auto at_most = [&](const char* name, double value, const std::optional<double>& limit) {
    if (limit) checked.push_back({name, value, *limit, value <= *limit});
  };
  const auto at_least = [&](const char* name, double value, const std::optional<double>& limit) {
    if (limit) checked.push_back({name, value, *limit, value >= *limit});
  };
  at_most("kl_mean", comparison.kl.mean(), limits.kl_mean);
  at_most("kl_p999", comparison.kl_quantile(kTailShare), limits.kl_tail);
  at_least("top1_agreement", comparison.top1.mean(), limits.top1);
  at_least("top5_agreement", comparison.top5.mean(), limits.top5);
  at_most("flips", comparison.flips.mean(), limits.flips);
  return checked;
}

Status add_prediction(std::span<const float> logits, int64_t token, Perplexity& to) {
  to.nll.add(FERRY_TRY(log_loss(logits, token)));
  return {};
}

Status add_predictions(std::span<const float> logits, std::span<const float> other, int64_t token,
                       Perplexity& to, PerplexityComparison& comparison) {
  const double ours = FERRY_TRY(log_loss(logits, token));
  const double theirs = FERRY_TRY(log_loss(other, token));
  const double kl = kl_divergence(logits, other);
  if (!std::isfinite(kl)) {
    return bad_input("a token that the other model may choose has probability 0");
  }
  to.nll.add(ours);
  comparison.other.nll.add(theirs);
  comparison.nll_difference.add(ours - theirs);
  comparison.kl.add(kl);
  compare_tops(logits, other, static_cast<size_t>(token), comparison);
  comparison.divergences.push_back(static_cast<float>(kl));
  return {};
}

std::vector<TokenWindow> windows_of(std::span<const std::vector<int64_t>> sequences,
                                    const WindowOptions& options) {
  std::vector<TokenWindow> windows;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t tokens = std::ssize(sequences[i]);
    int64_t seen = 0;
    for (int64_t begin = 0; seen < tokens; begin += options.stride) {
      const int64_t end = std::min(begin + options.window, tokens);
      const int64_t counted = std::max(seen, begin + 1);
      if (counted < end) windows.push_back({i, begin, end, counted});
      seen = end;
    }
  }
  return windows;
}

namespace {

// Limits the logits of a part. With this limit calls have a hundred rows and more, which costs no
// speed.
constexpr int64_t kPartBytes = int64_t{64} << 20;
constexpr int64_t kMaxPartRows = 512;

struct WindowCall {
  size_t window = 0;
  int64_t position = 0, tokens = 0;
  int64_t input_pos = 0;
  bool counted = false;  // whether the logits of the call are needed
  PassedTensors passed = {};
};

// Returns all calls for the windows, in order: the tokens before the counted ones, then the parts
// of for_each_part().
std::vector<WindowCall> window_calls(const WindowedTokens& tokens, int64_t vocab_size,
                                     std::optional<int64_t> rope_switch) {
  std::vector<WindowCall> calls;
  const auto add = [&](size_t window, int64_t position, int64_t count, bool counted) {
    // Programs with switched RoPE factors take the complement of a position as a sign of a long
    // sequence.
    const bool is_long = rope_switch && tokens.windows[window].tokens() > *rope_switch;
    calls.push_back({window, position, count, is_long ? -1 - position : position, counted});
  };
  const int64_t most = rows_of_part(vocab_size);
  std::optional<size_t> current;
  (void)for_each_part(tokens, vocab_size, [&](size_t i, int64_t at, int64_t rows) -> Status {
    for (int64_t p = 0; std::exchange(current, i) != i && p < at; p += most) {
      add(i, p, std::min(most, at - p), /*counted=*/false);
    }
    add(i, at, rows, /*counted=*/true);
    return {};
  });
  return calls;
}

Status visit_logits(WindowCall& call, const WindowLogits& visit) {
  const auto found = call.passed.find(std::string(kLogitsPort));
  if (found == call.passed.end()) return {};
  const Passed logits = std::move(found->second);
  call.passed.erase(found);
  if (!call.counted) return {};
  return visit(call.window, call.position,
               runner::probe_floats({logits.dtype, logits.shape, logits.bytes}));
}

// Returns, for each tensor name, the last part that takes the tensor.
std::map<std::string, const graph::Model*> last_users(const plan::Conversion& conversion) {
  std::map<std::string, const graph::Model*> users;
  for (const plan::ConvertedComponent& component : conversion.components) {
    for (const graph::Model& part : component.parts) {
      for (const graph::MethodGraph& method : part.methods) {
        const graph::Graph& graph = method.graph;
        for (const graph::ValueId input : graph.inputs) users[graph[input].name] = &part;
      }
    }
  }
  return users;
}

}  // namespace

std::span<const int64_t> WindowedTokens::tokens_of(const TokenWindow& window) const {
  return std::span(sequences[window.sequence])
      .subspan(static_cast<size_t>(window.begin), static_cast<size_t>(window.tokens()));
}

int64_t WindowedTokens::counted() const {
  int64_t sum = 0;
  for (const TokenWindow& window : windows) sum += window.end - window.counted;
  return sum;
}

bool gives_all_logits(const packer::Manifest& manifest) {
  return manifest.all_logits || manifest.program_style == kStaticStyle;
}

WindowReader::WindowReader(runner::Decoder& decoder, const packer::Manifest& manifest,
                           const WindowedTokens& tokens, std::string name)
    : decoder_(decoder),
      tokens_(tokens),
      name_(std::move(name)),
      vocab_(static_cast<size_t>(manifest.vocab_size)),
      all_logits_(gives_all_logits(manifest)) {}

// With `keep` the logits of all tokens are added to rows_.
Status WindowReader::run(std::span<const int64_t> tokens, bool keep) {
  if (tokens.empty()) return {};
  if (!keep) {
    FERRY_RETURN_IF_ERROR(decoder_.forward(tokens));
    return {};
  }
  if (!all_logits_) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto row = FERRY_TRY(decoder_.forward(tokens.subspan(i, 1)));
      rows_.insert(rows_.end(), row.begin(), row.end());
    }
    return {};
  }
  decoder_.set_logits_sink([this](int64_t, int64_t, std::span<const float> values) {
    rows_.insert(rows_.end(), values.begin(), values.end());
  });
  const auto last = decoder_.forward(tokens);
  decoder_.set_logits_sink({});
  FERRY_RETURN_IF_ERROR(last);
  return {};
}

Result<std::span<const float>> WindowReader::rows(size_t index, int64_t position, int64_t count) {
  const TokenWindow& window = tokens_.windows[index];
  const std::span<const int64_t> tokens = tokens_.tokens_of(window);
  // The length of the window decides the RoPE factors if they depend on it.
  if (window_ != index) decoder_.restart(window.tokens());
  window_ = index;
  const int64_t done = decoder_.position();
  FERRY_RETURN_IF_ERROR(
      run(tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(position - done)),
          /*keep=*/false));
  rows_.clear();
  FERRY_RETURN_IF_ERROR(
      run(tokens.subspan(static_cast<size_t>(position), static_cast<size_t>(count)),
          /*keep=*/true));
  if (rows_.size() != static_cast<size_t>(count) * vocab_) {
    return bad_input(fmt::format("{}: the logits are not [rows, vocabulary]", printable(name_)));
  }
  return std::span<const float>(rows_);
}

int64_t rows_of_part(int64_t vocab_size) {
  const int64_t row = vocab_size * static_cast<int64_t>(sizeof(float));
  return std::clamp<int64_t>(kPartBytes / row, 1, kMaxPartRows);
}

Status for_each_part(const WindowedTokens& tokens, int64_t vocab_size, const VisitRows& visit) {
  const int64_t most = rows_of_part(vocab_size);
  for (size_t i = 0; i < tokens.windows.size(); ++i) {
    const TokenWindow& window = tokens.windows[i];
    // A token is predicted from the row before it, so the last token of a window is not run.
    const int64_t last = window.tokens() - 1;
    for (int64_t at = window.counted - window.begin - 1; at < last; at += most) {
      FERRY_RETURN_IF_ERROR(visit(i, at, std::min(most, last - at)));
    }
  }
  return {};
}

Status PerplexityMeter::place(Status status, size_t index, int64_t position) const {
  if (status) return status;
  const Error error = std::move(status).error();
  const TokenWindow& window = tokens_.windows[index];
  const std::string names = other_.empty() ? printable(reader_.name())
                                           : printable(reader_.name()) + ", " + printable(other_);
  return fail(error.code, fmt::format("{}: sequence {}, token {}: {}", names, window.sequence + 1,
                                      window.begin + position + 1, error.message));
}

Status PerplexityMeter::add_rows(size_t index, int64_t position, int64_t count, Row other) {
  const Row ours = FERRY_TRY(reader_.rows(index, position, count));
  const std::span<const int64_t> tokens = tokens_.tokens_of(tokens_.windows[index]);
  Perplexity& sum = result_.perplexity;
  for (int64_t i = 0; i < count; ++i) {
    const size_t from = static_cast<size_t>(i) * vocab_;
    const int64_t next = position + i + 1;
    const int64_t token = tokens[static_cast<size_t>(next)];
    const Row row = ours.subspan(from, vocab_);
    FERRY_RETURN_IF_ERROR(place(other.empty() ? add_prediction(row, token, sum)
                                              : add_predictions(row, other.subspan(from, vocab_),
                                                                token, sum, result_.comparison),
                                index, next));
  }
  if (progress_) progress_(static_cast<uint64_t>(sum.nll.count()), total_);
  return {};
}

Result<Perplexity> measure_perplexity(WindowReader& reader, const WindowedTokens& tokens,
                                      int64_t vocab_size, const Progress& progress) {
  PerplexityMeter meter(reader, tokens, vocab_size, progress, {});
  FERRY_RETURN_IF_ERROR(for_each_part(tokens, vocab_size, [&](size_t i, int64_t at, int64_t rows) {
    return meter.add(i, at, rows);
  }));
  return std::move(meter).result().perplexity;
}

Result<ComparedPerplexity> compare_perplexity(WindowReader& reader, WindowReader& other,
                                              const WindowedTokens& tokens, int64_t vocab_size,
                                              const Progress& progress) {
  PerplexityMeter meter(reader, tokens, vocab_size, progress, other.name());
  FERRY_RETURN_IF_ERROR(
      for_each_part(tokens, vocab_size, [&](size_t i, int64_t at, int64_t rows) -> Status {
        return meter.add_beside(i, at, FERRY_TRY(other.rows(i, at, rows)));
      }));
  return std::move(meter).result();
}

Status run_f32_windows(const plan::Conversion& conversion, const WindowedTokens& tokens,
                       const std::string& name, ThreadPool& pool, const WindowLogits& visit) {
  std::vector<WindowCall> calls = window_calls(tokens, conversion.mapped.config.vocab_size,
                                               conversion.plan->manifest().rope_switch);
  const std::map<std::string, const graph::Model*> users = last_users(conversion);
  for (const plan::ConvertedComponent& component : conversion.components) {
    if (packer::row_encoder(conversion.plan->manifest(), component.role)) continue;
    for (const graph::Model& model : component.parts) {
      const auto part =
          FERRY_TRY(LoadedPart::load(model, weights_from(*conversion.mapped.source), pool, name));
      for (WindowCall& call : calls) {
        const auto window = tokens.tokens_of(tokens.windows[call.window]);
        FERRY_RETURN_IF_ERROR(part->run(
            window.subspan(static_cast<size_t>(call.position), static_cast<size_t>(call.tokens)),
            call.input_pos, call.passed));
        FERRY_RETURN_IF_ERROR(visit_logits(call, visit));
        // The hidden states of all windows are kept, but only of one layer.
        std::erase_if(call.passed, [&](const auto& tensor) {
          const auto user = users.find(tensor.first);
          return user == users.end() || user->second == &model;
        });
      }
    }
  }
  return {};
}

}  // namespace ferry::proof
