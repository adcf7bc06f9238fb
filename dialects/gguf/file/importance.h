// Importance matrices: how much an error counts in each column of a matrix, as llama.cpp's imatrix
// measures it. It has two formats, which are read and written: GGUF (tensors NAME.in_sum2 and
// NAME.counts) and the older one of plain records. Source: llama.cpp, tools/imatrix/imatrix.cpp,
// tools/quantize/quantize.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::formats {

// Maps the GGUF name of a tensor to the mean square of what each column is multiplied with, one
// number for each column of each matrix, one matrix after the other. A matrix for which nothing was
// counted, such as an expert that no token reached, has ones.
using ImportanceMatrix = std::map<std::string, std::shared_ptr<const std::vector<float>>>;

// kBadInput for a malformed file, a file without entries, and numbers that are negative, infinite
// or NaN.
Result<ImportanceMatrix> read_importance_matrix(const std::string& path);

// ImportanceSums holds sums and counts as a measurement gives them.
struct ImportanceSums {
  struct Entry {
    std::vector<float> sums;    // of squares, for each column of each matrix
    std::vector<float> counts;  // rows that were added, for each matrix
  };
  std::map<std::string, Entry> entries;
  std::string text;                       // name of the text
  uint32_t chunks = 0, chunk_tokens = 1;  // sequences of the text, and their length
};

// The bytes of a file in either format, with entries in the order of their names. kUnsupported for
// names that GGUF cannot have.
Result<std::vector<std::byte>> importance_gguf(const ImportanceSums& sums);
std::vector<std::byte> importance_records(const ImportanceSums& sums);

}  // namespace ferry::formats
