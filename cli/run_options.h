// What the command line of `ferry run` says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/loose_programs.h"
#include "runner/sampler.h"

namespace ferry::cli {

struct RunOptions {
  LooseOptions loose;
  std::vector<std::string> images, stops;
  std::string bundle, tokens, prompt, prompt_file, chat, system, messages, dump_logits, stats_json,
      thresholds, config;
  int64_t max_new = 16;
  std::string mode, lookahead;
  runner::SamplingOptions sampling;
  int64_t seed = 0;
  std::optional<int64_t> memory;
  bool ignore_eos = false, skip_digests = false, interactive = false;
};

}  // namespace ferry::cli
