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
#include "proof/sound_model.h"
#include "runner/text_encoder.h"

namespace ferry::proof {
namespace {

using Row = std::span<const float>;

// The outputs of the encoder for some tokens, by their names in references.
using Computed = std::map<std::string, std::vector<float>, std::less<>>;

Result<Computed> compute(runner::TextEncoder& encoder, const std::vector<int64_t>& tokens,
                         const std::vector<int64_t>& types) {
  Computed out;
  FERRY_RETURN_IF_ERROR(encoder.set_probe_sink([&out](const std::string& name, Row values) {
    out[name].assign(values.begin(), values.end());
  }));
  const Result<runner::EncodedText> text = encoder.encode(tokens, types);
  FERRY_RETURN_IF_ERROR(encoder.set_probe_sink({}));
  if (!text) return Failure(text.error());
  out[std::string(kLastHiddenStatePort)].assign(text->states.begin(), text->states.end());
  if (!text->embedding.empty()) {
    out[std::string(kSentenceEmbeddingPort)].assign(text->embedding.begin(), text->embedding.end());
  }
  if (!text->logits.empty()) {
    const std::string_view port = encoder.sizes().per_token ? kTokenLogitsPort : kClassLogitsPort;
    out[std::string(port)].assign(text->logits.begin(), text->logits.end());
  }
  return out;
}

runner::TextTokens tokens_with_types(const std::vector<int64_t>& ids,
                                     const std::vector<int64_t>& types) {
  return {.ids = ids, .types = types};
}

// The outputs of the method for several texts, for `text` behind another one; nothing if the bundle
// has no such method, or if the two are too long for it.
Result<Computed> compute_behind(runner::TextEncoder& encoder, const runner::TextTokens& before,
                                const runner::TextTokens& text) {
  Computed out;
  const runner::TextEncoder::Sizes& sizes = encoder.sizes();
  if (std::ssize(before.ids) + std::ssize(text.ids) > sizes.texts_tokens) return out;
  const std::vector<runner::TextTokens> texts = {before, text};
  const runner::EncodedText all = FERRY_TRY(encoder.encode_texts(texts));
  const auto keep = [&out](std::string_view name, Row rows, int64_t skipped) {
    const Row own = rows.subspan(static_cast<size_t>(skipped));
    if (!own.empty()) out[std::string(name)].assign(own.begin(), own.end());
  };
  const int64_t first = std::ssize(before.ids);
  keep(kLastHiddenStatePort, all.states, first * sizes.width);
  keep(kSentenceEmbeddingPort, all.embedding, sizes.embedding_width);
  keep(sizes.per_token ? kTokenLogitsPort : kClassLogitsPort, all.logits,
       (sizes.per_token ? first : 1) * sizes.labels);
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

  // The text is computed alone, and behind that of the prompt `before`.
  Result<CaseReport> run(runner::TextEncoder& encoder, const packer::Manifest& manifest,
                         const ReferencePrompt& before) {
    if (prompt_.needs_images()) {
      report_.skipped = "needs images, which this bundle does not take";
      return std::move(report_);
    }
    FERRY_RETURN_IF_ERROR(check_prompt(reference_, prompt_, manifest));
    const std::vector<int64_t> types = FERRY_TRY(token_types(reference_, prompt_));
    const Computed computed = FERRY_TRY(compute(encoder, prompt_.input_ids, types));
    FERRY_RETURN_IF_ERROR(check_prompt(reference_, before, manifest));
    const auto first =
        tokens_with_types(before.input_ids, FERRY_TRY(token_types(reference_, before)));
    const Computed behind =
        FERRY_TRY(compute_behind(encoder, first, tokens_with_types(prompt_.input_ids, types)));
    std::set<std::string> known = {kTokenTypeIds};
    for (const ReferenceTensor& tensor : reference_tensors(manifest.num_layers)) {
      const auto got = computed.find(tensor.name);
      if (!prompt_.has(tensor.name) || got == computed.end()) continue;
      known.insert(tensor.name);
      const auto again = behind.find(tensor.name);
      FERRY_RETURN_IF_ERROR(
          compare(tensor, got->second, again == behind.end() ? nullptr : &again->second));
    }
    for (const auto& [tensor, entry] : prompt_.tensors) {
      if (!known.contains(tensor)) report_.not_compared.push_back(tensor);
    }
    report_.judge(bounds_);
    if (details_) report_.details = std::make_shared<CaseDetails>(details_->take());
    return std::move(report_);
  }

 private:
  // `again` are the values of the method for several texts, or nullptr.
  Status compare(const ReferenceTensor& tensor, const std::vector<float>& got,
                 const std::vector<float>* again) {
    const Shape shape = shape_of(tensor, report_.tokens, got.size());
    const std::vector<float> want = FERRY_TRY(reference_.floats(prompt_, tensor.name, shape));
    ValueComparison comparison(bounds_.noise_of(prompt_.name, tensor.name));
    comparison.add(got, want);
    if (again != nullptr) comparison.add(*again, want);
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

// Runs every prompt in one call and compares hidden states, the last hidden state, and the vector
// or the outputs of a classifier. Those that the method for several texts gives are compared too.
// Only `details` and `progress` of the options are used.
Result<ParityReport> verify_encoder(runner::TextEncoder& encoder, const packer::Manifest& manifest,
                                    const Reference& reference, const ParityBounds& bounds,
                                    const VerifyOptions& options) {
  uint64_t done = 0, total = 0;
  for (const ReferencePrompt& prompt : reference.prompts()) total += prompt.input_ids.size();
  std::vector<CaseReport> cases;
  const ReferencePrompt* before = &reference.prompts().back();
  for (const ReferencePrompt& prompt : reference.prompts()) {
    cases.push_back(
        FERRY_TRY(EncodedCase(reference, prompt, bounds, options).run(encoder, manifest, *before)));
    before = &prompt;
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
    Computed computed = FERRY_TRY(compute(encoder, prompt.tokens, prompt.types));
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
  if (gives_labels(bundle.manifest())) {
    model.audio_ = FERRY_TRY(runner::AudioEncoder::load_with_labels(bundle, pool, options));
    return model;
  }
  model.encoder_ = FERRY_TRY(runner::TextEncoder::load(bundle, pool, options));
  return model;
}

int64_t TextModel::capacity() const {
  if (audio_) return audio_->sizes().rows;
  if (!decoder_) return encoder_->sizes().tokens;
  return manifest_->attention_sink ? longest_sequence(*manifest_) : decoder_->capacity();
}

Result<ParityReport> TextModel::verify(const Reference& reference, const ParityBounds& bounds,
                                       const VerifyOptions& options) {
  if (audio_) return verify_sounds(*audio_, *manifest_, reference, bounds, options);
  return decoder_ ? proof::verify(*decoder_, *manifest_, reference, bounds, options)
                  : verify_encoder(*encoder_, *manifest_, reference, bounds, options);
}

Result<std::unique_ptr<TensorSource>> TextModel::record(const std::vector<RecordedPrompt>& prompts,
                                                        const std::string& name) {
  if (audio_) return record_sounds(*audio_, *manifest_, prompts, name);
  return decoder_ ? record_reference(*decoder_, *manifest_, prompts, name)
                  : record_encoder(*encoder_, *manifest_, prompts, name);
}

Status TextModel::continue_prompts(int64_t capacity, std::vector<RecordedPrompt>& prompts,
                                   int64_t least) {
  if (!decoder_) return {};
  return proof::continue_prompts(*decoder_, *manifest_, capacity, prompts, least);
}

}  // namespace ferry::proof
