// compare_references() compares two references tensor by tensor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "proof/prompt_images.h"
#include "proof/reference_proof.h"
#include "proof/row_ports.h"
#include "runner/sampler.h"

namespace ferry::proof {
namespace {

using Row = std::span<const float>;

class CaseComparison {
 public:
  CaseComparison(const Reference& got, const ReferencePrompt& ours, const Reference& want,
                 const ReferencePrompt& theirs, const ParityBounds& bounds,
                 const VerifyOptions& options)
      : got_(got),
        ours_(ours),
        want_(want),
        theirs_(theirs),
        bounds_(bounds),
        continuation_(options.continuation) {
    if (!options.details) return;
    details_.emplace(theirs.input_ids, columns_for(want.prompts().size()), bounds);
  }

  Result<CaseReport> run() {
    report_.prompt = theirs_.name;
    report_.tokens = static_cast<int64_t>(theirs_.input_ids.size());
    if (ours_.has("logits")) FERRY_RETURN_IF_ERROR(compare_logits());
    FERRY_RETURN_IF_ERROR(compare_layers());
    const bool continued = theirs_.has("greedy_ids") && ours_.has("greedy_logits");
    if (continuation_ && continued) FERRY_RETURN_IF_ERROR(compare_greedy());
    report_.judge(bounds_);
    if (details_) report_.details = std::make_shared<CaseDetails>(details_->take());
    return std::move(report_);
  }

 private:
  Status compare_logits() {
    const Shape& shape = got_.shape(ours_, "logits");
    const auto vocab = static_cast<size_t>(shape.back());
    const std::vector<float> got = FERRY_TRY(got_.floats(ours_, "logits", shape));
    const std::vector<float> want = FERRY_TRY(want_.floats(theirs_, "logits", shape));
    LogitComparison comparison(bounds_.noise_of(theirs_.name, "logits"));
    for (size_t at = 0; at < got.size(); at += vocab) {
      const Row ours = Row(got).subspan(at, vocab), theirs = Row(want).subspan(at, vocab);
      comparison.add_row(static_cast<int64_t>(at / vocab), ours, theirs);
      if (details_) details_->add_logits(static_cast<int64_t>(at / vocab), ours, theirs);
    }
    report_.prefill = comparison.metrics();
    if (!theirs_.has("logits_f64")) return {};
    const std::vector<double> f64 = FERRY_TRY(want_.doubles(theirs_, "logits_f64", shape));
    F64Distance& distance = report_.f64.emplace();
    for (size_t i = 0; i < f64.size(); ++i) {
      distance.ours = std::max(distance.ours, std::fabs(static_cast<double>(got[i]) - f64[i]));
      distance.reference =
          std::max(distance.reference, std::fabs(static_cast<double>(want[i]) - f64[i]));
    }
    return {};
  }

  Status compare_layers() {
    std::set<std::string> known = {"logits", "logits_f64", "greedy_ids", "greedy_logits"};
    known.insert({std::string(kInputFeaturesPort), std::string(kInputValuesPort),
                  std::string(kSourceIdsPort)});
    for (const RowEncoder& encoder : {kPictureRows, kSoundRows}) {
      FERRY_RETURN_IF_ERROR(compare_encoder(encoder, known));
    }
    for (const ReferenceTensor& tensor : reference_tensors(bounds_.layers)) {
      if (!theirs_.has(tensor.name) || !ours_.has(tensor.name)) continue;
      known.insert(tensor.name);
      const Shape& shape = got_.shape(ours_, tensor.name);
      const std::vector<float> got = FERRY_TRY(got_.floats(ours_, tensor.name, shape));
      ValueComparison comparison(bounds_.noise_of(theirs_.name, tensor.name));
      const std::vector<float> want = FERRY_TRY(want_.floats(theirs_, tensor.name, shape));
      comparison.add(got, want);
      if (details_) details_->add_tensor(tensor, shape, got, want);
      const ValueMetrics metrics = comparison.metrics();
      report_.layers.push_back({tensor, metrics, bounds_.within(tensor, metrics)});
    }
    for (const auto& [tensor, entry] : theirs_.tensors) {
      if (!known.contains(tensor)) report_.not_compared.push_back(tensor);
    }
    return {};
  }

  // Compares the tensors of an encoder, in the order in which it computes them. Encoders whose
  // outputs are keys and values of cross-attention have the names of kSoundRows too.
  Status compare_encoder(const RowEncoder& encoder, std::set<std::string>& known) {
    std::vector<std::string> names;
    for (size_t layer = 0;; ++layer) {
      names.push_back(fmt::format("{}{}", encoder.states, layer));
      if (!ours_.has(names.back())) break;
    }
    const auto layers = std::ssize(names) - 1;
    names.back() = encoder.last_state;
    // Features that were given with the prompt were not computed.
    if (ours_.has(std::string(encoder.input))) {
      names.emplace_back(encoder.output);
      known.merge(row_inputs());
    }
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string& name = names[i];
      if (!theirs_.has(name) || !ours_.has(name)) continue;
      // A reference may have rows of padding that programs for pictures of one shape do without.
      if (want_.shape(theirs_, name) != got_.shape(ours_, name)) continue;
      known.insert(name);
      const std::vector<float> got = FERRY_TRY(got_.floats(ours_, name, got_.shape(ours_, name)));
      const std::vector<float> want =
          FERRY_TRY(want_.floats(theirs_, name, got_.shape(ours_, name)));
      ValueComparison comparison(bounds_.noise_of(theirs_.name, name));
      comparison.add(got, want);
      if (details_) details_->add_whole(name, got, want);
      const auto number = static_cast<int64_t>(i);
      const ReferenceTensor tensor = {ReferenceTensor::Kind::kVision, name, name,
                                      number < layers ? number - 1 : layers};
      const ValueMetrics metrics = comparison.metrics();
      report_.layers.push_back({tensor, metrics, bounds_.within(tensor, metrics)});
    }
    return {};
  }

  // Compares the continuations. Both sides were continued with the tokens of `want`.
  Status compare_greedy() {
    const std::vector<int64_t> ids = FERRY_TRY(want_.ids(theirs_, "greedy_ids"));
    const Shape& shape = got_.shape(ours_, "greedy_logits");
    const auto vocab = static_cast<size_t>(shape.back());
    const std::vector<float> got = FERRY_TRY(got_.floats(ours_, "greedy_logits", shape));
    std::vector<float> want;
    if (theirs_.has("greedy_logits")) {
      want = FERRY_TRY(want_.floats(theirs_, "greedy_logits", shape));
    }
    report_.greedy_total = static_cast<int64_t>(ids.size());
    if (details_) details_->set_continuation(ids);
    LogitComparison comparison(bounds_.noise_of(theirs_.name, "greedy_logits"));
    bool explained = true;  // whether the bounds explain every token that differs
    for (size_t g = 0; g < ids.size() && (g + 1) * vocab <= got.size(); ++g) {
      const Row row = Row(got).subspan(g * vocab, vocab);
      const Row expected = want.empty() ? Row() : Row(want).subspan(g * vocab, vocab);
      if (!expected.empty()) comparison.add_row(static_cast<int64_t>(g), row, expected);
      const auto ours = static_cast<int64_t>(runner::argmax(row));
      if (details_) details_->add_choice(ours, ids[g]);
      if (ours == ids[g]) {
        report_.greedy_match += 1;
      } else {
        explained = explained && !expected.empty() && bounds_.explains_choice(row, expected);
      }
    }
    report_.greedy_tie = explained && got.size() == ids.size() * vocab;
    report_.greedy = comparison.metrics();
    return {};
  }

  const Reference& got_;
  const ReferencePrompt& ours_;
  const Reference& want_;
  const ReferencePrompt& theirs_;
  const ParityBounds& bounds_;
  const bool continuation_;
  CaseReport report_;
  std::optional<DetailCollector> details_;
};

}  // namespace

Result<ParityReport> compare_references(const Reference& got, const Reference& want,
                                        const ParityBounds& bounds, const VerifyOptions& options) {
  std::vector<CaseReport> cases;
  for (const ReferencePrompt& theirs : want.prompts()) {
    const auto ours = std::ranges::find(got.prompts(), theirs.name, &ReferencePrompt::name);
    if (ours == got.prompts().end()) continue;
    cases.push_back(FERRY_TRY(CaseComparison(got, *ours, want, theirs, bounds, options).run()));
  }
  if (cases.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: no prompt in common with {}", got.path(), want.path()));
  }
  return summarize(std::move(cases), bounds, want.path());
}

}  // namespace ferry::proof
