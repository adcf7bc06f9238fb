#include <ferry/generate.h>

#include <string>
#include <utility>

#include "library/answer.h"
#include "library/generator_impl.h"
#include "runner/generation_config.h"

namespace ferry {
inline namespace v0 {
namespace {

using library::wrong;

// `from` must outlive the result.
Result<runner::DecodeOptions> decode_options(const GeneratorOptions& from) {
  runner::DecodeOptions options;
  if (from.mode == DecodeMode::kKv) options.mode = runner::DecodeMode::kKv;
  if (from.mode == DecodeMode::kHybrid) options.mode = runner::DecodeMode::kHybrid;
  if (from.mode == DecodeMode::kLookahead) options.mode = runner::DecodeMode::kLookahead;
  if (from.lookup < 0 || from.lookup > runner::kMostLookup) {
    return wrong("lookup", "must be 0 to " + std::to_string(runner::kMostLookup));
  }
  if (from.lookup > 0 && from.draft) return wrong("draft", "must be absent where lookup is given");
  options.lookup = from.lookup;
  if (from.draft) options.draft = &from.draft->impl().bundle;
  return options;
}

// Several sequences are decoded token by token.
Status check_parallel(const GeneratorOptions& options, bool is_encoder_decoder) {
  constexpr auto kMost = static_cast<int64_t>(runner::kMostSequences);
  if (options.parallel < 1 || options.parallel > kMost) {
    return wrong("parallel", "must be 1 to " + std::to_string(kMost));
  }
  if (options.parallel == 1) return {};
  if (options.mode != DecodeMode::kDefault || options.lookup > 0 || options.draft) {
    return wrong("parallel", "must be 1 where mode, lookup or draft is given");
  }
  return is_encoder_decoder ? wrong("parallel", "must be 1 for an encoder-decoder") : Status();
}

}  // namespace

Generator::Generator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

Result<Generator> Generator::load(const Bundle& bundle, const Engine& engine,
                                  const GeneratorOptions& options) {
  const packer::Bundle& files = bundle.impl().bundle;
  return library::run(engine, files.path(), [&](ThreadPool& pool) -> Result<Generator> {
    auto impl = std::make_unique<Impl>(Impl{.engine = engine, .bundle = files});
    impl->method.memory = options.memory;
    impl->method.own_bf16 = !bundle.impl().exact;
    if (!options.kv_bits.empty()) {
      const auto bits = runner::parse_kv_bits(options.kv_bits);
      if (!bits) return wrong("kv_bits", "must be " + std::string(runner::kKvBitsForms));
      impl->method.kv_bits = *bits;
    }
    FERRY_RETURN_IF_ERROR(impl->open_text());
    FERRY_RETURN_IF_ERROR(impl->open_source());
    const runner::DecodeOptions decode = FERRY_TRY(decode_options(options));
    FERRY_RETURN_IF_ERROR(check_parallel(options, impl->start_token.has_value()));
    if (options.parallel > 1) {
      impl->group = FERRY_TRY(runner::DecoderGroup::load(files, pool, impl->method,
                                                         static_cast<size_t>(options.parallel)));
      impl->decoder = &impl->group->sequence(0);
    } else {
      impl->own_decoder = FERRY_TRY(runner::load_decoder(files, pool, impl->method, decode));
      impl->decoder = impl->own_decoder.get();
    }
    return Generator(std::move(impl));
  });
}

Result<Generation> Generator::generate(const Prompt& prompt, const GenerateOptions& options,
                                       const OnToken& on_token) {
  Impl& self = *impl_;
  const auto work = [&](ThreadPool& pool) -> Result<Generation> {
    FERRY_RETURN_IF_ERROR(library::check_options(options));
    runner::Sampler sampler =
        FERRY_TRY(library::make_sampler(options.sampling, self.rules, options.max_new_tokens));
    std::vector<int64_t> tokens;
    std::optional<int64_t> source_tokens;
    if (self.start_token) {
      source_tokens = FERRY_TRY(self.encode_source(prompt));
      tokens = {*self.start_token};
    } else {
      tokens = FERRY_TRY(self.prepare(prompt, pool));
    }
    const size_t reused = self.executed.size();
    library::Answer answer(options, self.bundle.manifest(), *self.decoder, self.tokenizer(),
                           on_token, std::move(sampler), tokens);
    const auto choose = [&](std::span<const float> logits) { return answer.choose(logits); };
    const auto logits = FERRY_TRY(self.decoder->forward(std::span(tokens).subspan(reused)));
    std::optional<int64_t> token = FERRY_TRY(choose(logits));
    while (token) {
      auto next = self.decoder->advance(*token, choose);
      if (!next && next.error().code == ErrorCode::kInterrupted) {
        answer.stop(StopReason::kInterrupted);
        break;
      }
      token = FERRY_TRY(std::move(next));
    }
    Generation generation = FERRY_TRY(answer.finish());
    generation.prompt_tokens = source_tokens.value_or(std::ssize(tokens));
    generation.reused_tokens = static_cast<int64_t>(reused);
    self.executed = tokens;
    self.executed.insert(self.executed.end(), generation.tokens.begin(), generation.tokens.end());
    // The last token has not been executed.
    self.executed.resize(static_cast<size_t>(self.decoder->position()));
    return generation;
  };
  Result<Generation> generation = library::run(self.engine, self.bundle.path(), work);
  if (!generation) restart();
  return generation;
}

Result<std::span<const float>> Generator::forward(std::span<const int64_t> tokens) {
  Impl& self = *impl_;
  return library::run(self.engine, self.bundle.path(),
                      [&](ThreadPool&) -> Result<std::span<const float>> {
                        const auto logits = FERRY_TRY(self.decoder->forward(tokens));
                        self.executed.insert(self.executed.end(), tokens.begin(), tokens.end());
                        return logits;
                      });
}

void Generator::restart() { impl_->begin(); }
Result<SamplingOptions> Generator::sampling_defaults() const {
  const auto file = FERRY_TRY(runner::generation_defaults(impl_->bundle));
  FERRY_RETURN_IF_ERROR(runner::check_supported(file, file.sampling));
  const runner::SamplingOptions& from = file.sampling;
  return SamplingOptions{.repetition_penalty = from.repetition_penalty,
                         .temperature = from.temperature,
                         .top_k = from.top_k,
                         .top_p = from.top_p,
                         .min_p = from.min_p};
}

int64_t Generator::position() const { return impl_->decoder->position(); }
int64_t Generator::capacity() const { return impl_->decoder->capacity(); }

}  // namespace v0
}  // namespace ferry
