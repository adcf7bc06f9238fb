#include "proof/encoder_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::proof {
namespace {

using Sizes = runner::TextEncoder::Sizes;

// A tensor of a reference, in terms of the bounds, and its shape for a text of some tokens.
struct Expected {
  ReferenceTensor tensor;
  Shape shape;
};

// In model order.
std::vector<Expected> expected_tensors(const Sizes& sizes, int64_t layers, int64_t tokens) {
  std::vector<Expected> all;
  const Shape states = {1, tokens, sizes.width};
  for (const ReferenceTensor& tensor : reference_tensors(layers)) {
    if (tensor.kind == ReferenceTensor::Kind::kHidden) all.push_back({tensor, states});
  }
  const auto add = [&](std::string_view name, const Shape& shape) {
    const std::string text(name);
    all.push_back({{ReferenceTensor::Kind::kHidden, text, text, layers}, shape});
  };
  add(kLastHiddenStatePort, states);
  if (sizes.embedding_width > 0) add(kSentenceEmbeddingPort, {1, sizes.embedding_width});
  return all;
}

Status check_tokens(const Reference& reference, const ReferencePrompt& prompt, const Sizes& sizes) {
  const std::string who = name_of(reference, prompt);
  const auto tokens = static_cast<int64_t>(prompt.input_ids.size());
  if (tokens > sizes.tokens) {
    return bad_input(
        fmt::format("{} has {} tokens, the bundle's context is {}", who, tokens, sizes.tokens));
  }
  for (const int64_t id : prompt.input_ids) {
    if (id >= 0 && id < sizes.vocabulary) continue;
    return bad_input(
        fmt::format("{}: token {} is outside of the vocabulary of {}", who, id, sizes.vocabulary));
  }
  const bool has_output =
      prompt.has(std::string(kLastHiddenStatePort)) ||
      (sizes.embedding_width > 0 && prompt.has(std::string(kSentenceEmbeddingPort)));
  if (has_output) return {};
  return bad_input(fmt::format("{} has no {}", who, kLastHiddenStatePort));
}

// What the encoder gives for a prompt, by the name in references.
using Computed = std::map<std::string, std::vector<float>, std::less<>>;

Result<Computed> compute(runner::TextEncoder& encoder, const ReferencePrompt& prompt) {
  Computed out;
  FERRY_RETURN_IF_ERROR(
      encoder.set_probe_sink([&out](const std::string& name, std::span<const float> values) {
        out[name].assign(values.begin(), values.end());
      }));
  const Result<runner::EncodedText> text = encoder.encode(prompt.input_ids);
  FERRY_RETURN_IF_ERROR(encoder.set_probe_sink({}));
  if (!text) return tl::unexpected<Error>(text.error());
  out[std::string(kLastHiddenStatePort)].assign(text->states.begin(), text->states.end());
  if (!text->embedding.empty()) {
    out[std::string(kSentenceEmbeddingPort)].assign(text->embedding.begin(), text->embedding.end());
  }
  return out;
}

Result<EncoderCase> run_case(runner::TextEncoder& encoder, int64_t layers,
                             const Reference& reference, const ReferencePrompt& prompt,
                             const ParityBounds& bounds) {
  FERRY_RETURN_IF_ERROR(check_tokens(reference, prompt, encoder.sizes()));
  EncoderCase out{.prompt = prompt.name, .tokens = std::ssize(prompt.input_ids)};
  const Computed computed = FERRY_TRY(compute(encoder, prompt));
  std::set<std::string> known;
  for (const auto& [tensor, shape] : expected_tensors(encoder.sizes(), layers, out.tokens)) {
    const auto got = computed.find(tensor.name);
    if (!prompt.has(tensor.name) || got == computed.end()) continue;
    known.insert(tensor.name);
    const std::vector<float> want = FERRY_TRY(reference.floats(prompt, tensor.name, shape));
    if (got->second.size() != want.size()) {
      return bad_input(fmt::format("{}: the bundle gives {} values for {}, expected {}",
                                   name_of(reference, prompt), got->second.size(), tensor.name,
                                   want.size()));
    }
    ValueComparison comparison;
    comparison.add(got->second, want);
    EncodedTensor result{.name = tensor.name, .metrics = comparison.metrics()};
    result.within = bounds.within(tensor, result.metrics);
    result.floor_db = bounds.floor_db(tensor);
    out.tensors.push_back(std::move(result));
  }
  for (const auto& [tensor, entry] : prompt.tensors) {
    if (!known.contains(tensor)) out.not_compared.push_back(tensor);
  }
  return out;
}

}  // namespace

bool EncoderCase::parity() const { return std::ranges::all_of(tensors, &EncodedTensor::within); }
bool EncoderProof::parity() const { return std::ranges::all_of(cases, &EncoderCase::parity); }

Result<EncoderProof> prove_encoder(runner::TextEncoder& encoder, const packer::Manifest& manifest,
                                   const Reference& reference, const ParityBounds& bounds,
                                   const std::function<void(uint64_t, uint64_t)>& progress) {
  uint64_t done = 0, total = 0;
  for (const ReferencePrompt& prompt : reference.prompts()) total += prompt.input_ids.size();
  EncoderProof proof{.bounds = bounds};
  for (const ReferencePrompt& prompt : reference.prompts()) {
    proof.cases.push_back(
        FERRY_TRY(run_case(encoder, manifest.num_layers, reference, prompt, bounds)));
    done += prompt.input_ids.size();
    if (progress) progress(done, total);
  }
  return proof;
}

Status check_encoder_reference(const Reference& reference, const Sizes& sizes, int64_t layers) {
  for (const ReferencePrompt& prompt : reference.prompts()) {
    FERRY_RETURN_IF_ERROR(check_tokens(reference, prompt, sizes));
    const int64_t tokens = std::ssize(prompt.input_ids);
    for (const auto& [tensor, shape] : expected_tensors(sizes, layers, tokens)) {
      if (!prompt.has(tensor.name)) continue;
      FERRY_RETURN_IF_ERROR(reference.check(prompt, tensor.name, shape));
    }
  }
  return {};
}

}  // namespace ferry::proof
