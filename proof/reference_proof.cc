#include "proof/reference_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "proof/encoder_input.h"
#include "proof/prompt_images.h"
#include "proof/reference_check.h"
#include "proof/row_ports.h"
#include "proof/tower_comparison.h"
#include "runner/sampler.h"

namespace ferry::proof {
namespace {

constexpr std::string_view kRoutePrefix = "router_experts.";

std::set<std::string> probe_names_of(const packer::Manifest& manifest) {
  std::set<std::string> probes;
  for (const packer::ManifestProgram* program : manifest.programs()) {
    for (const packer::ManifestMethod& method : program->methods) {
      for (const packer::ManifestProbe& probe : method.probes) probes.insert(probe.name);
    }
  }
  // A decoder that takes embeddings gives them as a probe.
  if (manifest.find(kTokenEmbeddingRole) != nullptr) probes.insert(runner::kEmbeddingsProbe);
  return probes;
}

Result<std::vector<float>> floats_of(const runner::TensorView& view, const std::string& name) {
  if (view.dtype != DType::kF32) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("buffer {} is {}, not f32", quoted(name), dtype_name(view.dtype)));
  }
  std::vector<float> values(view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), view.bytes.data(), values.size() * sizeof(float));
  return values;
}

// Runs one prompt. The members hold the expected values while the decoder runs.
class CaseRunner {
 public:
  CaseRunner(runner::Decoder& decoder, const packer::Manifest& manifest, const Reference& reference,
             const ReferencePrompt& prompt, const ParityBounds& bounds,
             const VerifyOptions& options, const std::function<void(size_t)>& advance)
      : decoder_(decoder),
        manifest_(manifest),
        reference_(reference),
        prompt_(prompt),
        bounds_(bounds),
        options_(options),
        advance_(advance),
        tokens_(static_cast<int64_t>(prompt.input_ids.size())) {
    if (!options.details) return;
    details_.emplace(prompt.input_ids, columns_for(reference.prompts().size()), bounds);
  }

  Result<CaseReport> run();

 private:
  using Row = std::span<const float>;

  Status load(const std::vector<ReferenceTensor>& tensors);
  Status load_routes();
  // Sets images_. Compares the output of the vision encoder for the pixels with the reference.
  Status load_images();
  Status encode_images(runner::VisionEncoder& encoder, PromptImages& images);
  // Gives the decoder what its encoder reads, and compares the tensors of the encoder.
  Status encode();
  bool has_routes(const ReferencePrompt& prompt) const {
    for (int64_t layer = 0; layer < manifest_.num_layers; ++layer) {
      if (prompt.has(route_name(layer))) return true;
    }
    return false;
  }
  // Returns the prompt in VerifyOptions::recorded, or nullptr.
  const ReferencePrompt* recorded_prompt() const {
    if (options_.recorded == nullptr) return nullptr;
    const auto found =
        std::ranges::find(options_.recorded->prompts(), prompt_.name, &ReferencePrompt::name);
    return found == options_.recorded->prompts().end() ? nullptr : &*found;
  }
  // Returns the logits that tokens of the continuation were chosen from, if they are known.
  Result<std::vector<float>> greedy_logits(int64_t rows) const;
  Status run_steps();
  Status run_prefill();
  // Continues with the reference's token if the bundle's differs and the bounds explain the
  // difference.
  Status run_greedy(Row logits);
  Status compare_caches();
  Status compare_cache(const ReferenceTensor& tensor);
  void compare_probe(const std::string& name, int64_t position, int64_t rows, Row values);
  void compare_routes(int64_t layer, int64_t position, Row chosen);
  void compare_logits(Row got, int64_t position, LogitComparison& into);

  Row expected_row(int64_t position) const {
    return Row(logits_).subspan(static_cast<size_t>(position * manifest_.vocab_size),
                                static_cast<size_t>(manifest_.vocab_size));
  }
  const TensorNoise* noise_of(const std::string& tensor) const {
    return bounds_.noise_of(prompt_.name, tensor);
  }
  // Returns the comparison of a tensor in the current execution.
  ValueComparison& comparison_of(const std::string& tensor) {
    return running_.try_emplace(tensor, noise_of(tensor)).first->second;
  }
  // Ends the comparison of one execution. Its metrics are judged by their own scale.
  void close_way();

  runner::Decoder& decoder_;
  const packer::Manifest& manifest_;
  const Reference& reference_;
  const ReferencePrompt& prompt_;
  const ParityBounds& bounds_;
  const VerifyOptions& options_;
  const std::function<void(size_t)>& advance_;  // counts tokens that were run
  const int64_t tokens_;
  CaseReport report_;
  std::optional<DetailCollector> details_;              // set if details were requested
  std::vector<float> logits_;                           // [T, vocab] expected
  std::vector<double> logits_f64_;                      // [T, vocab] or empty
  std::map<std::string, std::vector<float>> expected_;  // by name in the reference
  std::vector<ReferenceTensor> compared_;
  runner::ExpertRoutes routes_;
  PromptImages images_;
  // Comparisons of the current execution, by name in the reference.
  std::map<std::string, ValueComparison> running_;
};

Status CaseRunner::load(const std::vector<ReferenceTensor>& all) {
  const std::set<std::string> probes = probe_names_of(manifest_);
  const auto has = [&](const ReferenceTensor& tensor) {
    return tensor.is_probe() ? probes.contains(tensor.source)
                             : decoder_.buffer(tensor.source).has_value();
  };
  const Shape shape = {1, tokens_, manifest_.vocab_size};
  logits_ = FERRY_TRY(reference_.floats(prompt_, "logits", shape));
  if (prompt_.has("logits_f64")) {
    logits_f64_ = FERRY_TRY(reference_.doubles(prompt_, "logits_f64", shape));
    report_.f64.emplace();
    for (size_t i = 0; i < logits_.size(); ++i) {
      const double distance = std::fabs(static_cast<double>(logits_[i]) - logits_f64_[i]);
      report_.f64->reference = std::max(report_.f64->reference, distance);
    }
  }
  std::set<std::string> known = {"logits", "logits_f64", "greedy_ids", "greedy_logits"};
  if (!images_.empty()) {
    known.merge(row_inputs());
    known.insert({std::string(kPictureRows.output), std::string(kSoundRows.output)});
  }
  known.insert({std::string(kInputFeaturesPort), std::string(kInputValuesPort),
                std::string(kSourceIdsPort)});
  for (const LayerResult& layer : report_.layers) known.insert(layer.tensor.name);
  for (const ReferenceTensor& tensor : all) {
    if (!prompt_.has(tensor.name) || !has(tensor)) continue;
    known.insert(tensor.name);
    compared_.push_back(tensor);
    report_.layers.push_back({.tensor = tensor, .metrics = {}});
    if (!tensor.is_probe()) continue;
    const int64_t width = tensor.kind == ReferenceTensor::Kind::kHidden
                              ? manifest_.hidden_size
                              : decoder_.experts_of(tensor.layer).second;
    expected_[tensor.name] =
        FERRY_TRY(reference_.floats(prompt_, tensor.name, {1, tokens_, width}));
  }
  for (int64_t layer = 0; layer < manifest_.num_layers; ++layer) {
    known.insert({route_name(layer), greedy_route_name(layer)});
  }
  FERRY_RETURN_IF_ERROR(load_routes());
  for (const auto& [tensor, entry] : prompt_.tensors) {
    if (!known.contains(tensor)) report_.not_compared.push_back(tensor);
  }
  return {};
}

Status CaseRunner::load_images() {
  if (!has_rows(prompt_, manifest_)) return {};
  images_ = FERRY_TRY(images_of(reference_, prompt_, manifest_));
  for (PromptImages* images : images_.kinds()) {
    runner::VisionEncoder* encoder =
        options_.encoders != nullptr ? options_.encoders->find(*images->encoder) : nullptr;
    if (encoder == nullptr || images->pixels.empty()) continue;
    FERRY_RETURN_IF_ERROR(encode_images(*encoder, *images));
  }
  return {};
}

Status CaseRunner::encode_images(runner::VisionEncoder& encoder, PromptImages& images) {
  TowerComparison tower = FERRY_TRY(compare_tower(encoder, manifest_, reference_, prompt_, images,
                                                  bounds_, details_ ? &*details_ : nullptr));
  std::ranges::move(tower.layers, std::back_inserter(report_.layers));
  images.features = std::move(tower.features);
  return {};
}

Status CaseRunner::encode() {
  const EncoderInput input = FERRY_TRY(encoder_input_of(reference_, prompt_, manifest_));
  if (input.empty()) return {};
  EncoderTensors computed;
  FERRY_RETURN_IF_ERROR(decoder_.set_probe_sink(computed.sink()));
  FERRY_RETURN_IF_ERROR(input.give(decoder_));
  FERRY_RETURN_IF_ERROR(decoder_.set_probe_sink({}));
  for (const EncoderTensors::Tensor& tensor : computed.tensors()) {
    if (!prompt_.has(tensor.name)) continue;
    const std::vector<float> want =
        FERRY_TRY(reference_.floats(prompt_, tensor.name, tensor.shape));
    ValueComparison comparison(noise_of(tensor.name));
    comparison.add(tensor.values, want);
    if (details_) details_->add_whole(tensor.name, tensor.values, want);
    LayerResult& result = report_.layers.emplace_back();
    result.tensor = {ReferenceTensor::Kind::kVision, tensor.name, tensor.name,
                     encoder_layer(tensor.name, manifest_)};
    result.metrics = comparison.metrics();
    result.within = bounds_.within(result.tensor, result.metrics);
  }
  return {};
}

// Loads the routes of the prompt, followed by those of the continuation.
Status CaseRunner::load_routes() {
  const Reference* from = &reference_;
  const ReferencePrompt* prompt = &prompt_;
  if (const ReferencePrompt* recorded = recorded_prompt();
      recorded != nullptr && !has_routes(prompt_)) {
    from = options_.recorded;
    prompt = recorded;
  }
  for (int64_t layer = 0; layer < manifest_.num_layers; ++layer) {
    if (!prompt->has(route_name(layer))) continue;
    const int64_t chosen = decoder_.experts_of(layer).first;
    // A model with another number of experts per token uses its own routes. Its outputs are still
    // compared.
    const Shape& stated = from->shape(*prompt, route_name(layer));
    if (stated.size() == 3 && stated[2] != chosen) {
      report_.routing.choices += tokens_;
      report_.routing.different += tokens_;
      continue;
    }
    std::vector<int64_t>& route = routes_[layer];
    route = FERRY_TRY(from->integers(*prompt, route_name(layer), {1, tokens_, chosen}));
    const std::string more = greedy_route_name(layer);
    if (!prompt->has(more)) continue;
    const Shape& shape = from->shape(*prompt, more);
    const int64_t rows = shape.size() == 3 ? shape[1] : 0;
    const std::vector<int64_t> rest = FERRY_TRY(from->integers(*prompt, more, {1, rows, chosen}));
    route.insert(route.end(), rest.begin(), rest.end());
  }
  return {};
}

// `chosen` is the choice of the bundle's own router.
void CaseRunner::compare_routes(int64_t layer, int64_t position, Row chosen) {
  const auto route = routes_.find(layer);
  if (route == routes_.end()) return;
  const auto k = static_cast<size_t>(decoder_.experts_of(layer).first);
  for (size_t row = 0; row * k < chosen.size(); ++row) {
    const size_t from = (static_cast<size_t>(position) + row) * k;
    if (from + k > route->second.size()) return;
    std::set<int64_t> ours, wanted;
    for (size_t i = 0; i < k; ++i) {
      ours.insert(static_cast<int64_t>(chosen[row * k + i]));
      wanted.insert(route->second[from + i]);
    }
    report_.routing.choices += 1;
    report_.routing.different += ours == wanted ? 0 : 1;
  }
}

void CaseRunner::compare_probe(const std::string& name, int64_t position, int64_t rows,
                               Row values) {
  if (const auto layer = number_after(name, kRoutePrefix)) {
    compare_routes(*layer, position, values);
  }
  const auto want = expected_.find(name);
  if (want == expected_.end()) return;
  const size_t width = want->second.size() / static_cast<size_t>(tokens_);
  // Rows of the continuation have no reference.
  const int64_t known = std::min(rows, tokens_ - position);
  if (known <= 0 || values.size() != static_cast<size_t>(rows) * width) return;
  const size_t count = static_cast<size_t>(known) * width;
  const Row expected = Row(want->second).subspan(static_cast<size_t>(position) * width, count);
  ValueComparison& comparison = comparison_of(name);
  for (int64_t r = 0; r < known; ++r) {
    const size_t at = static_cast<size_t>(r) * width;
    comparison.add_run(position + r, 0, values.subspan(at, width), expected.subspan(at, width));
  }
  if (details_) details_->add_rows(name, position, known, values.first(count), expected);
}

// Nobody reads the logits of image rows before the last, and programs that give the logits of one
// token in a call do not have them.
void CaseRunner::compare_logits(Row got, int64_t position, LogitComparison& into) {
  if (decoder_.tokens_together(position) > 1) return;
  into.add_row(position, got, expected_row(position));
  if (details_) details_->add_logits(position, got, expected_row(position));
  if (!report_.f64) return;
  const size_t first = static_cast<size_t>(position * manifest_.vocab_size);
  for (size_t i = 0; i < got.size(); ++i) {
    const double distance = std::fabs(static_cast<double>(got[i]) - logits_f64_[first + i]);
    report_.f64->ours =
        std::max(report_.f64->ours, std::isfinite(distance) ? distance : kBeyondAnyBound);
  }
}

Status CaseRunner::compare_cache(const ReferenceTensor& tensor) {
  const runner::TensorView view = FERRY_TRY(decoder_.buffer(tensor.source));
  const std::vector<float> got = FERRY_TRY(floats_of(view, tensor.source));
  ValueComparison& comparison = comparison_of(tensor.name);
  if (!tensor.is_kv_cache()) {
    const std::vector<float> state = FERRY_TRY(reference_.floats(prompt_, tensor.name, view.shape));
    comparison.add(got, state);
    if (details_) details_->add_whole(tensor.name, got, state);
    return {};
  }
  // The bundle's cache is [1, context, heads, dim]; the reference's is [1, heads, T, dim].
  if (view.shape.size() != 4 || view.shape[1] < tokens_) {
    return bad_input(fmt::format("buffer {} has shape {}, not [1, context, heads, dim]",
                                 quoted(tensor.source), to_string(view.shape)));
  }
  const int64_t heads = view.shape[2];
  const int64_t dim = view.shape[3];
  const std::vector<float> want =
      FERRY_TRY(reference_.floats(prompt_, tensor.name, {1, heads, tokens_, dim}));
  const auto width = static_cast<size_t>(dim);
  for (int64_t t = 0; t < tokens_; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const Row ours = Row(got).subspan(static_cast<size_t>(t * heads + h) * width, width);
      const Row theirs = Row(want).subspan(static_cast<size_t>(h * tokens_ + t) * width, width);
      comparison.add_run(t, h * dim, ours, theirs);
      if (details_) details_->add_part(tensor.name, t, h * dim, ours, theirs);
    }
  }
  return {};
}

Status CaseRunner::compare_caches() {
  for (const ReferenceTensor& tensor : compared_) {
    if (!tensor.is_probe()) FERRY_RETURN_IF_ERROR(compare_cache(tensor));
  }
  return {};
}

void CaseRunner::close_way() {
  for (LayerResult& layer : report_.layers) {
    const auto found = running_.find(layer.tensor.name);
    if (found == running_.end()) continue;
    const ValueMetrics metrics = found->second.metrics();
    layer.metrics = layer.metrics.count == 0 ? metrics : worse(layer.metrics, metrics);
    layer.within = layer.within && bounds_.within(layer.tensor, metrics);
  }
  running_.clear();
  if (details_) details_->close_way();
}

Status CaseRunner::run_steps() {
  LogitComparison logits(noise_of("logits"));
  // The reference computed the whole prompt as one sequence.
  decoder_.restart(tokens_);
  const auto vocab = static_cast<size_t>(manifest_.vocab_size);
  for (int64_t t = 0; t < tokens_;) {
    const auto count = static_cast<size_t>(decoder_.tokens_together(t));
    const std::span<const int64_t> ids =
        std::span(prompt_.input_ids).subspan(static_cast<size_t>(t), count);
    const Row rows = FERRY_TRY(decoder_.forward(ids));
    if (rows.empty() || rows.size() % vocab != 0) {
      return bad_input("the bundle's logits are not [rows, vocabulary]");
    }
    t += static_cast<int64_t>(count);
    compare_logits(rows.last(vocab), t - 1, logits);
    advance_(count);
  }
  FERRY_RETURN_IF_ERROR(compare_caches());
  close_way();
  report_.steps = logits.metrics();
  return {};
}

Status CaseRunner::run_prefill() {
  LogitComparison comparison(noise_of("logits"));
  const auto vocab = static_cast<size_t>(manifest_.vocab_size);
  decoder_.restart();
  decoder_.set_logits_sink([&](int64_t position, int64_t rows, Row values) {
    for (int64_t r = 0; r < rows && position + r < tokens_; ++r) {
      compare_logits(values.subspan(static_cast<size_t>(r) * vocab, vocab), position + r,
                     comparison);
    }
  });
  const Result<Row> computed = decoder_.forward(prompt_.input_ids);
  decoder_.set_logits_sink({});
  const Row logits = FERRY_TRY(computed);
  if (logits.empty() || logits.size() % vocab != 0) {
    return bad_input("the bundle's logits are not [rows, vocabulary]");
  }
  FERRY_RETURN_IF_ERROR(compare_caches());
  close_way();
  report_.prefill = comparison.metrics();
  advance_(prompt_.input_ids.size());
  return run_greedy(logits.last(vocab));
}

Result<std::vector<float>> CaseRunner::greedy_logits(int64_t rows) const {
  const Shape shape = {rows, manifest_.vocab_size};
  if (prompt_.has("greedy_logits")) return reference_.floats(prompt_, "greedy_logits", shape);
  const ReferencePrompt* recorded = recorded_prompt();
  if (recorded == nullptr || !recorded->has("greedy_logits")) return std::vector<float>();
  return options_.recorded->floats(*recorded, "greedy_logits", shape);
}

Status CaseRunner::run_greedy(Row row) {
  if (!options_.continuation || !prompt_.has("greedy_ids")) return {};
  const std::vector<int64_t> ids = FERRY_TRY(reference_.ids(prompt_, "greedy_ids"));
  report_.greedy_total = static_cast<int64_t>(ids.size());
  FERRY_RETURN_IF_ERROR(check_continuation(reference_, prompt_, ids, manifest_));
  const auto vocab = static_cast<size_t>(manifest_.vocab_size);
  const std::vector<float> expected = FERRY_TRY(greedy_logits(report_.greedy_total));
  if (details_) details_->set_continuation(ids);
  LogitComparison comparison(noise_of("greedy_logits"));
  size_t g = 0;
  const auto choose = [&](Row got) -> Result<std::optional<int64_t>> {
    got = got.last(vocab);
    const Row want = expected.empty() ? Row() : Row(expected).subspan(g * vocab, vocab);
    if (!want.empty()) comparison.add_row(static_cast<int64_t>(g), got, want);
    const auto ours = static_cast<int64_t>(runner::argmax(got));
    const bool same = ours == ids[g];
    if (details_) details_->add_choice(ours, ids[g]);
    if (!same) report_.greedy_tie = !want.empty() && bounds_.explains_choice(got, want);
    if (!same && !report_.greedy_tie) return std::optional<int64_t>();
    report_.greedy_match += same ? 1 : 0;
    const int64_t token = ids[g++];
    return g < ids.size() ? std::optional(token) : std::nullopt;
  };
  // Rows of guesses are at no position of the routes.
  if (decoder_.lookahead_counts()) FERRY_RETURN_IF_ERROR(decoder_.force_experts(nullptr));
  std::optional<int64_t> token;
  if (!ids.empty()) token = FERRY_TRY(choose(row));
  while (token) token = FERRY_TRY(decoder_.advance(*token, choose));
  report_.greedy = comparison.metrics();
  report_.lookahead = decoder_.lookahead_counts();
  return {};
}

Result<CaseReport> CaseRunner::run() {
  report_.prompt = prompt_.name;
  report_.tokens = tokens_;
  if (const char* why = foreign_input(prompt_, manifest_)) {
    report_.skipped = why;
    return report_;
  }
  if (prompt_.needs_images() && manifest_.find(kTokenEmbeddingRole) == nullptr) {
    report_.skipped = "needs images, which this bundle does not take";
    return report_;
  }
  FERRY_RETURN_IF_ERROR(check_prompt(reference_, prompt_, manifest_));
  FERRY_RETURN_IF_ERROR(load_images());
  const auto kinds = images_.kinds();
  const auto encoded = [](const PromptImages* kind) { return !kind->features.empty(); };
  if (!images_.empty() && !std::ranges::all_of(kinds, encoded)) {
    report_.skipped = "has pixel values but no image features";
    return report_;
  }
  FERRY_RETURN_IF_ERROR(encode());
  FERRY_RETURN_IF_ERROR(load(reference_tensors(manifest_.num_layers)));
  FERRY_RETURN_IF_ERROR(
      decoder_.set_probe_sink([this](const std::string& name, int64_t position, int64_t rows,
                                     Row values) { compare_probe(name, position, rows, values); }));
  if (Status forced = decoder_.force_experts(routes_.empty() ? nullptr : &routes_); !forced) {
    const Error error = std::move(forced).error();
    return fail(error.code, fmt::format("{}: {}", name_of(reference_, prompt_), error.message));
  }
  FERRY_RETURN_IF_ERROR(decoder_.set_image_rows(images_.rows()));
  Status done = run_steps();
  if (done) done = run_prefill();
  FERRY_RETURN_IF_ERROR(decoder_.set_image_rows({}));
  FERRY_RETURN_IF_ERROR(decoder_.force_experts(nullptr));
  FERRY_RETURN_IF_ERROR(decoder_.set_probe_sink({}));
  FERRY_RETURN_IF_ERROR(std::move(done));
  report_.judge(bounds_);
  if (details_) report_.details = std::make_shared<CaseDetails>(details_->take());
  return report_;
}

}  // namespace

Result<ParityReport> verify(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const Reference& reference, const ParityBounds& bounds,
                            const VerifyOptions& options) {
  uint64_t done = 0, total = 0;
  for (const ReferencePrompt& prompt : reference.prompts()) total += 2 * prompt.input_ids.size();
  const std::function<void(size_t)> advance = [&](size_t tokens) {
    done += tokens;
    if (options.progress) options.progress(done, total);
  };
  std::vector<CaseReport> cases;
  for (const ReferencePrompt& prompt : reference.prompts()) {
    cases.push_back(FERRY_TRY(
        CaseRunner(decoder, manifest, reference, prompt, bounds, options, advance).run()));
  }
  return summarize(std::move(cases), bounds, reference.path());
}

}  // namespace ferry::proof
