// DerivedSource presents a checkpoint's stored tensors and, behind them, tensors that are computed
// from them: the values of a quantised tensor, or a weight with an adapter merged into it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/block_cache.h"
#include "core/file.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry {

// Computes the values of a derived tensor. Thread-safe.
class Derivation {
 public:
  virtual ~Derivation() = default;
  // The encoding of the values; nullptr for f32. A row consists of whole blocks.
  virtual const BlockEncoding* encoding() const { return nullptr; }
  // Fills `out` with whole rows, beginning with row `first`. `source` is the DerivedSource.
  virtual Status rows(const TensorSource& source, int64_t first,
                      std::span<std::byte> out) const = 0;
  // See TensorSource::codes() and TensorSource::read_codes().
  virtual Result<std::optional<StoredCodes>> codes(const TensorSource& /*source*/) const {
    return std::optional<StoredCodes>();
  }
  virtual Status read_codes(const TensorSource& /*source*/, int64_t /*first*/,
                            std::span<int8_t> /*codes*/, std::span<float> /*scales*/) const {
    return fail(ErrorCode::kInternal, "codes of a tensor that has none");
  }
};

class FloatDerivation : public Derivation {
 public:
  Status rows(const TensorSource& source, int64_t first, std::span<std::byte> out) const final {
    return values(source, first,
                  {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
  }
  virtual Status values(const TensorSource& source, int64_t first, std::span<float> out) const = 0;
};

struct DerivedTensor {
  std::string name;  // unique; used in messages
  Shape shape;       // a matrix with at least one column
  // Indices of the entries that the tensor is made of. A derived entry is replaced by its own
  // parts.
  std::vector<size_t> parts;
  std::string kind;  // appears in reports, such as "gptq"
  std::unique_ptr<Derivation> derivation;
};

// Computes derived tensors in groups of rows and caches the most recently used groups.
class DerivedSource final : public TensorSource, public FileState {
 public:
  explicit DerivedSource(std::unique_ptr<TensorSource> base);

  // Adds the files and the entries of another source, and returns the index of its first entry. If
  // `folder` is not empty, it and a dot precede their names. kBadInput if the name of an entry is
  // taken.
  Result<size_t> add_source(std::unique_ptr<TensorSource> source, const std::string& folder = {});
  // Adds a file without tensors. `file.header` holds the whole file; its digest is stated with
  // those of the other files. `state` is the result of state_of().
  void add_file(SourceFile file, std::string state);
  // Returns the index of the entry. kBadInput if the tensor is too large or its rows are not whole
  // blocks.
  Result<size_t> add(DerivedTensor tensor);

  const std::string& path() const override { return sources_.front()->path(); }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status check_unchanged() const override;
  Result<std::string> state() const override;

  // parts() returns the stored entries that a derived entry is made of. form() is
  // "gptq:BYTES/ELEMENTS": the kind, the number of stored bytes, and the number of values. Both are
  // empty for a stored entry.
  std::span<const size_t> parts(size_t index) const { return places_[index].parts; }
  std::string_view form(size_t index) const { return places_[index].form; }

  Result<std::optional<StoredCodes>> codes(size_t index) const override;
  Status read_codes(size_t index, int64_t first, std::span<int8_t> codes,
                    std::span<float> scales) const override;

 private:
  struct Place {
    const TensorSource* source = nullptr;  // nullptr for a derived tensor
    size_t index = 0;                      // index of the entry in `source`
    std::unique_ptr<Derivation> derivation = {};
    std::vector<size_t> parts = {};
    std::string form = {};
  };
  void take(const TensorSource& source, const std::string& folder = {});
  Result<BlockCache::Bytes> compute(size_t index, int64_t first, int64_t rows) const;

  std::vector<std::unique_ptr<TensorSource>> sources_;
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<Place> places_;        // one for each entry
  std::vector<std::string> states_;  // states of the files that add_file() added
  mutable BlockCache blocks_;
};

// Returns DerivedSource::parts(), or nothing if `source` is not a DerivedSource.
std::span<const size_t> parts_of(const TensorSource& source, size_t entry);
// Returns DerivedSource::form() for a derived entry and TensorEntry::form() for any other.
std::string_view form_of(const TensorSource& source, size_t entry);

// Reads elements [first, first + out.size()) of an entry of f32, f16, bf16 or an 8-bit float type
// as f32. kUnsupported for other types.
Status read_floats(const TensorSource& source, size_t entry, uint64_t first, std::span<float> out);

}  // namespace ferry
