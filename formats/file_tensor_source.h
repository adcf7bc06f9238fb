// FileTensorSource is the common base of the tensor sources of all file formats. A format adds its
// files and entries while it opens them, and defines how the bytes of an entry are read.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::formats {

class FileTensorSource : public TensorSource, public FileState {
 public:
  const std::string& path() const final { return path_; }
  const std::vector<SourceFile>& files() const final { return files_; }
  const std::vector<TensorEntry>& entries() const final { return entries_; }
  // Checks the range, calls read_entry(), and then checks that the file is unchanged.
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const final;
  Status check_unchanged() const final;
  Result<std::string> state() const final;

 protected:
  explicit FileTensorSource(std::string path) : path_(std::move(path)) {}

  // Returns the number of the file, which is TensorEntry::file of its entries. `header` is
  // SourceFile::header.
  uint32_t add_file(std::string name, std::unique_ptr<InputFile> file,
                    std::vector<std::byte> header);
  void add_entry(TensorEntry entry) { entries_.push_back(std::move(entry)); }
  const InputFile& input(uint32_t file) const { return *inputs_[file]; }
  // Reads as read() does, but the range is known to lie in the entry, and `out` is not empty. The
  // default implementation reads the file's bytes from the entry's offset on.
  virtual Status read_entry(size_t index, uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  std::vector<std::unique_ptr<InputFile>> inputs_;
  std::vector<SourceFile> files_;  // parallel to inputs_
  std::vector<TensorEntry> entries_;
};

// One open file of a checkpoint.
struct CheckpointFile {
  InputFile file;
  std::string name;  // SourceFile::name: relative to the checkpoint directory
};
// Returns the files of a checkpoint that consists of one file.
std::vector<CheckpointFile> one_file(InputFile file, std::string name);

// Returns whether an index may hold `name` as a file name: it must not lead out of the directory of
// the index.
bool is_index_file_name(std::string_view name);

// Returns kBadInput if a tensor is in two files.
Status check_unique_names(const TensorSource& source);

}  // namespace ferry::formats
