#include "runner/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/checked.h"
#include "core/text.h"

namespace ferry {
namespace {

// What a reference tensor is compared with.
struct Subject {
  enum class Kind { kProbe, kKvCache, kState } kind = Kind::kProbe;
  std::string name;    // in the reference
  std::string source;  // probe or buffer of the bundle
  int64_t layer = 0;
  int order = 0;  // within the layer
};

struct CacheName {
  std::string_view reference, buffer;
  Subject::Kind kind;
};
constexpr CacheName kCaches[] = {
    {"key", "kv_cache.k_cache", Subject::Kind::kKvCache},
    {"value", "kv_cache.v_cache", Subject::Kind::kKvCache},
    {"conv_state", "conv_state", Subject::Kind::kState},
    {"recurrent_state", "recurrent_state", Subject::Kind::kState},
};

// Every tensor that a reference can hold for a model of `layers` layers, in model order.
std::vector<Subject> subjects(int64_t layers) {
  std::vector<Subject> all;
  const auto probe = [&](const std::string& name, int64_t layer) {
    all.push_back({Subject::Kind::kProbe, name, name, layer, 9});
  };
  probe("hidden_states.0", -1);
  for (int64_t n = 0; n < layers; ++n) {
    int order = 0;
    for (const CacheName& cache : kCaches) {
      all.push_back({cache.kind, fmt::format("cache.{}.{}", n, cache.reference),
                     fmt::format("layers.{}.attention.{}", n, cache.buffer), n, order++});
    }
    const bool last = n + 1 == layers;
    probe(last ? "last_layer_prenorm" : fmt::format("hidden_states.{}", n + 1), n);
  }
  probe(fmt::format("hidden_states.{}", layers), layers);
  return all;
}

struct BundleNames {
  std::set<std::string> probes, buffers;
  explicit BundleNames(const Manifest& manifest) {
    for (const ManifestProgram& program : manifest.programs) {
      for (const ManifestProbe& probe : program.probes) probes.insert(probe.name);
      for (const ManifestBuffer& buffer : program.buffers) buffers.insert(buffer.name);
    }
  }
  bool has(const Subject& s) const {
    return (s.kind == Subject::Kind::kProbe ? probes : buffers).contains(s.source);
  }
};

Result<std::vector<float>> floats_of(const TensorView& view, const std::string& name) {
  if (view.dtype != DType::kF32) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("buffer '{}' is {}, not f32", name, dtype_name(view.dtype)));
  }
  std::vector<float> values(view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), view.bytes.data(), values.size() * sizeof(float));
  return values;
}

// Runs one prompt. Members hold what is compared while the decoder runs.
class CaseRunner {
 public:
  CaseRunner(Decoder& decoder, const Manifest& manifest, const Reference& reference,
             const ReferencePrompt& prompt, double tolerance)
      : decoder_(decoder),
        manifest_(manifest),
        reference_(reference),
        prompt_(prompt),
        tolerance_(tolerance),
        tokens_(static_cast<int64_t>(prompt.input_ids.size())) {}

  Result<CaseReport> run();

 private:
  using Row = std::span<const float>;

  Status check_prompt() const;
  Status load(const std::vector<Subject>& subjects, const BundleNames& names);
  Status run_steps();
  Status run_prefill();
  Status run_greedy(std::vector<float> logits);
  Status compare_caches();
  Status compare_cache(const Subject& subject);
  void compare_probe(const std::string& name, int64_t position, int64_t rows, Row values);
  void compare_logits(Row got, int64_t position, LogitComparison& into);
  void judge();

  Row expected_row(int64_t position) const {
    return Row(logits_).subspan(static_cast<size_t>(position * manifest_.vocab_size),
                                static_cast<size_t>(manifest_.vocab_size));
  }
  // Closes the comparison of one way: its metrics are judged by their own scale.
  void close_way();

  Decoder& decoder_;
  const Manifest& manifest_;
  const Reference& reference_;
  const ReferencePrompt& prompt_;
  const double tolerance_;
  const int64_t tokens_;
  CaseReport report_;
  std::vector<float> logits_;                           // (T, vocab) expected
  std::vector<double> logits_f64_;                      // (T, vocab) or empty
  std::map<std::string, std::vector<float>> expected_;  // by reference name
  std::vector<Subject> compared_;
  std::map<std::string, ValueComparison> running_;  // of the present way, by reference name
};

Status CaseRunner::check_prompt() const {
  const std::string who = fmt::format("{}: prompt {}", reference_.path(), quoted(prompt_.name));
  if (tokens_ > manifest_.context_length) {
    return bad_input(fmt::format("{} has {} tokens, the bundle's context is {}", who, tokens_,
                                 manifest_.context_length));
  }
  for (int64_t id : prompt_.input_ids) {
    if (id < 0 || id >= manifest_.vocab_size) {
      return bad_input(fmt::format("{}: token {} is outside of the bundle's vocabulary of {}", who,
                                   id, manifest_.vocab_size));
    }
  }
  if (!prompt_.has("logits")) return bad_input(fmt::format("{} has no logits", who));
  return {};
}

Status CaseRunner::load(const std::vector<Subject>& all, const BundleNames& names) {
  const Shape shape = {1, tokens_, manifest_.vocab_size};
  logits_ = FERRY_TRY(reference_.floats(prompt_, "logits", shape));
  if (prompt_.has("logits_f64")) {
    logits_f64_ = FERRY_TRY(reference_.doubles(prompt_, "logits_f64", shape));
    report_.truth.emplace();
    for (size_t i = 0; i < logits_.size(); ++i) {
      const double distance = std::fabs(static_cast<double>(logits_[i]) - logits_f64_[i]);
      report_.truth->reference = std::max(report_.truth->reference, distance);
    }
  }
  std::set<std::string> known = {"logits", "logits_f64", "greedy_ids", "greedy_logits"};
  for (const Subject& subject : all) {
    if (!prompt_.has(subject.name) || !names.has(subject)) continue;
    known.insert(subject.name);
    compared_.push_back(subject);
    report_.layers.push_back({.name = subject.name, .layer = subject.layer, .metrics = {}});
    if (subject.kind == Subject::Kind::kProbe) {
      const Shape hidden = {1, tokens_, manifest_.hidden_size};
      expected_[subject.name] = FERRY_TRY(reference_.floats(prompt_, subject.name, hidden));
    }
  }
  for (const auto& [tensor, entry] : prompt_.tensors) {
    if (!known.contains(tensor)) report_.not_compared.push_back(tensor);
  }
  return {};
}

void CaseRunner::compare_probe(const std::string& name, int64_t position, int64_t rows,
                               Row values) {
  const auto want = expected_.find(name);
  if (want == expected_.end()) return;
  const auto width = static_cast<size_t>(manifest_.hidden_size);
  // Rows of the continuation have no reference.
  const int64_t known = std::min(rows, tokens_ - position);
  if (known <= 0 || values.size() != static_cast<size_t>(rows) * width) return;
  const size_t count = static_cast<size_t>(known) * width;
  running_[name].add(values.first(count),
                     Row(want->second).subspan(static_cast<size_t>(position) * width, count));
}

void CaseRunner::compare_logits(Row got, int64_t position, LogitComparison& into) {
  into.add_row(got, expected_row(position));
  if (!report_.truth) return;
  const size_t first = static_cast<size_t>(position * manifest_.vocab_size);
  for (size_t i = 0; i < got.size(); ++i) {
    const double distance = std::fabs(static_cast<double>(got[i]) - logits_f64_[first + i]);
    report_.truth->ours =
        std::max(report_.truth->ours, std::isfinite(distance) ? distance : kBeyondAnyBound);
  }
}

Status CaseRunner::compare_cache(const Subject& subject) {
  const TensorView view = FERRY_TRY(decoder_.buffer(subject.source));
  const std::vector<float> got = FERRY_TRY(floats_of(view, subject.source));
  ValueComparison& comparison = running_[subject.name];
  if (subject.kind == Subject::Kind::kState) {
    comparison.add(got, FERRY_TRY(reference_.floats(prompt_, subject.name, view.shape)));
    return {};
  }
  // Ours is [1, context, heads, dim]; the reference is [1, heads, T, dim].
  if (view.shape.size() != 4 || view.shape[1] < tokens_) {
    return bad_input(fmt::format("buffer '{}' has shape {}, not [1, context, heads, dim]",
                                 subject.source, to_string(view.shape)));
  }
  const int64_t heads = view.shape[2];
  const int64_t dim = view.shape[3];
  const std::vector<float> want =
      FERRY_TRY(reference_.floats(prompt_, subject.name, {1, heads, tokens_, dim}));
  const auto width = static_cast<size_t>(dim);
  for (int64_t t = 0; t < tokens_; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      comparison.add(Row(got).subspan(static_cast<size_t>(t * heads + h) * width, width),
                     Row(want).subspan(static_cast<size_t>(h * tokens_ + t) * width, width));
    }
  }
  return {};
}

Status CaseRunner::compare_caches() {
  for (const Subject& subject : compared_) {
    if (subject.kind != Subject::Kind::kProbe) FERRY_CHECK(compare_cache(subject));
  }
  return {};
}

void CaseRunner::close_way() {
  for (LayerResult& layer : report_.layers) {
    const auto found = running_.find(layer.name);
    if (found == running_.end()) continue;
    const ValueMetrics metrics = found->second.metrics();
    layer.metrics = layer.metrics.count == 0 ? metrics : worse(layer.metrics, metrics);
    layer.within = layer.within && within(metrics, tolerance_);
  }
  running_.clear();
}

Status CaseRunner::run_steps() {
  LogitComparison logits;
  // The reference computed all of the prompt as a sequence of its whole length.
  decoder_.restart(tokens_);
  for (int64_t t = 0; t < tokens_; ++t) {
    const std::vector<float> row =
        FERRY_TRY(decoder_.forward({&prompt_.input_ids[static_cast<size_t>(t)], 1}));
    if (row.size() != static_cast<size_t>(manifest_.vocab_size)) {
      return bad_input("the bundle's logits are not [1, vocabulary]");
    }
    compare_logits(row, t, logits);
  }
  FERRY_CHECK(compare_caches());
  close_way();
  report_.steps = logits.metrics();
  return {};
}

Status CaseRunner::run_prefill() {
  LogitComparison comparison;
  decoder_.restart();
  const std::vector<float> logits = FERRY_TRY(decoder_.forward(prompt_.input_ids));
  const auto vocab = static_cast<size_t>(manifest_.vocab_size);
  const size_t rows = logits.size() / vocab;
  if (rows == 0 || rows * vocab != logits.size() || rows > prompt_.input_ids.size()) {
    return bad_input("the bundle's logits are not [rows, vocabulary]");
  }
  for (size_t r = 0; r < rows; ++r) {
    compare_logits(Row(logits).subspan(r * vocab, vocab), tokens_ - static_cast<int64_t>(rows - r),
                   comparison);
  }
  FERRY_CHECK(compare_caches());
  close_way();
  report_.prefill = comparison.metrics();
  return run_greedy({logits.end() - static_cast<std::ptrdiff_t>(vocab), logits.end()});
}

Status CaseRunner::run_greedy(std::vector<float> row) {
  if (!prompt_.has("greedy_ids")) return {};
  const std::vector<int64_t> ids = FERRY_TRY(reference_.ids(prompt_, "greedy_ids"));
  report_.greedy_total = static_cast<int64_t>(ids.size());
  if (tokens_ + report_.greedy_total - 1 > manifest_.context_length) {
    return bad_input(
        fmt::format("{}: prompt {} and its continuation have {} tokens, the bundle's "
                    "context is {}",
                    reference_.path(), quoted(prompt_.name), tokens_ + report_.greedy_total - 1,
                    manifest_.context_length));
  }
  const auto vocab = static_cast<size_t>(manifest_.vocab_size);
  std::vector<float> expected;
  if (prompt_.has("greedy_logits")) {
    expected = FERRY_TRY(
        reference_.floats(prompt_, "greedy_logits", {report_.greedy_total, manifest_.vocab_size}));
  }
  LogitComparison comparison;
  for (size_t g = 0; g < ids.size(); ++g) {
    const Row want = expected.empty() ? Row() : Row(expected).subspan(g * vocab, vocab);
    if (!want.empty()) comparison.add_row(row, want);
    const auto ours = static_cast<int64_t>(argmax(row));
    if (ours != ids[g]) {
      report_.greedy_tie = !want.empty() && top_margin(want) <= 2 * tolerance_;
      break;
    }
    report_.greedy_match += 1;
    if (g + 1 < ids.size()) row = FERRY_TRY(decoder_.forward({&ours, 1}));
  }
  report_.greedy = comparison.metrics();
  return {};
}

void CaseRunner::judge() {
  for (const LayerResult& layer : report_.layers) {
    if (layer.metrics.count == 0) report_.not_compared.push_back(layer.name);
  }
  std::erase_if(report_.layers, [](const LayerResult& layer) { return layer.metrics.count == 0; });
  const ValueMetrics logits = report_.worst().values;
  const bool greedy_ok = report_.greedy_match == report_.greedy_total || report_.greedy_tie;
  report_.parity = logits.finite && logits.max_abs <= tolerance_ && greedy_ok &&
                   std::ranges::all_of(report_.layers, &LayerResult::within);
}

Result<CaseReport> CaseRunner::run() {
  report_.prompt = prompt_.name;
  report_.tokens = tokens_;
  if (prompt_.has("pixel_values") || prompt_.has("image_features")) {
    report_.skipped = "needs images, which this bundle does not take";
    return report_;
  }
  FERRY_CHECK(check_prompt());
  FERRY_CHECK(load(subjects(manifest_.num_layers), BundleNames(manifest_)));
  FERRY_CHECK(
      decoder_.set_probe_sink([this](const std::string& name, int64_t position, int64_t rows,
                                     Row values) { compare_probe(name, position, rows, values); }));
  Status done = run_steps();
  if (done) done = run_prefill();
  FERRY_CHECK(decoder_.set_probe_sink({}));
  FERRY_CHECK(std::move(done));
  judge();
  return report_;
}

// The worst of every layer over all prompts, in model order.
std::vector<LayerResult> worst_layers(const std::vector<CaseReport>& cases, int64_t num_layers) {
  std::map<std::string, LayerResult> by_name;
  for (const CaseReport& c : cases) {
    for (const LayerResult& layer : c.layers) {
      const auto [at, fresh] = by_name.emplace(layer.name, layer);
      if (fresh) continue;
      at->second.metrics = worse(at->second.metrics, layer.metrics);
      at->second.within = at->second.within && layer.within;
    }
  }
  std::vector<LayerResult> layers;
  for (const Subject& subject : subjects(num_layers)) {
    const auto found = by_name.find(subject.name);
    if (found != by_name.end()) layers.push_back(found->second);
  }
  return layers;
}

std::optional<Divergence> first_divergence(const ParityReport& report, int64_t num_layers) {
  for (const LayerResult& layer : report.layers) {
    if (!layer.within) return Divergence{layer.layer, layer.name};
  }
  if (report.parity) return std::nullopt;
  return Divergence{num_layers, "logits"};
}

}  // namespace

LogitMetrics CaseReport::worst() const {
  LogitMetrics all = worse(worse(prefill, steps), greedy);
  double agreeing = 0;
  for (const LogitMetrics& way : {prefill, steps, greedy}) {
    agreeing += way.top1_agreement * static_cast<double>(way.rows);
  }
  if (all.rows > 0) all.top1_agreement = agreeing / static_cast<double>(all.rows);
  return all;
}

Result<ParityReport> verify(Decoder& decoder, const Manifest& manifest, const Reference& reference,
                            double tolerance) {
  ParityReport report;
  report.tolerance = tolerance;
  bool any = false;
  for (const ReferencePrompt& prompt : reference.prompts()) {
    CaseReport one = FERRY_TRY(CaseRunner(decoder, manifest, reference, prompt, tolerance).run());
    if (one.skipped.empty()) {
      report.metrics = any ? worse(report.metrics, one.worst()) : one.worst();
      report.greedy_match += one.greedy_match;
      report.greedy_total += one.greedy_total;
      report.parity = report.parity && one.parity;
      any = true;
    }
    report.cases.push_back(std::move(one));
  }
  if (!any) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: every prompt {}", reference.path(), report.cases[0].skipped));
  }
  report.layers = worst_layers(report.cases, manifest.num_layers);
  report.first_divergence = first_divergence(report, manifest.num_layers);
  return report;
}

}  // namespace ferry
