// Declares the options of `ferry run`, and opens the bundle or the loose programs that they name.
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

namespace ferry::cli {

// Paths of programs that belong to no bundle.
struct LooseOptions {
  std::string vision_encoder, token_embedding, text_decoder, tokenizer;
  std::vector<std::string> data;
};

struct RunOptions {
  LooseOptions loose;
  std::vector<std::string> images, stops;
  std::string bundle, tokens, prompt, prompt_file, prompts, chat, system, messages, dump_logits,
      stats_json, thresholds, config;
  std::optional<int64_t> max_new;
  std::string mode, lookahead;
  std::optional<double> repetition_penalty, temperature, top_p, min_p;
  std::optional<int64_t> top_k, seed, memory;
  bool greedy = false, stats = false;
  bool ignore_eos = false, skip_digests = false, interactive = false, exact = false;
};

void add_loose_options(Verb& verb, LooseOptions& options);

// Names the bundle, unless LooseOptions name programs; then `directory` is empty. `directory` may
// also be a GGUF file, which becomes a bundle in memory.
struct BundleChoice {
  std::string directory;
  std::string config = {};     // convert --config for a GGUF file; may be empty
  bool check_digests = true;   // check the digests of a bundle
  bool exact = false;          // compute with the matrices of a GGUF file as f32
  bool needs_eos = true;       // return kUsage if nothing tells which tokens end an answer
  ShowProgress progress = {};  // progress of checking digests
};
// Returns kUsage if both `choice.directory` and `options` name programs, or neither.
Result<packer::Bundle> open_bundle(const BundleChoice& choice, const LooseOptions& options,
                                   ThreadPool& pool);

}  // namespace ferry::cli
