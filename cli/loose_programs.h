// Options of `run` for programs without a bundle.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"

namespace ferry::cli {

struct LooseOptions {
  std::string vision_encoder, token_embedding, text_decoder, tokenizer;
  std::vector<std::string> data;
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
