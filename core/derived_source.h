// DerivedSource: a checkpoint's stored tensors, and behind them tensors that are computed from
// them: what a quantised tensor stands for, or a weight with an adapter merged into it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/block_cache.h"
#include "core/file_state.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry {

// How the values of a derived tensor are made. Thread-safe.
class Derivation {
 public:
  virtual ~Derivation() = default;
  // What the values are in; nullptr: f32. Rows are whole blocks.
  virtual const BlockEncoding* encoding() const { return nullptr; }
  // Fills `out` with whole rows, from row `first` on. `source` is the DerivedSource.
  virtual Status rows(const TensorSource& source, int64_t first,
                      std::span<std::byte> out) const = 0;
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
  std::string name;  // for messages; unique
  Shape shape;       // a matrix; its columns are not 0
  // Indices of the entries that it is made of; derived ones stand for their parts.
  std::vector<size_t> parts;
  std::string kind;  // "gptq", in reports
  std::unique_ptr<Derivation> derivation;
};

// Derived tensors are computed in groups of rows, of which the last ones are kept.
class DerivedSource final : public TensorSource, public FileState {
 public:
  explicit DerivedSource(std::unique_ptr<TensorSource> base);

  // Adds the files and the entries of a further source; their names follow `folder` and a dot
  // where it is given. Returns the index of its first entry.
  // kBadInput where an entry's name is taken.
  Result<size_t> add_source(std::unique_ptr<TensorSource> source, const std::string& folder = {});
  // Adds a file without tensors, all of which is in `file.header`; its digest is stated with those
  // of the others. `state` is what state_of() gives.
  void add_file(SourceFile file, std::string state);
  // Returns the index of the entry. kBadInput where the tensor is too large, or its rows are not
  // whole blocks.
  Result<size_t> add(DerivedTensor tensor);

  const std::string& path() const override { return sources_.front()->path(); }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status check_unchanged() const override;
  Result<std::string> state() const override;

  // The stored entries that a derived one is made of, and "gptq:BYTES/ELEMENTS": how, from how many
  // bytes, and how many values. Empty of a stored one.
  std::span<const size_t> parts(size_t index) const { return places_[index].parts; }
  std::string_view form(size_t index) const { return places_[index].form; }

 private:
  struct Place {
    const TensorSource* source = nullptr;  // nullptr: derived
    size_t index = 0;                      // in it
    std::unique_ptr<Derivation> derivation = {};
    std::vector<size_t> parts = {};
    std::string form = {};
  };
  void take(const TensorSource& source, const std::string& folder = {});
  Result<BlockCache::Bytes> compute(size_t index, int64_t first, int64_t rows) const;

  std::vector<std::unique_ptr<TensorSource>> sources_;
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<Place> places_;        // of the entries
  std::vector<std::string> states_;  // of files that are no source's
  mutable BlockCache blocks_;
};

// DerivedSource::parts(): none where the source is no such one.
std::span<const size_t> parts_of(const TensorSource& source, size_t entry);
// DerivedSource::form() of a derived entry, TensorEntry::form() of any other.
std::string_view form_of(const TensorSource& source, size_t entry);

// The floats of an entry of f32, f16, bf16 or an 8-bit float type, elements [first, first +
// out.size()). kUnsupported for other types.
Status read_floats(const TensorSource& source, size_t entry, uint64_t first, std::span<float> out);

}  // namespace ferry
