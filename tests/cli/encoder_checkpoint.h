// Checkpoints of encoders, and bundles of them.
#pragma once

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry {

inline std::string encoder(const std::string& name) { return fixture("encoder/" + name); }

inline Outcome convert_encoder(const std::string& source, const std::string& to,
                               std::vector<std::string> more) {
  std::vector<std::string> line = {"convert", source, "-o", to};
  // The config of this checkpoint does not say that it is an encoder.
  if (source.ends_with("qwen3_causal")) more.insert(more.end(), {"--program", "encoder"});
  line.insert(line.end(), more.begin(), more.end());
  return run_ferry(line);
}

// Copies embedding_gemma and adds a tokenizer.
inline std::string with_tokenizer(const TempDir& dir) {
  const std::string to = dir / "checkpoint";
  std::filesystem::copy(encoder("embedding_gemma"), to, std::filesystem::copy_options::recursive);
  write_bytes(to + "/tokenizer.json", read_bytes(fixture("tokenizer/gemma/tokenizer.json")));
  return to;
}

}  // namespace ferry
