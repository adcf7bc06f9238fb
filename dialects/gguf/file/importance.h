// Importance matrices: how much an error counts in each column of a matrix, as llama.cpp's imatrix
// measures it. Read are its two formats: GGUF (tensors NAME.in_sum2 and NAME.counts) and the older
// one of plain records. Source: llama.cpp, tools/imatrix/imatrix.cpp, tools/quantize/quantize.cpp.
#pragma once

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

}  // namespace ferry::formats
