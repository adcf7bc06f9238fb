// Settles how `ferry run` chooses tokens and how many: by its options, else by the
// generation_config.json of the bundle.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/run_options.h"
#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/sampler.h"

namespace ferry::cli {

// Prompts that are no chat, and prompts of programs without end tokens, get as many tokens.
inline constexpr int64_t kTokensWithoutEnd = 256;

struct AnswerLimits {
  std::optional<int64_t> max_new;                     // --max-new; -1: no limit
  std::optional<int64_t> max_new_tokens, max_length;  // of generation_config.json
  bool has_end = true;                                // whether an end token can end the answer

  // Returns how many tokens the answer to a prompt of this length has at most.
  int64_t of(int64_t prompt, bool is_chat) const;
};

struct RunDefaults {
  runner::SamplingOptions sampling;
  AnswerLimits limits;
};

// Returns kUsage for an option that is out of range, and for --greedy beside --temperature.
Status check_sampling(const RunOptions& options);

// Draws a seed if tokens are to be drawn and --seed is not given. Returns kUnsupported if
// generation_config.json asks for something that the sampler does not have. The file says nothing
// about sampling with --greedy, and with --thresholds and --dump-logits, whose results must be
// repeatable.
Result<RunDefaults> settle(const RunOptions& options, const packer::Bundle& bundle);

}  // namespace ferry::cli
