#include "runner/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "runner/draft_model.h"
#include "runner/memory.h"
#include "runner/prompt_lookup.h"
#include "runner/stateful_decoder.h"
#include "runner/static_program/static_decoder.h"

namespace ferry::runner {
namespace {

Failure stateless() {
  return fail(ErrorCode::kUnsupported, "the caches of static programs are not saved");
}

}  // namespace

Status Decoder::set_source(std::span<const int64_t>) {
  return fail(ErrorCode::kUsage, "the bundle has no source encoder, and takes no text for it");
}

Status Decoder::set_sound(std::span<const float>) {
  return fail(ErrorCode::kUsage, "the bundle has no audio encoder, and takes no sound");
}

Result<std::vector<StateTensor>> Decoder::state() const { return stateless(); }

Status Decoder::restore(std::span<const int64_t> /*tokens*/, size_t /*kept*/,
                        const ReadState& /*read*/) {
  return stateless();
}

Result<std::optional<int64_t>> Decoder::advance(int64_t token, const Choose& choose) {
  const std::span<const float> logits = FERRY_TRY(forward({&token, 1}));
  return choose(logits);
}

Status check_model_sizes(const packer::Bundle& bundle) {
  constexpr int64_t kMost = int64_t{1} << 31;
  constexpr int64_t kMostLayers = 1 << 16;
  const packer::Manifest& m = bundle.manifest();
  const auto sane = [](int64_t n) { return n > 0 && n <= kMost; };
  // A program without a manifest need not state hidden_size and num_layers, which a decoder of
  // tokens does not use.
  const bool has_width = m.hidden_size == 0 || sane(m.hidden_size);
  const bool has_layers = m.num_layers >= 0 && m.num_layers <= kMostLayers;
  if (sane(m.vocab_size) && has_width && sane(m.context_length) && sane(m.prefill_length) &&
      has_layers) {
    return {};
  }
  return bad_input(fmt::format("{}/{}: a size of the model is out of range",
                               printable(bundle.path()), packer::kManifestName));
}

Status check_tokens(std::span<const int64_t> tokens, int64_t vocab, int64_t position,
                    int64_t capacity) {
  if (tokens.empty()) return fail(ErrorCode::kUsage, "no tokens to run");
  const auto bad = std::ranges::find_if(tokens, [&](int64_t id) { return id < 0 || id >= vocab; });
  if (bad != tokens.end()) {
    return fail(ErrorCode::kUsage,
                fmt::format("token {} is outside of the vocabulary of {}", *bad, vocab));
  }
  if (std::ssize(tokens) <= capacity - position) return {};
  return fail(ErrorCode::kUsage, fmt::format("{} tokens from position {} exceed the context of {}",
                                             tokens.size(), position, capacity));
}

Failure wrong_mode(const packer::Bundle& bundle, DecodeMode mode) {
  return fail(
      ErrorCode::kUsage,
      fmt::format("{}: mode {} is for static programs; this bundle has {} programs",
                  printable(bundle.path()), name_of(mode), bundle.manifest().program_style));
}

namespace {

Result<std::unique_ptr<Guesser>> make_guesser(const packer::Bundle& bundle, ThreadPool& pool,
                                              const MethodOptions& options,
                                              const DecodeOptions& decode, MemoryBudget& budget) {
  if (decode.draft != nullptr)
    return DraftModel::load(*decode.draft, bundle, pool, options, budget);
  if (decode.lookup == 0) return std::unique_ptr<Guesser>();
  if (decode.lookup < 0 || decode.lookup > kMostLookup) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: lookup of {} tokens: 1 to {} are supported",
                            printable(bundle.path()), decode.lookup, kMostLookup));
  }
  return std::unique_ptr<Guesser>(std::make_unique<PromptLookup>(decode.lookup));
}

}  // namespace

Result<std::unique_ptr<Decoder>> load_decoder(const packer::Bundle& bundle, ThreadPool& pool,
                                              const MethodOptions& options,
                                              const DecodeOptions& decode) {
  if (bundle.manifest().program_style == kStaticStyle) {
    if (options.kv_bits) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: --kv-bits is for stateful programs; convert --kv-dtype u8 makes "
                              "static ones with caches of 8 bits",
                              printable(bundle.path())));
    }
    if (decode.lookup != 0 || decode.draft != nullptr) {
      return fail(
          ErrorCode::kUsage,
          fmt::format("{}: guessing is for stateful programs; static ones have mode lookahead",
                      printable(bundle.path())));
    }
    return std::unique_ptr<Decoder>(std::make_unique<StaticDecoder>(
        FERRY_TRY(StaticDecoder::load(bundle, pool, options, decode))));
  }
  if (bundle.manifest().program_style == kEncoderStyle &&
      bundle.manifest().find(kTextEncoderRole) == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: its encoder takes sound, not text", printable(bundle.path())));
  }
  if (bundle.manifest().program_style == kEncoderStyle) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: has {} programs, which give states of texts and no logits",
                            printable(bundle.path()), kEncoderStyle));
  }
  if (decode.mode) return wrong_mode(bundle, *decode.mode);
  MemoryBudget budget(options.memory);
  std::unique_ptr<Guesser> guesser = FERRY_TRY(make_guesser(bundle, pool, options, decode, budget));
  return std::unique_ptr<Decoder>(std::make_unique<StatefulDecoder>(
      FERRY_TRY(StatefulDecoder::load(bundle, pool, options, std::move(guesser), budget))));
}

}  // namespace ferry::runner
