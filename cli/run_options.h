// The options of `ferry run`, and the bundle or the loose programs that they name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "runner/sampler.h"

namespace ferry::cli {

// Programs without a bundle.
struct LooseOptions {
  std::string vision_encoder, token_embedding, text_decoder, tokenizer;
  std::vector<std::string> data;
};

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

void add_loose_options(Verb& verb, LooseOptions& options);

// The programs that the options name, or the bundle in `directory`, which is empty where there are
// such options; a GGUF file in its place becomes a bundle in memory. kUsage unless it is one of
// them.
struct BundleChoice {
  std::string directory;
  std::string config = {};     // of a GGUF file, as convert --config, or empty
  bool check_digests = true;   // of a bundle
  bool needs_eos = true;       // kUsage for programs of which nothing says what ends an answer
  ShowProgress progress = {};  // of the digests
};
Result<packer::Bundle> open_bundle(const BundleChoice& choice, const LooseOptions& options,
                                   ThreadPool& pool);

}  // namespace ferry::cli
