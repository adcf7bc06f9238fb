// Files for other programs that hold weights (safetensors, GGUF, PyTorch): planned to the byte
// before any weight is read, and written as bundles are.
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
  std::string path;  // relative
  uint64_t bytes = 0;
};

// Bytes that are known.
struct FileBytes {
  uint64_t offset = 0;  // in the file
  std::vector<std::byte> bytes = {};
};

// Bytes that are made when they are written.
struct FileLiteral {
  uint64_t offset = 0;
  graph::Literal literal;
};

// A tensor of such a file: the only output of a recipe.
struct FileTensor {
  std::string name;  // as the file has it
  graph::Recipe recipe;
  uint64_t offset = 0;  // in the file
};

// What nothing covers is zero.
struct WeightFile {
  std::string path;  // a plain name
  uint64_t bytes = 0;
  std::vector<FileBytes> known = {};     // headers and tables
  std::vector<FileTensor> tensors = {};  // in ascending order of offsets; disjoint
  std::vector<FileLiteral> literals = {};
  // Where bytes depend on CRC-32s of the tensors, which it is given in their order: what is written
  // over known bytes when all tensors have been.
  std::function<std::vector<FileBytes>(std::span<const uint32_t>)> finishing = nullptr;
};

// A file as it is, or a text, beside files with weights.
struct PlainFileInput {
  std::string path;                            // a plain name
  std::shared_ptr<const InputFile> file = {};  // nullptr where there is a text
  std::string text = {};
};

struct WeightFilesInput {
  std::vector<WeightFile> files;
  std::vector<PlainFileInput> plain = {};
  // Whether the target is a directory with these files. Else it is a file, the only one, whose
  // `path` is the last component of the target.
  bool is_directory = true;
};

// A weight with values that are infinite or NaN, as the checkpoint has them.
struct NonFiniteWeight {
  std::string name;                  // runtime name, or that of the tensor of a file
  std::vector<std::string> sources;  // keys of the checkpoint
  uint64_t count = 0;
};

// Where files are written to.
struct FilesTarget {
  std::string path;        // the directory, or the file
  bool overwrite = false;  // what is there is replaced: a file, or a directory of a checkpoint
  bool resume = false;     // as BundleTarget::resume
  bool synced = true;      // as BundleTarget::synced
};

struct WrittenFile {
  std::string path;  // as planned
  uint64_t bytes = 0;
  Digest sha256 = {};
};

struct WrittenFiles {
  std::vector<WrittenFile> files;           // in the order of WeightFilesPlan::files()
  std::vector<NonFiniteWeight> non_finite;  // in the order of the tensors
  uint64_t resumed_bytes = 0;               // of weights that an earlier run had written
};

class WeightFilesPlan {
 public:
  struct Impl;
  // `source` must outlive the plan. kInternal where bytes or tensors overlap, leave their file or
  // have several outputs, and where names are taken.
  static Result<WeightFilesPlan> make(WeightFilesInput input, const TensorSource& source);

  const std::vector<PlannedFile>& files() const;  // files with weights, then the others
  uint64_t total_bytes() const;
  const WeightFilesInput& input() const;

  // `progress(done, total)` counts bytes of files; may be empty. Several threads make tiles of
  // tensors. All files are written beside the target and synced, and get its name in one step:
  // afterwards it is complete or untouched. kExists where something has the name and must not be
  // replaced; kUnsupported, with every tensor, where the cast to a smaller dtype made infinities of
  // finite values, and where NaN or infinity would have to be quantised; kIo, before anything is
  // written, where there is no room. kInterrupted: core/interrupt.h.
  Result<WrittenFiles> write(const FilesTarget& target, ThreadPool& pool,
                             const ShowProgress& progress) const;

  // Why what is at `path` is not what write() would put there; empty: it is, byte for byte. Makes
  // every tensor again; `progress` tells the bytes.
  Result<std::string> difference(const std::string& path, ThreadPool& pool,
                                 const ShowProgress& progress) const;

 private:
  const TensorSource& source() const;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace ferry::packer
