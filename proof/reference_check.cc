#include "proof/reference_check.h"

#include <fmt/format.h>
#include <algorithm>

#include "core/program_interface.h"
#include "proof/encoder_input.h"
#include "proof/prompt_images.h"
#include "proof/reference.h"
#include "proof/row_ports.h"
#include "runner/text_encoder.h"

namespace ferry::proof {
namespace {

Status check_tokens(const std::vector<int64_t>& ids, const std::string& who,
                    const packer::Manifest& manifest) {
  for (int64_t id : ids) {
    if (id >= 0 && id < manifest.vocab_size) continue;
    return bad_input(fmt::format("{}: token {} is outside of the bundle's vocabulary of {}", who,
                                 id, manifest.vocab_size));
  }
  return {};
}

class PromptCheck {
 public:
  PromptCheck(const Reference& reference, const ReferencePrompt& prompt,
              const packer::Manifest& model, const ReferenceShapes& shapes)
      : reference_(reference),
        prompt_(prompt),
        model_(model),
        shapes_(shapes),
        tokens_(static_cast<int64_t>(prompt.input_ids.size())) {}

  Status run() const {
    FERRY_RETURN_IF_ERROR(check_prompt(reference_, prompt_, model_));
    if (model_.program_style != kEncoderStyle) FERRY_RETURN_IF_ERROR(check_logits());
    for (const ReferenceTensor& tensor : reference_tensors(model_.num_layers)) {
      const Shape expected = shape_of(tensor);
      if (!expected.empty()) FERRY_RETURN_IF_ERROR(check(tensor.name, expected));
    }
    for (int64_t layer = 0; layer < model_.num_layers; ++layer)
      FERRY_RETURN_IF_ERROR(check_route(layer));
    return {};
  }

 private:
  // Tensors that the prompt lacks are not compared.
  Status check(const std::string& tensor, const Shape& expected) const {
    return prompt_.has(tensor) ? reference_.check(prompt_, tensor, expected) : Status();
  }

  Status check_logits() const {
    const Shape logits = {1, tokens_, model_.vocab_size};
    FERRY_RETURN_IF_ERROR(check("logits", logits));
    FERRY_RETURN_IF_ERROR(check("logits_f64", logits));
    return check_greedy();
  }

  Status check_greedy() const {
    if (!prompt_.has("greedy_ids")) return {};
    const std::vector<int64_t> ids = FERRY_TRY(reference_.ids(prompt_, "greedy_ids"));
    FERRY_RETURN_IF_ERROR(check_continuation(reference_, prompt_, ids, model_));
    return check("greedy_logits", {static_cast<int64_t>(ids.size()), model_.vocab_size});
  }

  Status check_route(int64_t layer) const {
    const std::string name = route_name(layer);
    if (shapes_.experts == 0 || !prompt_.has(name)) return {};
    const Shape expected = {1, tokens_, shapes_.experts_per_token};
    FERRY_TRY(reference_.integers(prompt_, name, expected));
    return {};
  }

  // Returns an empty shape if the model has no such tensor.
  Shape shape_of(const ReferenceTensor& tensor) const {
    if (tensor.kind == ReferenceTensor::Kind::kHidden) {
      // Programs of other tools need not state their width.
      return model_.hidden_size == 0 ? Shape() : Shape{1, tokens_, model_.hidden_size};
    }
    if (tensor.is_encoded()) return encoded_shape(tensor);
    if (tensor.kind == ReferenceTensor::Kind::kRouterLogits) {
      return shapes_.experts == 0 ? Shape() : Shape{1, tokens_, shapes_.experts};
    }
    const auto buffer = shapes_.buffers.find(tensor.source);
    if (buffer == shapes_.buffers.end()) return {};
    const Shape& ours = buffer->second;
    if (!tensor.is_kv_cache() || ours.size() != 4) return ours;
    return {1, ours[2], tokens_, ours[3]};
  }

  Shape encoded_shape(const ReferenceTensor& tensor) const {
    const auto sizes = runner::TextEncoder::sizes_in(model_, reference_.path());
    if (!sizes) return {};
    const int64_t labels = sizes->labels;
    if (tensor.name == kClassLogitsPort) {
      return labels > 0 && !sizes->per_token ? Shape{1, labels} : Shape();
    }
    if (tensor.name == kTokenLogitsPort) {
      return sizes->per_token ? Shape{1, tokens_, labels} : Shape();
    }
    if (tensor.kind == ReferenceTensor::Kind::kState) return {1, tokens_, sizes->width};
    return sizes->embedding_width > 0 ? Shape{1, sizes->embedding_width} : Shape();
  }

  const Reference& reference_;
  const ReferencePrompt& prompt_;
  const packer::Manifest& model_;
  const ReferenceShapes& shapes_;
  const int64_t tokens_;
};

}  // namespace

namespace {

std::string_view limit_of(const packer::Manifest& manifest) {
  return manifest.attention_sink
             ? "the bundle's attention sink equals the model up to a window that ends at"
             : "the bundle's context is";
}

}  // namespace

Status check_continuation(const Reference& reference, const ReferencePrompt& prompt,
                          const std::vector<int64_t>& ids, const packer::Manifest& manifest) {
  const std::string who = name_of(reference, prompt);
  const size_t total = prompt.input_ids.size() + ids.size() - std::min<size_t>(1, ids.size());
  if (const int64_t most = longest_sequence(manifest); total > static_cast<size_t>(most)) {
    return bad_input(fmt::format("{} and its continuation have {} tokens, {} {}", who, total,
                                 limit_of(manifest), most));
  }
  return check_tokens(ids, who, manifest);
}

Status check_prompt(const Reference& reference, const ReferencePrompt& prompt,
                    const packer::Manifest& manifest) {
  const std::string who = name_of(reference, prompt);
  const auto tokens = static_cast<int64_t>(prompt.input_ids.size());
  if (const int64_t most = longest_sequence(manifest); tokens > most) {
    return bad_input(fmt::format("{} has {} tokens, {} {}", who, tokens, limit_of(manifest), most));
  }
  FERRY_RETURN_IF_ERROR(check_tokens(prompt.input_ids, who, manifest));
  if (manifest.program_style != kEncoderStyle) {
    if (tokens == 0) return bad_input(fmt::format("{} has no tokens", who));
    return prompt.has("logits") ? Status() : bad_input(fmt::format("{} has no logits", who));
  }
  if (gives_labels(manifest)) {
    if (prompt.has(std::string(kTokenLogitsPort))) return {};
    return bad_input(fmt::format("{} has no {}", who, kTokenLogitsPort));
  }
  if (tokens == 0) return bad_input(fmt::format("{} has no tokens", who));
  const auto sizes = FERRY_TRY(runner::TextEncoder::sizes_in(manifest, reference.path()));
  const bool has_output =
      prompt.has(std::string(kLastHiddenStatePort)) ||
      (sizes.embedding_width > 0 && prompt.has(std::string(kSentenceEmbeddingPort))) ||
      (sizes.labels > 0 &&
       prompt.has(std::string(sizes.per_token ? kTokenLogitsPort : kClassLogitsPort)));
  if (has_output) return {};
  return bad_input(fmt::format("{} has no {}", who, kLastHiddenStatePort));
}

Status check_reference(const Reference& reference, const packer::Manifest& model,
                       const ReferenceShapes& shapes) {
  for (const ReferencePrompt& prompt : reference.prompts()) {
    if (has_rows(prompt, model)) {
      if (model.find(kTokenEmbeddingRole) == nullptr) continue;
      FERRY_TRY(images_of(reference, prompt, model));
    }
    FERRY_TRY(encoder_input_of(reference, prompt, model));
    FERRY_RETURN_IF_ERROR(PromptCheck(reference, prompt, model, shapes).run());
  }
  return {};
}

int64_t decode_length(const packer::Manifest& manifest) {
  const packer::ManifestComponent* decoder = manifest.find(kTextDecoderRole);
  if (decoder == nullptr || decoder->programs.empty()) return 1;
  const packer::ManifestMethod* method = decoder->programs.front().find(kKvForwardMethod);
  return method == nullptr ? 1 : packer::call_length(*method).value_or(1);
}

int64_t longest_sequence(const packer::Manifest& manifest) {
  // Behind the window a token attends to fewer tokens than in the model, which has no reference.
  if (manifest.attention_sink) return manifest.attention_sink->exact_length();
  const bool is_static = manifest.program_style == kStaticStyle;
  return manifest.context_length - (is_static ? decode_length(manifest) : 0);
}

}  // namespace ferry::proof
