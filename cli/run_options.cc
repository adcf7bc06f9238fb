#include "cli/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "conversion/convert.h"
#include "conversion/gguf_proof.h"
#include "core/text.h"
#include "runner/generation_config.h"
#include "text/answer_end.h"

namespace ferry::cli {
namespace {

// Returns kUsage for an option that belongs to another kind of input, such as a GGUF file.
Status check_kind(const BundleChoice& choice, bool is_gguf) {
  if (!choice.config.empty() && !is_gguf) {
    return fail(ErrorCode::kUsage,
                "--config is for GGUF files; bundles and programs have their configuration");
  }
  if (!choice.mmproj.empty() && !is_gguf) {
    return fail(ErrorCode::kUsage,
                "--mmproj is for GGUF files; a bundle that takes images has its vision encoder");
  }
  if (!choice.check_digests && is_gguf) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: --skip-digests is for bundles; a GGUF file has no digests",
                            printable(choice.directory)));
  }
  return {};
}

Status check_loose(const BundleChoice& choice, const LooseOptions& o) {
  if (!choice.directory.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a bundle has its programs and its tokenizer; --vision-encoder, "
                            "--token-embedding, --text-decoder, --data and --tokenizer are for "
                            "programs without a bundle",
                            printable(choice.directory)));
  }
  if (o.text_decoder.empty()) return fail(ErrorCode::kUsage, "--text-decoder is required");
  if (!choice.check_digests) {
    return fail(ErrorCode::kUsage,
                "--skip-digests is for bundles; programs without one have no digests");
  }
  return {};
}

Result<packer::Bundle> open_programs(const BundleChoice& choice, const LooseOptions& o) {
  packer::LoosePrograms files{.text_decoder = o.text_decoder,
                              .token_embedding = o.token_embedding,
                              .vision_encoder = o.vision_encoder,
                              .data = o.data,
                              .tokenizer = o.tokenizer,
                              .eos_ids = {},
                              .model = choice.model};
  if (!o.tokenizer.empty()) files.eos_ids = [&] { return text::end_tokens(o.tokenizer); };
  packer::Bundle bundle = FERRY_TRY(packer::open_loose_programs(files));
  if (!choice.needs_eos || !bundle.manifest().eos_ids.empty()) return bundle;
  return fail(ErrorCode::kUsage,
              fmt::format("{}: neither the program nor --tokenizer says which tokens end an "
                          "answer: use --ignore-eos",
                          printable(o.text_decoder)));
}

}  // namespace

void add_loose_options(Verb& verb, const std::string& does, LooseOptions& o) {
  verb.option("--text-decoder", o.text_decoder,
              "Program (.pte) " + does + " without a bundle, of this or the official exporter")
      .option("--token-embedding", o.token_embedding,
              "Program of token embeddings, for a text decoder that takes them")
      .option("--vision-encoder", o.vision_encoder, "Program of image features, for the same")
      .option("--data", o.data,
              "Data file (.ptd) of these programs, beside those with their names; may be repeated")
      .option("--tokenizer", o.tokenizer,
              "Directory with tokenizer.json and the files beside it, for these programs");
}

Result<packer::Bundle> open_bundle(const BundleChoice& choice, const LooseOptions& options,
                                   ThreadPool& pool) {
  const bool is_gguf = conversion::is_gguf_file(choice.directory);
  FERRY_RETURN_IF_ERROR(check_kind(choice, is_gguf));
  if (!options.any()) {
    if (choice.directory.empty()) {
      return fail(ErrorCode::kUsage, "BUNDLE or --text-decoder is required");
    }
    if (is_gguf) {
      const auto matrices =
          choice.exact ? conversion::GgufMatrices::kFloats : conversion::GgufMatrices::kBlocks;
      return conversion::bundle_in_memory(
          {.path = choice.directory, .config = choice.config, .mmproj = choice.mmproj}, matrices,
          pool, choice.all_logits);
    }
    return choice.check_digests
               ? packer::Bundle::open_to_execute(choice.directory, pool, choice.progress)
               : packer::Bundle::open(choice.directory, /*check_digests=*/false, pool);
  }
  FERRY_RETURN_IF_ERROR(check_loose(choice, options));
  return open_programs(choice, options);
}

namespace {

runner::SamplingOptions with_options(runner::SamplingOptions sampling, const RunOptions& o) {
  sampling.repetition_penalty = o.repetition_penalty.value_or(sampling.repetition_penalty);
  sampling.temperature = o.temperature.value_or(sampling.temperature);
  sampling.top_k = o.top_k.value_or(sampling.top_k);
  sampling.top_p = o.top_p.value_or(sampling.top_p);
  sampling.min_p = o.min_p.value_or(sampling.min_p);
  sampling.seed = static_cast<uint64_t>(o.seed.value_or(0));
  return sampling;
}

}  // namespace

int64_t AnswerLimits::of(int64_t prompt, bool is_chat) const {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  if (max_new) return *max_new < 0 ? kNone : *max_new;
  if (max_new_tokens) return std::max<int64_t>(*max_new_tokens, 1);
  // A prompt that is longer than the file allows is answered all the same.
  if (max_length && *max_length > prompt) return *max_length - prompt;
  return is_chat && has_end ? kNone : kTokensWithoutEnd;
}

Status check_sampling(const RunOptions& options) {
  if (options.greedy && options.temperature.value_or(0) != 0) {
    return fail(ErrorCode::kUsage, "--greedy and --temperature: give one of them");
  }
  const auto made = runner::Sampler::make(with_options({}, options));
  return made ? Status() : Failure(made.error());
}

Result<RunDefaults> settle(const RunOptions& options, const packer::Bundle& bundle) {
  auto file = FERRY_TRY(runner::generation_defaults(bundle));
  const bool obeys = !options.greedy && options.thresholds.empty() && options.dump_logits.empty();
  // Rules about tokens hold without sampling too.
  if (!obeys) file.sampling = {.rules = std::move(file.sampling.rules)};
  RunDefaults settled;
  settled.sampling = with_options(file.sampling, options);
  if (obeys) {
    Status supported = runner::check_supported(file, settled.sampling);
    if (!supported) {
      Error error = supported.error();
      error.message += "; --greedy takes the likeliest token instead";
      return Failure(std::move(error));
    }
  }
  if (settled.sampling.temperature != 0 && !options.seed) {
    settled.sampling.seed = std::random_device()();
  }
  settled.limits = {.max_new = options.max_new,
                    .max_new_tokens = file.max_new_tokens,
                    .max_length = file.max_length,
                    .has_end = !options.ignore_eos && !bundle.manifest().eos_ids.empty()};
  return settled;
}

}  // namespace ferry::cli
