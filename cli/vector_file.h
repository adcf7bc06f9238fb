// VectorFile: the file of vectors that `ferry embed` writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/atomic_file.h"
#include "core/result.h"

namespace ferry::cli {

// Vectors as the rows of one f32 array in NumPy's file format (.npy, version 1.0).
class VectorFile {
 public:
  // A new file; nothing is left of it unless it is finished. kUsage unless the name ends in .npy,
  // kIo where the file exists or cannot be made.
  static Result<VectorFile> create(const std::string& path, int64_t width);

  // `row` has as many values as the file is wide.
  Status add(std::span<const float> row);
  Status finish();
  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }

 private:
  VectorFile(AtomicFile file, int64_t width) : file_(std::move(file)), width_(width) {}

  AtomicFile file_;
  int64_t width_, rows_ = 0;
};

}  // namespace ferry::cli
