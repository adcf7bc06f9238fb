// Declares the options of `ferry run`, opens the bundle or the loose programs that they name, and
// settles how tokens are chosen.
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
#include "packer/loose_programs.h"
#include "runner/sampler.h"

namespace ferry::cli {

// Paths of programs that belong to no bundle.
struct LooseOptions {
  std::string vision_encoder, token_embedding, text_decoder, tokenizer;
  std::vector<std::string> data;
  bool any() const {
    return !vision_encoder.empty() || !token_embedding.empty() || !text_decoder.empty() ||
           !tokenizer.empty() || !data.empty();
  }
};

struct RunOptions {
  LooseOptions loose;
  std::vector<std::string> images, sounds, videos, stops;
  std::optional<double> video_fps = {};
  std::string bundle, tokens, prompt, prompt_file, prompts, chat, system, messages, dump_logits,
      stats_json, thresholds, config, mmproj, profile, draft, adapter, save_state, load_state,
      kv_bits;
  std::optional<int64_t> max_new;
  std::string mode, lookahead;
  std::optional<double> repetition_penalty, temperature, top_p, min_p;
  std::optional<int64_t> top_k, seed, memory, lookup, parallel;
  bool greedy = false, stats = false;
  bool pan_and_scan = false;
  bool ignore_eos = false, skip_digests = false, interactive = false, exact = false;
};

// `does` ends the help of --text-decoder, such as "to run".
void add_loose_options(Verb& verb, const std::string& does, LooseOptions& options);

// Names the bundle, unless LooseOptions name programs; then `directory` is empty. `directory` may
// also be a GGUF file, which becomes a bundle in memory.
struct BundleChoice {
  std::string directory;
  std::string config = {};        // convert --config for a GGUF file; may be empty
  std::string mmproj = {};        // convert --mmproj for a GGUF file; may be empty
  bool check_digests = true;      // check the digests of a bundle
  bool exact = false;             // compute with the matrices of a GGUF file as f32
  bool all_logits = false;        // give the logits of all tokens of a GGUF file
  bool needs_eos = true;          // return kUsage if nothing tells which tokens end an answer
  ShowProgress progress = {};     // progress of checking digests
  packer::KnownModel model = {};  // of programs without a bundle
};
// Returns kUsage if both `choice.directory` and `options` name programs, or neither.
Result<packer::Bundle> open_bundle(const BundleChoice& choice, const LooseOptions& options,
                                   ThreadPool& pool);

// -- how tokens are chosen and how many: by the options, else by the generation_config.json of the
// bundle

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
