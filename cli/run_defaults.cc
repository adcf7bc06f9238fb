#include "cli/run_defaults.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "runner/generation_config.h"

namespace ferry::cli {
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
  if (!obeys) file.sampling = {};
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
