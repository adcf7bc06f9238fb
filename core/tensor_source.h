// TensorSource presents the tensors of a checkpoint as its files store them, whatever the file
// format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/encoding.h"
#include "core/result.h"

namespace ferry {

// One tensor. read() returns its values little-endian, row-major and contiguous or, if the tensor
// has an encoding, the blocks that hold them.
struct TensorEntry {
  std::string name;  // as the file has it; untrusted: quote it with quoted() before printing
  DType dtype;       // dtype of the values; f32 if there is an encoding
  Shape shape;
  uint64_t bytes = 0;   // bytes that read() returns, checked against the shape
  uint32_t file = 0;    // index into TensorSource::files()
  uint64_t offset = 0;  // position of the first byte in that file
  const BlockEncoding* encoding = nullptr;
  // The filters that the file applies to these bytes beyond their encoding and that read() undoes:
  // "deflate", "big-endian". If there are any, the tensor takes `filtered_bytes` bytes of the file.
  std::string filters = {};
  uint64_t filtered_bytes = 0;

  // Returns the name of the encoding, or else of the dtype.
  std::string_view form() const { return encoding ? encoding->name : dtype_name(dtype); }
  uint64_t stored_bytes() const { return filters.empty() ? bytes : filtered_bytes; }
};

struct SourceFile {
  std::string name;                    // relative to the checkpoint directory
  uint64_t bytes = 0;                  // length of the file
  std::vector<std::byte> header = {};  // bytes before the tensor data, for provenance digests
};

// Integers of which the values of a tensor are made: value = code * scale.
struct StoredCodes {
  int bits = 0;       // 4 (-8..7) or 8 (-128..127)
  int64_t group = 0;  // columns that share a scale; all of them if a row has one
  bool operator==(const StoredCodes&) const = default;
};

// Implementations validate everything before the first entry is visible. Thread-safe once open.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The name of the source in error messages: the path that the user gave.
  virtual const std::string& path() const = 0;
  virtual const std::vector<SourceFile>& files() const = 0;
  // The entries are in a fixed order (file, offset, size, name); names are unique.
  virtual const std::vector<TensorEntry>& entries() const = 0;

  // Fills `out` with the bytes [offset, offset + out.size()) of entry `index`. kIo if the file ends
  // early or has changed since it was opened. Thread-safe.
  virtual Status read(size_t index, uint64_t offset, std::span<std::byte> out) const = 0;

  // Says what integers the values of an entry are made of; nullopt if they are not, as with zero
  // points other than 0, or with columns of a group that do not follow each other. May read zero
  // points and groups, but no codes.
  virtual Result<std::optional<StoredCodes>> codes(size_t /*index*/) const {
    return std::optional<StoredCodes>();
  }
  // Fills `codes` and `scales` with those of whole rows, from row `first` on. The entry must have
  // codes(). Thread-safe.
  virtual Status read_codes(size_t /*index*/, int64_t /*first*/, std::span<int8_t> /*codes*/,
                            std::span<float> /*scales*/) const {
    return fail(ErrorCode::kInternal, "codes of a tensor that has none");
  }

  // Returns kIo if a file of the source has changed since it was opened, as far as its size and
  // modification time tell. Callers use it after their last read.
  virtual Status check_unchanged() const { return {}; }
};

// MemorySource presents tensors in memory behind the interface of a checkpoint reader. Thread-safe
// after the last tensor was added.
class MemorySource : public TensorSource {
 public:
  // Messages call the source `name`.
  explicit MemorySource(std::string name);

  template <class T>
  void add(std::string name, DType dtype, Shape shape, const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    add_bytes(std::move(name), dtype, std::move(shape), std::move(bytes));
  }

  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;

 private:
  void add_bytes(std::string name, DType dtype, Shape shape, std::vector<std::byte> bytes);

  std::string path_;
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<std::vector<std::byte>> contents_;
};

}  // namespace ferry
