#include "runner/text_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/program_interface.h"
#include "core/text.h"
#include "runner/decoder.h"
#include "runner/memory.h"

namespace ferry::runner {
namespace {

// Returns an output of the method in the component, or nullptr.
const packer::ManifestPort* find_output(const packer::ManifestComponent& component,
                                        std::string_view name,
                                        std::string_view of = kForwardMethod) {
  for (const packer::ManifestProgram& program : component.programs) {
    const packer::ManifestMethod* method = program.find(of);
    if (method == nullptr) continue;
    const auto found = std::ranges::find(method->outputs, name, &packer::ManifestPort::name);
    if (found != method->outputs.end()) return &*found;
  }
  return nullptr;
}

std::span<const float> floats_of(const TensorView& view) {
  return {reinterpret_cast<const float*>(view.bytes.data()), view.bytes.size() / sizeof(float)};
}

}  // namespace

Result<TextEncoder::Sizes> TextEncoder::sizes_in(const packer::Manifest& manifest,
                                                 const std::string& path) {
  const packer::ManifestComponent* component = manifest.find(kTextEncoderRole);
  if (manifest.program_style != kEncoderStyle || component == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: has {} programs, which give logits; only {} programs give states",
                            printable(path), manifest.program_style, kEncoderStyle));
  }
  Sizes sizes{.tokens = manifest.context_length,
              .vocabulary = manifest.vocab_size,
              .width = manifest.hidden_size};
  const packer::ManifestPort* states =
      find_output(*component, kLastHiddenStatePort, kForwardTextsMethod);
  if (states != nullptr && states->shape.size() == 3) sizes.texts_tokens = states->shape[1];
  const packer::ManifestPort* vector = find_output(*component, kSentenceEmbeddingPort);
  if (vector == nullptr) return sizes;
  if (vector->shape.size() != 2 || vector->shape[1] < 1) {
    return bad_input(fmt::format("{}: output {} of the text encoder is {}, not [1, width]",
                                 printable(path), kSentenceEmbeddingPort,
                                 to_string(vector->shape)));
  }
  sizes.embedding_width = vector->shape[1];
  return sizes;
}

Result<TextEncoder> TextEncoder::load(const packer::Bundle& bundle, ThreadPool& pool,
                                      const MethodOptions& options) {
  MemoryBudget budget(options.memory);
  return load(bundle, pool, options, budget);
}

Result<TextEncoder> TextEncoder::load(const packer::Bundle& bundle, ThreadPool& pool,
                                      const MethodOptions& options, MemoryBudget& budget) {
  const Sizes sizes = FERRY_TRY(sizes_in(bundle.manifest(), bundle.path()));
  FERRY_RETURN_IF_ERROR(check_model_sizes(bundle));
  ProgramSet set = FERRY_TRY(ProgramSet::load(bundle, kTextEncoderRole, pool, options, budget));
  const auto outputs = [&](int64_t tokens, int64_t texts) {
    std::vector<PortType> types = {{kLastHiddenStatePort, DType::kF32, {1, tokens, sizes.width}}};
    if (sizes.embedding_width > 0) {
      types.push_back({kSentenceEmbeddingPort, DType::kF32, {texts, sizes.embedding_width}});
    }
    return types;
  };
  const PortType inputs[] = {{kTokensPort, DType::kI64, {1, sizes.tokens}}};
  MethodChain chain = FERRY_TRY(set.bind(kForwardMethod, inputs, outputs(sizes.tokens, 1)));
  std::optional<MethodChain> texts;
  if (const int64_t most = sizes.texts_tokens; most > 0) {
    std::vector<PortType> types;
    for (const std::string_view name :
         {kTokensPort, kTextIdsPort, kPositionIdsPort, kLastTokensPort}) {
      types.push_back({name, DType::kI64, {1, most}});
    }
    texts = FERRY_TRY(set.bind(kForwardTextsMethod, types, outputs(most, most)));
  }
  return TextEncoder(std::move(set), std::move(chain), std::move(texts), sizes);
}

Result<EncodedText> TextEncoder::outputs_of(const MethodChain& chain, size_t tokens,
                                            size_t texts) const {
  EncodedText out;
  out.states = floats_of(chain.output(0));
  const auto width = static_cast<size_t>(sizes_.embedding_width);
  if (width > 0) out.embedding = floats_of(chain.output(1));
  if (out.states.size() == tokens * static_cast<size_t>(sizes_.width) &&
      out.embedding.size() == texts * width) {
    return out;
  }
  return bad_input(fmt::format("{}: the text encoder gave {} and {} values for {} tokens",
                               printable(set_.bundle().path()), out.states.size(),
                               out.embedding.size(), tokens));
}

Result<EncodedText> TextEncoder::encode(std::span<const int64_t> tokens) {
  FERRY_RETURN_IF_ERROR(check_tokens(tokens, sizes_.vocabulary, 0, sizes_.tokens));
  TensorView& input = chain_.input(0);
  input.shape = {1, std::ssize(tokens)};
  input.bytes = std::as_bytes(tokens);
  FERRY_RETURN_IF_ERROR(chain_.run());
  return outputs_of(chain_, tokens.size(), 1);
}

Result<EncodedText> TextEncoder::encode_texts(std::span<const std::vector<int64_t>> texts) {
  for (std::vector<int64_t>* list : {&tokens_, &text_ids_, &position_ids_, &last_tokens_}) {
    list->clear();
  }
  for (const std::vector<int64_t>& text : texts) {
    FERRY_RETURN_IF_ERROR(check_tokens(text, sizes_.vocabulary, 0, sizes_.tokens));
    FERRY_RETURN_IF_ERROR(
        check_tokens(text, sizes_.vocabulary, std::ssize(tokens_), sizes_.texts_tokens));
    tokens_.insert(tokens_.end(), text.begin(), text.end());
    text_ids_.insert(text_ids_.end(), text.size(), std::ssize(last_tokens_));
    for (int64_t i = 0; i < std::ssize(text); ++i) position_ids_.push_back(i);
    last_tokens_.push_back(std::ssize(tokens_) - 1);
  }
  size_t index = 0;
  for (const std::vector<int64_t>* list : {&tokens_, &text_ids_, &position_ids_, &last_tokens_}) {
    TensorView& input = texts_->input(index++);
    input.shape = {1, std::ssize(*list)};
    input.bytes = std::as_bytes(std::span(*list));
  }
  FERRY_RETURN_IF_ERROR(texts_->run());
  return outputs_of(*texts_, tokens_.size(), texts.size());
}

Status TextEncoder::set_probe_sink(ProbeSink sink) {
  *sink_ = std::move(sink);
  if (!*sink_ || std::exchange(observing_, true)) return {};
  for (const MethodChain::Link& link : chain_.links()) {
    for (const packer::ManifestProbe& probe : link.ports->probes) {
      FERRY_RETURN_IF_ERROR(link.method->observe(
          probe.value, [sink = sink_.get(), name = probe.name](const TensorView& value) {
            if (*sink) (*sink)(name, probe_floats(value));
          }));
    }
  }
  return {};
}

}  // namespace ferry::runner
