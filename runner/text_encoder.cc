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

// Returns the last dimension of an output of `rank`; nullopt if there is no such output.
Result<std::optional<int64_t>> columns_of(const packer::ManifestComponent& component,
                                          std::string_view name, size_t rank,
                                          const std::string& path) {
  const packer::ManifestPort* port = find_output(component, name);
  if (port == nullptr) return std::optional<int64_t>();
  if (port->shape.size() == rank && port->shape.back() >= 1)
    return std::optional(port->shape.back());
  return bad_input(fmt::format("{}: output {} of the text encoder is {}, not of rank {}",
                               printable(path), name, to_string(port->shape), rank));
}

// Sets the sizes of a classifier, whose outputs must be as many as its labels.
Status read_labels(const packer::Manifest& manifest, const packer::ManifestComponent& component,
                   const std::string& path, TextEncoder::Sizes& sizes) {
  const auto of_texts = FERRY_TRY(columns_of(component, kClassLogitsPort, 2, path));
  const auto of_tokens = FERRY_TRY(columns_of(component, kTokenLogitsPort, 3, path));
  sizes.per_token = of_tokens.has_value();
  sizes.labels = of_tokens.value_or(of_texts.value_or(0));
  for (const packer::ManifestProgram& program : component.programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    sizes.takes_types |=
        std::ranges::count(method->inputs, kTokenTypesPort, &packer::ManifestPort::name) > 0;
  }
  const int64_t stated = manifest.classifier ? std::ssize(manifest.classifier->labels) : 0;
  if (stated == sizes.labels && !(of_texts && of_tokens)) return {};
  return bad_input(fmt::format("{}: the manifest states {} labels, the text encoder gives {}",
                               printable(path), stated, sizes.labels));
}

std::span<const float> floats_of(const TensorView& view) {
  return {reinterpret_cast<const float*>(view.bytes.data()), view.bytes.size() / sizeof(float)};
}

}  // namespace

Result<TextEncoder::Sizes> TextEncoder::sizes_in(const packer::Manifest& manifest,
                                                 const std::string& path) {
  const packer::ManifestComponent* component = manifest.find(kTextEncoderRole);
  if (manifest.program_style == kEncoderStyle && component == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: its encoder takes sound, not text", printable(path)));
  }
  if (manifest.program_style != kEncoderStyle || component == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: has {} programs, which give logits; only {} programs give states",
                            printable(path), manifest.program_style, kEncoderStyle));
  }
  Sizes sizes{.tokens = manifest.context_length,
              .vocabulary = manifest.vocab_size,
              .width = FERRY_TRY(columns_of(*component, kLastHiddenStatePort, 3, path))
                           .value_or(manifest.hidden_size)};
  const packer::ManifestPort* states =
      find_output(*component, kLastHiddenStatePort, kForwardTextsMethod);
  if (states != nullptr && states->shape.size() == 3) sizes.texts_tokens = states->shape[1];
  sizes.embedding_width =
      FERRY_TRY(columns_of(*component, kSentenceEmbeddingPort, 2, path)).value_or(0);
  FERRY_RETURN_IF_ERROR(read_labels(manifest, *component, path, sizes));
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
    if (sizes.labels > 0 && sizes.per_token) {
      types.push_back({kTokenLogitsPort, DType::kF32, {1, tokens, sizes.labels}});
    } else if (sizes.labels > 0) {
      types.push_back({kClassLogitsPort, DType::kF32, {texts, sizes.labels}});
    }
    return types;
  };
  std::vector<PortType> inputs = {{kTokensPort, DType::kI64, {1, sizes.tokens}}};
  if (sizes.takes_types) inputs.push_back({kTokenTypesPort, DType::kI64, {1, sizes.tokens}});
  MethodChain chain = FERRY_TRY(set.bind(kForwardMethod, inputs, outputs(sizes.tokens, 1)));
  std::optional<MethodChain> texts;
  if (const int64_t most = sizes.texts_tokens; most > 0) {
    std::vector<PortType> types;
    for (const std::string_view name :
         {kTokensPort, kTextIdsPort, kPositionIdsPort, kLastTokensPort}) {
      types.push_back({name, DType::kI64, {1, most}});
    }
    if (sizes.takes_types) types.push_back({kTokenTypesPort, DType::kI64, {1, most}});
    texts = FERRY_TRY(set.bind(kForwardTextsMethod, types, outputs(most, most)));
  }
  return TextEncoder(std::move(set), std::move(chain), std::move(texts), sizes);
}

Result<EncodedText> TextEncoder::outputs_of(const MethodChain& chain, size_t tokens,
                                            size_t texts) const {
  EncodedText out;
  out.states = floats_of(chain.output(0));
  const auto width = static_cast<size_t>(sizes_.embedding_width);
  const auto labels = static_cast<size_t>(sizes_.labels);
  if (width > 0) out.embedding = floats_of(chain.output(1));
  if (labels > 0) out.logits = floats_of(chain.output(width > 0 ? 2 : 1));
  if (out.states.size() == tokens * static_cast<size_t>(sizes_.width) &&
      out.embedding.size() == texts * width &&
      out.logits.size() == (sizes_.per_token ? tokens : texts) * labels) {
    return out;
  }
  return bad_input(fmt::format("{}: the text encoder gave {} and {} values for {} tokens",
                               printable(set_.bundle().path()), out.states.size(),
                               out.embedding.size(), tokens));
}

Result<EncodedText> TextEncoder::encode(std::span<const int64_t> tokens,
                                        std::span<const int64_t> types) {
  FERRY_RETURN_IF_ERROR(check_tokens(tokens, sizes_.vocabulary, 0, sizes_.tokens));
  TensorView& input = chain_.input(0);
  input.shape = {1, std::ssize(tokens)};
  input.bytes = std::as_bytes(tokens);
  if (sizes_.takes_types) {
    types_.assign(types.begin(), types.end());
    types_.resize(tokens.size(), 0);
    chain_.input(1).shape = input.shape;
    chain_.input(1).bytes = std::as_bytes(std::span(types_));
  }
  FERRY_RETURN_IF_ERROR(chain_.run());
  return outputs_of(chain_, tokens.size(), 1);
}

Result<EncodedText> TextEncoder::encode_texts(std::span<const TextTokens> texts) {
  std::vector<std::vector<int64_t>*> lists = {&tokens_, &text_ids_, &position_ids_, &last_tokens_};
  types_.clear();
  for (std::vector<int64_t>* list : lists) list->clear();
  if (sizes_.takes_types) lists.push_back(&types_);
  for (const auto& [text, types] : texts) {
    FERRY_RETURN_IF_ERROR(check_tokens(text, sizes_.vocabulary, 0, sizes_.tokens));
    FERRY_RETURN_IF_ERROR(
        check_tokens(text, sizes_.vocabulary, std::ssize(tokens_), sizes_.texts_tokens));
    tokens_.insert(tokens_.end(), text.begin(), text.end());
    types_.insert(types_.end(), types.begin(), types.end());
    types_.resize(tokens_.size(), 0);
    text_ids_.insert(text_ids_.end(), text.size(), std::ssize(last_tokens_));
    for (int64_t i = 0; i < std::ssize(text); ++i) position_ids_.push_back(i);
    last_tokens_.push_back(std::ssize(tokens_) - 1);
  }
  size_t index = 0;
  for (const std::vector<int64_t>* list : lists) {
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
