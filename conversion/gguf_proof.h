// prove_gguf(): a GGUF file is what `convert --to gguf` makes of a checkpoint. Every tensor is
// derived again and compared bit for bit, in the type that it has in the file; every key has the
// value that the checkpoint gives. Tensors and keys may be in another order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "proof/progress.h"

namespace ferry::conversion {

struct GgufProof {
  std::string file_type;                       // "q8_0": of general.file_type
  uint64_t tensors = 0, bytes = 0, keys = 0;   // compared
  std::vector<std::string> different_tensors;  // a line for each
  std::vector<std::string> different_keys;
  std::vector<std::string> notes;  // what the file says that the checkpoint does not decide
  bool parity() const { return different_tensors.empty() && different_keys.empty(); }
};

struct GgufProofOptions {
  std::string checkpoint;  // anything that convert takes
  std::string config;      // as convert --config, or empty
  std::string lora = {};   // as convert --lora, or empty
  proof::Progress progress = {};
};

// `general.name` is that of the file. Where the converter knows no name for the pre-tokenizer, that
// of the file is taken, and a note says so. kUnsupported for a `general.file_type` that Ferry does
// not write.
Result<GgufProof> prove_gguf(const std::string& path, const GgufProofOptions& options,
                             ThreadPool& pool);

// Whether the path names a file whose first bytes are those of GGUF.
bool is_gguf_file(const std::string& path);

}  // namespace ferry::conversion
