#include <ferry/embed.h>

#include <utility>

#include "core/text.h"
#include "library/internal.h"
#include "prompt/embedding_text.h"
#include "runner/text_encoder.h"

namespace ferry {
inline namespace v0 {

struct Embedder::Impl {
  Engine engine;
  packer::Bundle bundle;
  runner::TextEncoder encoder;
  std::optional<prompt::EmbeddingText> texts = {};  // made for the first text
  // The options that `texts` was made with.
  std::optional<prompt::EmbeddingTextOptions> set_for = {};

  Result<std::vector<int64_t>> tokens_of(const std::string& text, const EmbedOptions& options);
  Result<std::vector<float>> embed(std::span<const int64_t> tokens, const EmbedOptions& options);
};

Result<std::vector<int64_t>> Embedder::Impl::tokens_of(const std::string& text,
                                                       const EmbedOptions& options) {
  if (options.prompt && !options.prompt_name.empty()) {
    return library::wrong("prompt_name", "must be empty where there is a prompt");
  }
  const runner::TextEncoder::Sizes& sizes = encoder.sizes();
  if (!texts) {
    texts = FERRY_TRY(prompt::EmbeddingText::open(bundle, sizes.tokens,
                                                  /*is_stripped=*/sizes.embedding_width > 0));
  }
  const prompt::EmbeddingTextOptions how{options.prompt, options.prompt_name, options.truncate};
  if (set_for != how) {
    set_for.reset();
    FERRY_RETURN_IF_ERROR(texts->set(bundle, how));
    set_for = how;
  }
  return texts->tokens_of(text);
}

Result<std::vector<float>> Embedder::Impl::embed(std::span<const int64_t> tokens,
                                                 const EmbedOptions& options) {
  const int64_t width = encoder.sizes().embedding_width;
  if (width == 0) {
    return fail(ErrorCode::kUnsupported,
                printable(bundle.path()) +
                    ": makes no vector of a text, because its checkpoint had no modules.json");
  }
  const int64_t kept = options.width.value_or(width);
  if (kept < 1 || kept > width) {
    return library::wrong("width", "must be from 1 to " + std::to_string(width));
  }
  const runner::EncodedText encoded = FERRY_TRY(encoder.encode(tokens));
  std::vector<float> vector(encoded.embedding.begin(), encoded.embedding.begin() + kept);
  if (options.normalize) prompt::normalize(vector);
  return vector;
}

Embedder::Embedder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Embedder::~Embedder() = default;
Embedder::Embedder(Embedder&&) noexcept = default;
Embedder& Embedder::operator=(Embedder&&) noexcept = default;

Result<Embedder> Embedder::load(const Bundle& bundle, const Engine& engine,
                                std::optional<uint64_t> memory) {
  const packer::Bundle& files = bundle.impl().bundle;
  return library::run(engine, files.path(), [&](ThreadPool& pool) -> Result<Embedder> {
    runner::MethodOptions method;
    method.memory = memory;
    method.own_bf16 = !bundle.impl().exact;
    runner::TextEncoder encoder = FERRY_TRY(runner::TextEncoder::load(files, pool, method));
    return Embedder(std::make_unique<Impl>(Impl{engine, files, std::move(encoder)}));
  });
}

int64_t Embedder::width() const { return impl_->encoder.sizes().embedding_width; }
int64_t Embedder::max_tokens() const { return impl_->encoder.sizes().tokens; }

Result<std::vector<float>> Embedder::embed(const std::string& text, const EmbedOptions& options) {
  Impl& self = *impl_;
  return library::run(self.engine, self.bundle.path(),
                      [&](ThreadPool&) -> Result<std::vector<float>> {
                        return self.embed(FERRY_TRY(self.tokens_of(text, options)), options);
                      });
}

Result<std::vector<float>> Embedder::embed_tokens(std::span<const int64_t> tokens,
                                                  const EmbedOptions& options) {
  Impl& self = *impl_;
  return library::run(self.engine, self.bundle.path(),
                      [&](ThreadPool&) { return self.embed(tokens, options); });
}

Result<std::vector<float>> Embedder::states(std::span<const int64_t> tokens) {
  Impl& self = *impl_;
  return library::run(self.engine, self.bundle.path(),
                      [&](ThreadPool&) -> Result<std::vector<float>> {
                        const auto encoded = FERRY_TRY(self.encoder.encode(tokens));
                        return std::vector<float>(encoded.states.begin(), encoded.states.end());
                      });
}

}  // namespace v0
}  // namespace ferry
