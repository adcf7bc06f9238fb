#include "converters/adapters/strided_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "core/block_cache.h"
#include "core/checked.h"
#include "core/strided_gather.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// Names that an entry's `original` spells out.
constexpr size_t kMaxOriginals = 4;

struct Piece {
  size_t entry = 0;
  StridedWalk walk;
  int64_t count = 0;
  DType dtype = DType::kF32;
  bool is_run() const {
    return walk.axes.empty() || (walk.axes.size() == 1 && walk.axes[0].stride == 1);
  }
};

struct Tensor {
  std::vector<Piece> pieces;
  ElementChange change = ElementChange::kNone;
  DType dtype = DType::kF32;
  int64_t count = 0;
  // One run of stored bytes, from which reads need no block.
  bool is_run() const {
    return pieces.size() == 1 && pieces[0].is_run() && pieces[0].dtype == dtype &&
           change == ElementChange::kNone;
  }
};

// -- checking and simplifying what is asked for

class Maker {
 public:
  explicit Maker(const TensorSource& inner) : inner_(inner), used_(inner.entries().size(), 0) {}

  Result<std::pair<TensorEntry, Tensor>> tensor(const StridedTensor& wanted) {
    Tensor made;
    made.change = wanted.change;
    const auto count = checked_numel(wanted.shape);
    if (!count || wanted.pieces.empty()) return defect(wanted, "its shape or pieces");
    for (const StridedPiece& asked : wanted.pieces) {
      made.pieces.push_back(FERRY_TRY(piece(asked, wanted)));
      made.count += made.pieces.back().count;
    }
    if (made.count != *count) {
      return bad_input(fmt::format("{}: {} gives {} elements, but {} {} has {}", path(),
                                   stored(wanted.pieces[0].entry), made.count, quoted(wanted.name),
                                   to_string(wanted.shape), *count));
    }
    FERRY_RETURN_IF_ERROR(settle_dtype(wanted, made));
    TensorEntry entry = inner_.entries()[wanted.pieces[0].entry];  // file and offset
    entry.original = originals(wanted);
    entry.name = wanted.name;
    entry.dtype = made.dtype;
    entry.shape = wanted.shape;
    const auto bytes = checked_mul<int64_t>(made.count, dtype_bytes(made.dtype));
    if (!bytes) return defect(wanted, "its size");
    entry.bytes = static_cast<uint64_t>(*bytes);
    return std::pair(std::move(entry), std::move(made));
  }

  bool is_used(size_t entry) const { return used_[entry] > 0; }

  // Of the stored tensors that are used, all elements are.
  Status check_all_used() const {
    for (size_t i = 0; i < used_.size(); ++i) {
      const int64_t count = checked_numel(inner_.entries()[i].shape).value_or(0);
      if (used_[i] == 0 || used_[i] >= count) continue;
      return bad_input(fmt::format("{}: {} {} has {} elements, of which the model has {}", path(),
                                   stored(i), to_string(inner_.entries()[i].shape), count,
                                   used_[i]));
    }
    return {};
  }

 private:
  std::string path() const { return printable(inner_.path()); }
  std::string stored(size_t entry) const { return quoted(inner_.entries()[entry].stored_name()); }

  tl::unexpected<Error> defect(const StridedTensor& wanted, std::string_view what) const {
    return fail(ErrorCode::kInternal, fmt::format("{}: tensor {} cannot be presented: {}", path(),
                                                  quoted(wanted.name), what));
  }

  Result<Piece> piece(const StridedPiece& asked, const StridedTensor& wanted) {
    if (asked.entry >= inner_.entries().size() || asked.dims.size() != asked.strides.size() ||
        asked.offset < 0) {
      return defect(wanted, "a piece");
    }
    const TensorEntry& entry = inner_.entries()[asked.entry];
    if (dtype_bits(entry.dtype) % 8 != 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: {} is {}, which cannot be rearranged", path(),
                              stored(asked.entry), dtype_name(entry.dtype)));
    }
    Piece made;
    made.entry = asked.entry;
    made.walk.offset = asked.offset;
    made.dtype = entry.dtype;
    const auto count = checked_numel(asked.dims);
    if (!count) return defect(wanted, "a piece's dimensions");
    made.count = *count;
    auto end = std::optional<int64_t>(*count == 0 ? asked.offset : asked.offset + 1);
    for (size_t i = 0; i < asked.dims.size(); ++i) {
      const WalkAxis axis{asked.dims[i], asked.strides[i]};
      if (axis.stride < 0) return defect(wanted, "a negative stride");
      if (axis.size < 2 || *count == 0) continue;
      const auto reach = checked_mul(axis.size - 1, axis.stride);
      end = end && reach ? checked_add(*end, *reach) : std::nullopt;
      add_axis(made.walk, axis);
    }
    if (!end || *end > checked_numel(entry.shape).value_or(0)) {
      return bad_input(fmt::format("{}: {} {} has fewer elements than {} needs of it", path(),
                                   stored(asked.entry), to_string(entry.shape),
                                   quoted(wanted.name)));
    }
    used_[asked.entry] += *count;
    return made;
  }

  Status settle_dtype(const StridedTensor& wanted, Tensor& made) const {
    const DType first = made.pieces[0].dtype;
    bool change = wanted.change != ElementChange::kNone;
    for (const Piece& piece : made.pieces) change |= piece.dtype != first;
    made.dtype = change ? DType::kF32 : first;
    for (const Piece& piece : made.pieces) {
      if (!change || is_castable(piece.dtype)) continue;
      return bad_input(fmt::format("{}: {} is {}, expected f32, f16 or bf16", path(),
                                   stored(piece.entry), dtype_name(piece.dtype)));
    }
    return {};
  }

  // "a", "a + b", "a + b + c + d + 12 more"; empty where the name is the stored one.
  std::string originals(const StridedTensor& wanted) const {
    std::vector<size_t> entries;
    for (const StridedPiece& piece : wanted.pieces) {
      if (std::ranges::count(entries, piece.entry) == 0) entries.push_back(piece.entry);
    }
    std::string text;
    for (size_t i = 0; i < std::min(entries.size(), kMaxOriginals); ++i) {
      text += (i > 0 ? " + " : "") + inner_.entries()[entries[i]].stored_name();
    }
    if (entries.size() > kMaxOriginals) {
      text += fmt::format(" + {} more", entries.size() - kMaxOriginals);
    }
    return text == wanted.name ? std::string() : text;
  }

  const TensorSource& inner_;
  std::vector<int64_t> used_;  // elements, by stored tensor
};

// -- reading

void to_f32(DType dtype, std::span<const std::byte> in, float* out) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  if (dtype == DType::kF32) {
    std::memcpy(out, in.data(), in.size());
    return;
  }
  for (size_t i = 0; i < in.size() / size; ++i) {
    uint16_t bits;
    std::memcpy(&bits, in.data() + i * size, sizeof bits);
    out[i] = dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

void undo(ElementChange change, std::span<float> values) {
  if (change == ElementChange::kSubtractOne) {
    for (float& x : values) x -= 1.0f;
  } else if (change == ElementChange::kLogOfNegated) {
    // In f64, so that the bits do not depend on the processor.
    for (float& x : values) x = static_cast<float>(std::log(-static_cast<double>(x)));
  }
}

using Bytes = BlockCache::Bytes;

class Source final : public StridedSource {
 public:
  Source(std::unique_ptr<TensorSource> inner, std::vector<TensorEntry> entries,
         std::vector<Tensor> tensors)
      : inner_(std::move(inner)), entries_(std::move(entries)), tensors_(std::move(tensors)) {}

  const std::string& path() const override { return inner_->path(); }
  const std::vector<SourceFile>& files() const override { return inner_->files(); }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status check_unchanged() const override { return inner_->check_unchanged(); }

  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    if (index >= entries_.size() || !range_inside(offset, out.size(), entries_[index].bytes)) {
      return fail(ErrorCode::kInternal,
                  fmt::format("{}: read outside of a tensor", printable(path())));
    }
    const Tensor& tensor = tensors_[index];
    const auto size = static_cast<uint64_t>(dtype_bytes(tensor.dtype));
    if (tensor.is_run()) {
      const Piece& piece = tensor.pieces[0];
      return inner_->read(piece.entry, static_cast<uint64_t>(piece.walk.offset) * size + offset,
                          out);
    }
    const uint64_t block_bytes = kBlockElements * size;
    while (!out.empty()) {
      const uint64_t number = offset / block_bytes;
      const auto bytes =
          FERRY_TRY(blocks_.get(index, number, [&] { return compute(tensor, number); }));
      const uint64_t skip = offset % block_bytes;
      const size_t count = std::min<uint64_t>(bytes->size() - skip, out.size());
      std::memcpy(out.data(), bytes->data() + skip, count);
      out = out.subspan(count);
      offset += count;
    }
    return {};
  }

 private:
  Result<Bytes> compute(const Tensor& tensor, uint64_t number) const {
    int64_t from = static_cast<int64_t>(number) * kBlockElements;
    int64_t left = std::min(kBlockElements, tensor.count - from);
    const int64_t size = dtype_bytes(tensor.dtype);
    Bytes out(static_cast<size_t>(left * size));
    std::byte* at = out.data();
    for (const Piece& piece : tensor.pieces) {
      const int64_t count = std::clamp<int64_t>(piece.count - from, 0, left);
      if (count > 0)
        FERRY_RETURN_IF_ERROR(fill(tensor, piece, from, {at, static_cast<size_t>(count * size)}));
      from = std::max<int64_t>(from - piece.count, 0);
      left -= count;
      at += count * size;
    }
    return out;
  }

  // `out` gets as many elements of the piece from `from` on.
  Status fill(const Tensor& tensor, const Piece& piece, int64_t from,
              std::span<std::byte> out) const {
    const int64_t count = static_cast<int64_t>(out.size()) / dtype_bytes(tensor.dtype);
    const int64_t size = dtype_bytes(piece.dtype);
    const ReadArray read = [&](uint64_t offset, std::span<std::byte> bytes) {
      return inner_->read(piece.entry, offset, bytes);
    };
    if (piece.dtype == tensor.dtype && tensor.change == ElementChange::kNone) {
      return gather(piece.walk, size, from, count, read, out.data());
    }
    Bytes stored(static_cast<size_t>(count * size));
    FERRY_RETURN_IF_ERROR(gather(piece.walk, size, from, count, read, stored.data()));
    std::vector<float> values(static_cast<size_t>(count));
    to_f32(piece.dtype, stored, values.data());
    undo(tensor.change, values);
    std::memcpy(out.data(), values.data(), out.size());
    return {};
  }

  std::unique_ptr<TensorSource> inner_;
  std::vector<TensorEntry> entries_;
  std::vector<Tensor> tensors_;  // parallel to entries_
  mutable BlockCache blocks_;
};

}  // namespace

StridedPiece whole_piece(const TensorSource& inner, size_t index) {
  return {.entry = index,
          .dims = {checked_numel(inner.entries()[index].shape).value_or(0)},
          .strides = {1}};
}

Result<std::unique_ptr<StridedSource>> StridedSource::make(std::unique_ptr<TensorSource> inner,
                                                           std::vector<StridedTensor> tensors) {
  Maker maker(*inner);
  std::vector<std::pair<TensorEntry, Tensor>> made;
  for (const StridedTensor& tensor : tensors) made.push_back(FERRY_TRY(maker.tensor(tensor)));
  FERRY_RETURN_IF_ERROR(maker.check_all_used());
  for (size_t i = 0; i < inner->entries().size(); ++i) {
    if (maker.is_used(i)) continue;
    const TensorEntry& entry = inner->entries()[i];
    made.push_back(FERRY_TRY(maker.tensor(
        {.name = entry.name, .shape = entry.shape, .pieces = {whole_piece(*inner, i)}})));
  }
  std::stable_sort(made.begin(), made.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.file, a.first.offset, a.first.bytes, a.first.name) <
           std::tie(b.first.file, b.first.offset, b.first.bytes, b.first.name);
  });
  std::vector<TensorEntry> entries;
  std::vector<Tensor> plans;
  std::set<std::string> names;
  for (auto& [entry, tensor] : made) {
    if (!names.insert(entry.name).second) {
      return bad_input(fmt::format("{}: {} would be a second {}", printable(inner->path()),
                                   quoted(entry.stored_name()), quoted(entry.name)));
    }
    entries.push_back(std::move(entry));
    plans.push_back(std::move(tensor));
  }
  return std::unique_ptr<StridedSource>(
      std::make_unique<Source>(std::move(inner), std::move(entries), std::move(plans)));
}

}  // namespace ferry::converters
