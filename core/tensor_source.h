// TensorSource: the tensors of a checkpoint as its files store them, whatever the file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_encoding.h"
#include "core/dtype.h"
#include "core/result.h"
#include "core/shape.h"

namespace ferry {

// One tensor. read() gives its values little-endian, row-major and contiguous, or, where there is
// an encoding, the blocks that hold them.
struct TensorEntry {
  std::string name;  // as the file has it; untrusted: quote it with quoted() before printing
  DType dtype;       // of the values; f32 where there is an encoding
  Shape shape;
  uint64_t bytes = 0;   // that read() gives, checked against the shape
  uint32_t file = 0;    // index into TensorSource::files()
  uint64_t offset = 0;  // of the first byte in that file
  const BlockEncoding* encoding = nullptr;
  // What the file does to these bytes beyond that, and read() undoes: "deflate", "big-endian".
  // Where it does something, the bytes of the file are `filtered_bytes`.
  std::string filters = {};
  uint64_t filtered_bytes = 0;

  // The name of the encoding, or of the dtype.
  std::string_view form() const { return encoding ? encoding->name : dtype_name(dtype); }
  uint64_t stored_bytes() const { return filters.empty() ? bytes : filtered_bytes; }
};

struct SourceFile {
  std::string name;                    // relative to the checkpoint directory
  uint64_t bytes = 0;                  // length of the file
  std::vector<std::byte> header = {};  // what precedes the tensor data, kept for provenance digests
};

// Implementations validate everything before the first entry is visible. Thread-safe once open.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // How error messages name the source: the path that the user gave.
  virtual const std::string& path() const = 0;
  virtual const std::vector<SourceFile>& files() const = 0;
  // In a fixed order (file, offset, size, name); names are unique.
  virtual const std::vector<TensorEntry>& entries() const = 0;

  // Fills `out` with the bytes [offset, offset + out.size()) of entry `index`. Fails with kIo if
  // the file ends early or has changed since it was opened. Safe to call from several threads.
  virtual Status read(size_t index, uint64_t offset, std::span<std::byte> out) const = 0;

  // kIo unless every file of the source still is what it was when it was opened, as far as size and
  // modification time tell. For those who have read all they need.
  virtual Status check_unchanged() const { return {}; }
};

}  // namespace ferry
