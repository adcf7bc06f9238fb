// A VectorFile is the file of vectors that `ferry embed` writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/atomic_file.h"
#include "core/result.h"

namespace ferry::cli {

// Writes vectors as the rows of one f32 array in NumPy's file format (.npy, version 1.0).
class VectorFile {
 public:
  // Makes a new file, which is removed again unless finish() is called. Returns kUsage if the name
  // does not end in .npy, kExists if the file exists, and kIo if it cannot be made.
  static Result<VectorFile> create(const std::string& path, int64_t width);

  // Requires that `row` has width() values.
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
