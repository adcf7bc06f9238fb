#include "proof/text_model.h"

#include <fmt/format.h>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/program_interface.h"
#include "core/result.h"
#include "core/text.h"
#include "packer/manifest.h"
#include "proof/parity_report.h"
#include "proof/reference.h"
#include "proof/reference_check.h"
#include "proof/reference_proof.h"
#include "proof/reference_recorder.h"
#include "runner/text_encoder.h"

namespace ferry::proof {
namespace {

using Row = std::span<const float>;

// The outputs of the encoder for some tokens, by their names in references.
using Computed = std::map<std::string, std::vector<float>, std::less<>>;

Result<Computed> compute(runner::TextEncoder& encoder, const std::vector<int64_t>& tokens) {
  Computed out;
  FERRY_RETURN_IF_ERROR(encoder.set_probe_sink([&out](const std::string& name, Row values) {
    out[name].assign(values.begin(), values.end());
  }));
  const Result<runner::EncodedText> text = encoder.encode(tokens);
  FERRY_RETURN_IF_ERROR(encoder.set_probe_sink({}));
  if (!text) return Failure(text.error());
  out[std::string(kLastHiddenStatePort)].assign(text->states.begin(), text->states.end());
  if (!text->embedding.empty()) {
    out[std::string(kSentenceEmbeddingPort)].assign(text->embedding.begin(), text->embedding.end());
  }
  return out;
}

// Returns [1,D] for the vector, else [1,T,width].
Shape shape_of(const ReferenceTensor& tensor, int64_t tokens, size_t values) {
  const auto count = static_cast<int64_t>(values);
  if (tensor.kind == ReferenceTensor::Kind::kVector) return {1, count};
  return {1, tokens, count / tokens};
}

class EncodedCase {
 public:
  EncodedCase(const Reference& reference, const ReferencePrompt& prompt, const ParityBounds& bounds,
              const VerifyOptions& options)
      : reference_(reference), prompt_(prompt), bounds_(bounds) {
    report_.prompt = prompt.name;
    report_.tokens = std::ssize(prompt.input_ids);
    if (!options.details) return;
    details_.emplace(prompt.input_ids, columns_for(reference.prompts().size()), bounds);
  }

  Result<CaseReport> run(runner::TextEncoder& encoder, const packer::Manifest& manifest) {
    if (prompt_.needs_images()) {
      report_.skipped = "needs images, which this bundle does not take";
      return std::move(report_);
    }
    FERRY_RETURN_IF_ERROR(check_prompt(reference_, prompt_, manifest));
    const Computed computed = FERRY_TRY(compute(encoder, prompt_.input_ids));
    std::set<std::string> known;
    for (const ReferenceTensor& tensor : reference_tensors(manifest.num_layers)) {
      const auto got = computed.find(tensor.name);
      if (!prompt_.has(tensor.name) || got == computed.end()) continue;
      known.insert(tensor.name);
      FERRY_RETURN_IF_ERROR(compare(tensor, got->second));
    }
    for (const auto& [tensor, entry] : prompt_.tensors) {
      if (!known.contains(tensor)) report_.not_compared.push_back(tensor);
    }
    report_.judge(bounds_);
    if (details_) report_.details = std::make_shared<CaseDetails>(details_->take());
    return std::move(report_);
  }

 private:
  Status compare(const ReferenceTensor& tensor, const std::vector<float>& got) {
    const Shape shape = shape_of(tensor, report_.tokens, got.size());
    const std::vector<float> want = FERRY_TRY(reference_.floats(prompt_, tensor.name, shape));
    ValueComparison comparison(bounds_.noise_of(prompt_.name, tensor.name));
    comparison.add(got, want);
    const ValueMetrics metrics = comparison.metrics();
    report_.layers.push_back({tensor, metrics, bounds_.within(tensor, metrics)});
    if (details_) details_->add_tensor(tensor, shape, got, want);
    return {};
  }

  const Reference& reference_;
  const ReferencePrompt& prompt_;
  const ParityBounds& bounds_;
  CaseReport report_;
  std::optional<DetailCollector> details_;
};

// Runs every prompt in one call and compares hidden states, the last hidden state, and the vector.
// Only `details` and `progress` of the options are used.
Result<ParityReport> verify_encoder(runner::TextEncoder& encoder, const packer::Manifest& manifest,
                                    const Reference& reference, const ParityBounds& bounds,
                                    const VerifyOptions& options) {
  uint64_t done = 0, total = 0;
  for (const ReferencePrompt& prompt : reference.prompts()) total += prompt.input_ids.size();
  std::vector<CaseReport> cases;
  for (const ReferencePrompt& prompt : reference.prompts()) {
    cases.push_back(
        FERRY_TRY(EncodedCase(reference, prompt, bounds, options).run(encoder, manifest)));
    done += prompt.input_ids.size();
    if (options.progress) options.progress(done, total);
  }
  return summarize(std::move(cases), bounds, reference.path());
}

// Makes the tensors of a reference for every prompt, without continuations. Messages call the
// result `name`.
Result<std::unique_ptr<TensorSource>> record_encoder(runner::TextEncoder& encoder,
                                                     const packer::Manifest& manifest,
                                                     const std::vector<RecordedPrompt>& prompts,
                                                     const std::string& name) {
  auto source = std::make_unique<MemorySource>(name);
  for (const RecordedPrompt& prompt : prompts) {
    const auto tokens = std::ssize(prompt.tokens);
    PromptRecorder recorder(prompt, manifest.vocab_size);
    Computed computed = FERRY_TRY(compute(encoder, prompt.tokens));
    for (const ReferenceTensor& tensor : reference_tensors(manifest.num_layers)) {
      const auto found = computed.find(tensor.name);
      if (found == computed.end()) continue;
      const Shape shape = shape_of(tensor, tokens, found->second.size());
      recorder.keep_tensor(tensor.name, shape, std::move(found->second));
    }
    recorder.write(*source);
  }
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace

Result<TextModel> TextModel::load(const packer::Bundle& bundle, ThreadPool& pool,
                                  const runner::MethodOptions& options,
                                  const runner::DecodeOptions& decode) {
  TextModel model(bundle.manifest());
  if (bundle.manifest().program_style != kEncoderStyle) {
    model.decoder_ = FERRY_TRY(runner::load_decoder(bundle, pool, options, decode));
    return model;
  }
  if (decode.mode) return runner::wrong_mode(bundle, *decode.mode);
  model.encoder_ = FERRY_TRY(runner::TextEncoder::load(bundle, pool, options));
  return model;
}

int64_t TextModel::capacity() const {
  return decoder_ ? decoder_->capacity() : encoder_->sizes().tokens;
}

Result<ParityReport> TextModel::verify(const Reference& reference, const ParityBounds& bounds,
                                       const VerifyOptions& options) {
  return decoder_ ? proof::verify(*decoder_, *manifest_, reference, bounds, options)
                  : verify_encoder(*encoder_, *manifest_, reference, bounds, options);
}

Result<std::unique_ptr<TensorSource>> TextModel::record(const std::vector<RecordedPrompt>& prompts,
                                                        const std::string& name) {
  return decoder_ ? record_reference(*decoder_, *manifest_, prompts, name)
                  : record_encoder(*encoder_, *manifest_, prompts, name);
}

Status TextModel::continue_prompts(int64_t capacity, std::vector<RecordedPrompt>& prompts,
                                   int64_t least) {
  if (!decoder_) return {};
  return proof::continue_prompts(*decoder_, *manifest_, capacity, prompts, least);
}

}  // namespace ferry::proof
