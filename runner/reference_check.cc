#include "runner/reference_check.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "core/text.h"

namespace ferry {
namespace {

// A cache of the reference, and the buffer of a layer that it is compared with.
constexpr std::pair<std::string_view, std::string_view> kCaches[] = {
    {"key", "kv_cache.k_cache"},
    {"value", "kv_cache.v_cache"},
    {"conv_state", "conv_state"},
    {"recurrent_state", "recurrent_state"},
};

class PromptCheck {
 public:
  PromptCheck(const Reference& reference, const ReferencePrompt& prompt, const ModelSizes& model)
      : reference_(reference),
        prompt_(prompt),
        model_(model),
        tokens_(static_cast<int64_t>(prompt.input_ids.size())) {}

  Status run() const {
    FERRY_CHECK(check_tokens("prompt", prompt_.input_ids, tokens_));
    if (!prompt_.has("logits")) return refuse("has no logits");
    const Shape logits = {1, tokens_, model_.vocab_size};
    FERRY_CHECK(check("logits", logits));
    FERRY_CHECK(check("logits_f64", logits));
    FERRY_CHECK(check_greedy());
    const Shape hidden = {1, tokens_, model_.hidden_size};
    FERRY_CHECK(check("last_layer_prenorm", hidden));
    for (int64_t n = 0; n <= model_.num_layers; ++n) {
      FERRY_CHECK(check(fmt::format("hidden_states.{}", n), hidden));
      FERRY_CHECK(check_caches(n));
    }
    return {};
  }

 private:
  tl::unexpected<Error> refuse(const std::string& what) const {
    return bad_input(
        fmt::format("{}: prompt {} {}", printable(reference_.path()), quoted(prompt_.name), what));
  }

  // What a prompt does not have is not compared.
  Status check(const std::string& tensor, const Shape& expected) const {
    return prompt_.has(tensor) ? reference_.check(prompt_, tensor, expected) : Status();
  }

  // `positions` of the context are needed.
  Status check_tokens(std::string_view what, const std::vector<int64_t>& ids,
                      int64_t positions) const {
    for (const int64_t id : ids) {
      if (id >= 0 && id < model_.vocab_size) continue;
      return refuse(fmt::format("has token {} in its {}, outside of the model's vocabulary of {}",
                                id, what, model_.vocab_size));
    }
    if (positions <= model_.context_length) return {};
    return refuse(fmt::format("has {} tokens up to the end of its {}, the bundle's context is {}",
                              positions, what, model_.context_length));
  }

  Status check_greedy() const {
    if (!prompt_.has("greedy_ids")) return {};
    const std::vector<int64_t> ids = FERRY_TRY(reference_.ids(prompt_, "greedy_ids"));
    const auto count = static_cast<int64_t>(ids.size());
    FERRY_CHECK(check_tokens("continuation", ids, tokens_ + count - 1));
    return check("greedy_logits", {count, model_.vocab_size});
  }

  Status check_caches(int64_t layer) const {
    for (const auto& [name, buffer] : kCaches) {
      const auto found = model_.buffers.find(fmt::format("layers.{}.attention.{}", layer, buffer));
      if (found == model_.buffers.end()) continue;
      Shape expected = found->second;
      // Ours is [1, context, heads, dim]; the reference is [1, heads, T, dim].
      if (buffer.starts_with("kv_cache") && expected.size() == 4) {
        expected = {1, expected[2], tokens_, expected[3]};
      }
      FERRY_CHECK(check(fmt::format("cache.{}.{}", layer, name), expected));
    }
    return {};
  }

  const Reference& reference_;
  const ReferencePrompt& prompt_;
  const ModelSizes& model_;
  const int64_t tokens_;
};

}  // namespace

Status check_reference(const Reference& reference, const ModelSizes& model) {
  for (const ReferencePrompt& prompt : reference.prompts()) {
    if (prompt.has("pixel_values") || prompt.has("image_features")) continue;
    FERRY_CHECK(PromptCheck(reference, prompt, model).run());
  }
  return {};
}

}  // namespace ferry
