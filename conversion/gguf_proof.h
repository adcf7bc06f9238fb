// prove_gguf() proves that a GGUF file is what `convert --to gguf` makes of a checkpoint. Every
// tensor is derived again and compared bit for bit, in the type that it has in the file. Every key
// is compared with the value that the checkpoint gives. The order of tensors and keys does not
// matter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "proof/progress.h"

namespace ferry::conversion {

struct GgufProof {
  std::string file_type;                       // from general.file_type, such as "q8_0"
  uint64_t tensors = 0, bytes = 0, keys = 0;   // numbers of what was compared
  std::vector<std::string> different_tensors;  // one line per tensor
  std::vector<std::string> different_keys;
  std::vector<std::string> notes;  // values in the file that the checkpoint does not decide
  bool parity() const { return different_tensors.empty() && different_keys.empty(); }
};

struct GgufProofOptions {
  std::string checkpoint;    // any source that `convert` accepts
  std::string config;        // as the option --config of `convert`, or empty
  std::string lora = {};     // as the option --lora of `convert`, or empty
  std::string imatrix = {};  // as the option --imatrix of `convert`, or empty
  proof::Progress progress = {};
};

// The value of `general.name` is taken from the file. If the converter knows no name for the
// pre-tokenizer, the name in the file is used and a note says so. kUnsupported for a
// `general.file_type` that Ferry does not write.
Result<GgufProof> prove_gguf(const std::string& path, const GgufProofOptions& options,
                             ThreadPool& pool);

// Whether the file at `path` begins with the magic bytes of GGUF.
bool is_gguf_file(const std::string& path);

}  // namespace ferry::conversion
