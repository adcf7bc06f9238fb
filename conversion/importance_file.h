// make_importance_file() measures the importance matrix of a checkpoint on a text, under the names
// and in the orders of its GGUF file, as llama.cpp's llama-imatrix does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "plan/conversion.h"
#include "proof/progress.h"

namespace ferry::conversion {

struct ImportanceOptions {
  plan::ConvertOptions convert;  // source, config, lora
  std::string text;              // as proof::read_calibration_text() takes it
  bool records = false;          // the older format instead of GGUF
};

struct ImportanceFile {
  std::vector<std::byte> bytes;
  size_t entries = 0, sequences = 0;
  int64_t tokens = 0;
  std::vector<std::string> notes = {};  // lines for the user
};

// Tables of embeddings and heads have no entry, as by default in llama-imatrix. kUnsupported for a
// model of which Ferry writes no GGUF, and for a matrix whose columns are other ones in GGUF.
Result<ImportanceFile> make_importance_file(const ImportanceOptions& options, ThreadPool& pool,
                                            const proof::Progress& progress = {});

}  // namespace ferry::conversion
