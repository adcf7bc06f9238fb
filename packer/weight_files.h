// WeightFilesPlan plans files with weights for other programs (safetensors, GGUF, PyTorch). Every
// byte is planned before any weight is read, and files are written as bundles are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/sha256.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "graph/graph.h"
#include "graph/recipe.h"

namespace ferry::packer {

struct PlannedFile {
  std::string path;  // relative path
  uint64_t bytes = 0;
};

// Bytes that are known in advance.
struct FileBytes {
  uint64_t offset = 0;  // position in the file
  std::vector<std::byte> bytes = {};
};

// Bytes that are made when they are written.
struct FileLiteral {
  uint64_t offset = 0;
  graph::Literal literal;
};

// A tensor of a file: the only output of a recipe.
struct FileTensor {
  std::string name;  // name in the file
  graph::Recipe recipe;
  uint64_t offset = 0;  // position in the file
};

// Bytes that nothing covers are zero.
struct WeightFile {
  std::string path;  // a plain file name
  uint64_t bytes = 0;
  std::vector<FileBytes> known = {};     // headers and tables
  std::vector<FileTensor> tensors = {};  // ascending by offset, disjoint
  std::vector<FileLiteral> literals = {};
  // Set if some bytes depend on the CRC-32 of each tensor. Receives the CRCs in the order of the
  // tensors, after all tensors have been written. The returned bytes are written over known bytes.
  std::function<std::vector<FileBytes>(std::span<const uint32_t>)> finishing = nullptr;
};

// A file to copy, or a text to write, beside files with weights.
struct PlainFileInput {
  std::string path;                            // a plain file name
  std::shared_ptr<const InputFile> file = {};  // nullptr if there is a text
  std::string text = {};
};

struct WeightFilesInput {
  std::vector<WeightFile> files;
  std::vector<PlainFileInput> plain = {};
  // Whether the target is a directory with these files. Otherwise the target is the only file,
  // whose `path` is the last component of the target.
  bool is_directory = true;
};

// A weight with infinite or NaN values that are in the checkpoint too.
struct NonFiniteWeight {
  std::string name;                  // runtime name, or the name of the tensor in a file
  std::vector<std::string> sources;  // keys of the checkpoint
  uint64_t count = 0;
};

// The destination of the files.
struct FilesTarget {
  std::string path;        // path of the directory or the file
  bool overwrite = false;  // replace an existing file, or an existing directory of a checkpoint
  bool resume = false;     // see BundleTarget::resume
  bool synced = true;      // see BundleTarget::synced
};

struct WrittenFile {
  std::string path;  // path in the plan
  uint64_t bytes = 0;
  Digest sha256 = {};
};

struct WrittenFiles {
  std::vector<WrittenFile> files;           // in the order of WeightFilesPlan::files()
  std::vector<NonFiniteWeight> non_finite;  // in the order of the tensors
  uint64_t resumed_bytes = 0;               // bytes of weights that an earlier run had written
};

class WeightFilesPlan {
 public:
  struct Impl;
  // `source` must outlive the plan. kInternal if bytes or tensors overlap or leave their file, if a
  // recipe has several outputs, or if two files or tensors have equal names.
  static Result<WeightFilesPlan> make(WeightFilesInput input, const TensorSource& source);

  const std::vector<PlannedFile>& files() const;  // files with weights, then the others
  uint64_t total_bytes() const;
  const WeightFilesInput& input() const;

  // Makes tiles of tensors in several threads. All files are written beside the target, synced and
  // renamed in one step: afterwards the target is complete, or as it was before. `progress(done,
  // total)` counts bytes of files; it may be empty. kExists if the target exists and must not be
  // replaced. kUnsupported, with every tensor, if the cast to a smaller dtype turned finite values
  // into infinities, or if NaN or infinity would have to be quantised. kIo, before anything is
  // written, if the disk has too little space. kInterrupted: see core/interrupt.h.
  Result<WrittenFiles> write(const FilesTarget& target, ThreadPool& pool,
                             const ShowProgress& progress) const;

  // Returns why the content of `path` differs from what write() would write; empty if all bytes are
  // equal. Makes every tensor again; `progress` counts bytes.
  Result<std::string> difference(const std::string& path, ThreadPool& pool,
                                 const ShowProgress& progress) const;

 private:
  const TensorSource& source() const;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace ferry::packer
