#include "runner/text_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/program_interface.h"
#include "core/text.h"
#include "runner/decoder.h"

namespace ferry::runner {
namespace {

// Returns an output of the component, or nullptr.
const packer::ManifestPort* find_output(const packer::ManifestComponent& component,
                                        std::string_view name) {
  for (const packer::ManifestProgram& program : component.programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
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
  const Sizes sizes = FERRY_TRY(sizes_in(bundle.manifest(), bundle.path()));
  FERRY_RETURN_IF_ERROR(check_model_sizes(bundle));
  ProgramSet set = FERRY_TRY(ProgramSet::load(bundle, kTextEncoderRole, pool, options));
  const PortType inputs[] = {{kTokensPort, DType::kI64, {1, sizes.tokens}}};
  std::vector<PortType> outputs = {
      {kLastHiddenStatePort, DType::kF32, {1, sizes.tokens, sizes.width}}};
  if (sizes.embedding_width > 0) {
    outputs.push_back({kSentenceEmbeddingPort, DType::kF32, {1, sizes.embedding_width}});
  }
  MethodChain chain = FERRY_TRY(set.bind(kForwardMethod, inputs, outputs));
  return TextEncoder(std::move(set), std::move(chain), sizes);
}

Result<EncodedText> TextEncoder::encode(std::span<const int64_t> tokens) {
  FERRY_RETURN_IF_ERROR(check_tokens(tokens, sizes_.vocabulary, 0, sizes_.tokens));
  TensorView& input = chain_.input(0);
  input.shape = {1, std::ssize(tokens)};
  input.bytes = std::as_bytes(tokens);
  FERRY_RETURN_IF_ERROR(chain_.run());
  EncodedText out;
  out.states = floats_of(chain_.output(0));
  const bool has_vector = sizes_.embedding_width > 0;
  if (has_vector) out.embedding = floats_of(chain_.output(1));
  if (out.states.size() == tokens.size() * static_cast<size_t>(sizes_.width) &&
      std::ssize(out.embedding) == sizes_.embedding_width) {
    return out;
  }
  return bad_input(fmt::format("{}: the text encoder gave {} and {} values for {} tokens",
                               printable(set_.bundle().path()), out.states.size(),
                               out.embedding.size(), tokens.size()));
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
