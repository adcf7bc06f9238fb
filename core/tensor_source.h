// TensorSource: what every checkpoint reader offers, whatever the file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/shape.h"

namespace ferry {

// One tensor as it is read. Bytes are little-endian, row-major, contiguous.
struct TensorEntry {
  std::string name;  // untrusted: quote it with quoted() before printing
  DType dtype;
  Shape shape;
  uint64_t bytes = 0;   // product(shape) * bits / 8, checked
  uint32_t file = 0;    // index into TensorSource::files()
  uint64_t offset = 0;  // of the first byte in that file
  // Where the file has the values in another form, such as "q8_0": its name, and how many bytes of
  // the file it takes. Else empty and 0.
  std::string encoding = {};
  uint64_t encoded_bytes = 0;
  uint64_t stored_bytes() const { return encoding.empty() ? bytes : encoded_bytes; }
  // Where an adapter presents a stored tensor under another name: the stored name, else empty.
  std::string original = {};
  // The name that users know: the one in their file.
  const std::string& stored_name() const { return original.empty() ? name : original; }
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
