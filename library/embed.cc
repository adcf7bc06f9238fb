#include <ferry/embed.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "core/utf8.h"
#include "library/internal.h"
#include "prompt/image_input.h"
#include "runner/text_encoder.h"
#include "text/chat_template/text_methods.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry {
inline namespace v0 {

struct Embedder::Impl {
  Engine engine;
  packer::Bundle bundle;
  runner::TextEncoder encoder;
  std::optional<text::Tokenizer> tokenizer = {};  // once a text came

  Result<std::vector<int64_t>> tokens_of(const std::string& text, const EmbedOptions& options);
  Result<std::vector<float>> embed(std::span<const int64_t> tokens, const EmbedOptions& options);
};

namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{64} << 20;
constexpr const char* kPrompts = "config_sentence_transformers.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// An empty object where the bundle has no such file.
Result<nlohmann::json> object_in(const packer::Bundle& bundle, const char* file) {
  if (!bundle.has_text(file)) return nlohmann::json::object();
  const std::string where = printable(bundle.path_of(file));
  const std::string text = FERRY_TRY(bundle.text(file, kMaxConfigBytes));
  nlohmann::json document = FERRY_TRY(parse_json(text, where));
  if (!document.is_object()) return bad_input(where + ": not a JSON object");
  return document;
}

// The string of a member, or an empty one where it is absent or null.
Result<std::string> string_in(const nlohmann::json& object, const std::string& name,
                              const std::string& where) {
  const auto at = object.find(name);
  if (at == object.end() || at->is_null()) return std::string();
  if (!at->is_string()) return bad_input(where + ": " + quoted(name) + " is not a string");
  return at->get<std::string>();
}

Result<std::string> prompt_of(const packer::Bundle& bundle, const EmbedOptions& options) {
  if (options.prompt) {
    if (!options.prompt_name.empty()) {
      return library::wrong("prompt_name", "must be empty where there is a prompt");
    }
    return *options.prompt;
  }
  const nlohmann::json config = FERRY_TRY(object_in(bundle, kPrompts));
  const std::string where = printable(bundle.path_of(kPrompts));
  const std::string default_name = FERRY_TRY(string_in(config, "default_prompt_name", where));
  const std::string& name = options.prompt_name.empty() ? default_name : options.prompt_name;
  if (name.empty()) return std::string();
  const auto prompts = config.find("prompts");
  if (prompts != config.end() && !prompts->is_null() && !prompts->is_object()) {
    return bad_input(where + ": 'prompts' is not an object");
  }
  if (prompts == config.end() || !prompts->is_object() || !prompts->contains(name)) {
    if (!options.prompt_name.empty()) {
      return library::wrong("prompt_name", "must be one of " + where + ", not " + quoted(name));
    }
    return bad_input(where + ": has no prompt " + quoted(name));
  }
  return string_in(*prompts, name, where);
}

// Where the tokenizer of transformers cuts.
Result<text::Tokenizer::Cut> cut_of(const packer::Bundle& bundle) {
  const nlohmann::json config = FERRY_TRY(object_in(bundle, kTokenizerConfig));
  const std::string where = printable(bundle.path_of(kTokenizerConfig));
  const std::string side = FERRY_TRY(string_in(config, "truncation_side", where));
  if (side.empty() || side == "right") return text::Tokenizer::Cut::kEnd;
  if (side == "left") return text::Tokenizer::Cut::kBegin;
  return bad_input(where + ": 'truncation_side' is neither left nor right");
}

// Divides by the Euclidean norm, or by 1e-12 where that is larger, as torch's normalize() does.
void set_norm_to_1(std::vector<float>& vector) {
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * value;
  const double norm = std::max(std::sqrt(squares), 1e-12);
  for (float& value : vector) value = static_cast<float>(value / norm);
}

}  // namespace

Result<std::vector<int64_t>> Embedder::Impl::tokens_of(const std::string& text,
                                                       const EmbedOptions& options) {
  const runner::TextEncoder::Sizes& sizes = encoder.sizes();
  const std::string whole = FERRY_TRY(prompt_of(bundle, options)) + text;
  if (!utf8::is_valid(whole)) return library::wrong("text", "must be UTF-8");
  if (!tokenizer) {
    tokenizer = FERRY_TRY(text::load_tokenizer(bundle.text_directory(), prompt::reader_of(bundle)));
  }
  // As sentence-transformers does before it encodes a text.
  std::string_view used = whole;
  if (sizes.embedding_width > 0) used = text::chat::strip(used, text::chat::Side::kBoth);
  const auto most = static_cast<size_t>(sizes.tokens);
  if (options.truncate) return tokenizer->encode_cut(used, most, FERRY_TRY(cut_of(bundle)));
  std::vector<int64_t> tokens = FERRY_TRY(tokenizer->encode(used, /*add_special=*/true));
  if (tokens.size() <= most) return tokens;
  return library::wrong("text", "must have " + std::to_string(most) +
                                    " tokens at most with its prompt, and has " +
                                    std::to_string(tokens.size()) + "; truncate cuts it");
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
  if (options.normalize) set_norm_to_1(vector);
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
