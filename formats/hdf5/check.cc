#include "formats/hdf5/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "core/checked.h"
#include "core/text.h"
#include "core/utf8.h"
#include "formats/hdf5/description.h"

namespace ferry::hdf5 {
namespace {

constexpr uint64_t kSuperblockBytes = 48;  // the size of the smallest superblock
constexpr uint64_t kMaxChunkBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxInflation = 1032;
constexpr uint64_t kChecksumBytes = 4;
constexpr uint64_t kMaxFilledRatio = 64;  // of bytes that are not stored to the size of the file
constexpr uint64_t kFilledAlways = uint64_t{1} << 20;

// A range of file bytes that belongs to a dataset.
struct Extent {
  uint64_t begin, end;
  uint64_t object;  // the address of the dataset's header
  const std::string* path;
};

// Makes the error messages about one file.
class Messages {
 public:
  explicit Messages(std::string name) : name_(std::move(name)) {}
  Failure bad(const std::string& path, std::string_view what) const {
    return bad_input(message(path, what));
  }
  Failure unsupported(const std::string& path, std::string_view what) const {
    return fail(ErrorCode::kUnsupported, message(path, what));
  }

 private:
  std::string message(const std::string& path, std::string_view what) const {
    if (path.empty()) return fmt::format("{}: {}", name_, what);
    return fmt::format("{}: {} (tensor {})", name_, what, quoted(path, 160));
  }
  std::string name_;
};

bool is_within(std::string_view path, std::string_view root_group) {
  return path.starts_with(root_group) && path.substr(root_group.size()).starts_with('/');
}

bool is_optimizer(std::string_view path) {
  return is_within(path, "optimizer") || is_within(path, "optimizer_weights");
}

bool is_legacy_keras(const Description& description) {
  return std::ranges::any_of(description.attributes, [](const Attribute& a) {
    return (a.object.empty() || a.object == "model_weights") && a.name.starts_with("layer_names");
  });
}

bool is_keras(const Description& description) {
  return is_legacy_keras(description) ||
         std::ranges::any_of(description.datasets, [](const Dataset& d) {
           return d.path.ends_with("/vars/0") && !is_optimizer(d.path);
         });
}

// Returns the datasets that have the attribute `dtype` = "bfloat16".
std::set<std::string_view> declared_bfloat16(const Description& description) {
  std::set<std::string_view> paths;
  for (const Attribute& a : description.attributes) {
    if (a.name == "dtype" && a.values.size() == 1 && a.values[0] == "bfloat16") {
      paths.insert(a.object);
    }
  }
  return paths;
}

class Checker {
 public:
  Checker(const Description& description, uint64_t base, uint64_t file_bytes,
          const std::string& name)
      : failure_(name),
        base_(base),
        file_bytes_(file_bytes),
        legacy_(is_legacy_keras(description)),
        bfloat16_(declared_bfloat16(description)),
        most_filled_(std::max(kFilledAlways,
                              checked_mul(file_bytes, kMaxFilledRatio).value_or(UINT64_MAX))) {
    for (const FillValue& fill : description.fills) fills_.emplace(fill.path, &fill.element);
  }

  Result<CheckedTensor> tensor(Dataset& dataset);
  Status extents_apart(const std::vector<Dataset>& datasets);
  const Messages& failure() const { return failure_; }

 private:
  Result<DType> dtype(const Dataset& dataset) const;
  Status shape(const Dataset& dataset, TensorEntry& out) const;
  Status contiguous(const Dataset& dataset, CheckedTensor& out);
  Status chunked(Dataset& dataset, CheckedTensor& out);
  Status filters(const Dataset& dataset) const;
  Status chunk(const Dataset& dataset, const Chunk& chunk, uint64_t chunk_bytes);
  Status fill(const Dataset& dataset, uint64_t bytes, CheckedTensor& out);
  Status add_extent(const Dataset& dataset, uint64_t address, uint64_t bytes);

  Messages failure_;
  uint64_t base_, file_bytes_;
  bool legacy_;
  std::set<std::string_view> bfloat16_;
  std::map<std::string_view, const std::vector<std::byte>*> fills_;  // by the path of the dataset
  uint64_t filled_ = 0, most_filled_;  // total bytes of fill values, and their limit
  std::vector<Extent> extents_;
};

// -- H4, H5: element type and shape

Result<DType> Checker::dtype(const Dataset& dataset) const {
  const bool bfloat16 = legacy_ || bfloat16_.contains(dataset.path);
  const auto found = dtype_of(dataset.type, bfloat16);
  if (found) return *found;
  return failure_.unsupported(dataset.path, found.error().message);
}

Status Checker::shape(const Dataset& dataset, TensorEntry& out) const {
  if (dataset.space == Space::kNull) {
    return failure_.unsupported(dataset.path, "a null dataspace, without elements or shape");
  }
  if (dataset.dims.size() > kMaxRank ||
      (dataset.space == Space::kScalar && !dataset.dims.empty())) {
    return failure_.bad(dataset.path, fmt::format("{} dimensions", dataset.dims.size()));
  }
  for (const uint64_t size : dataset.dims) {
    if (size > INT64_MAX) return failure_.bad(dataset.path, "a dimension of 2^63 or more");
    out.shape.push_back(static_cast<int64_t>(size));
  }
  const auto count = checked_numel(out.shape);
  const auto bytes = count ? checked_mul(*count, dtype_bytes(out.dtype)) : std::nullopt;
  if (!bytes) return failure_.bad(dataset.path, "more than 2^63 bytes by its shape");
  out.bytes = static_cast<uint64_t>(*bytes);
  return {};
}

// -- H7, H8: storage of the data

Status Checker::add_extent(const Dataset& dataset, uint64_t address, uint64_t bytes) {
  if (bytes == 0) return {};
  if (!range_inside(address, bytes, file_bytes_) || address < base_ + kSuperblockBytes) {
    return failure_.bad(
        dataset.path,
        fmt::format("{} bytes at offset {} are outside of the data of a file of {} bytes", bytes,
                    address, file_bytes_));
  }
  extents_.push_back({address, address + bytes, dataset.object, &dataset.path});
  return {};
}

// Adds `bytes` to the bytes that the dataset does not store, and sets the fill value.
Status Checker::fill(const Dataset& dataset, uint64_t bytes, CheckedTensor& out) {
  const auto found = fills_.find(dataset.path);
  const auto size = static_cast<size_t>(dtype_bytes(out.entry.dtype));
  if (found == fills_.end() || found->second->size() != size) {
    return failure_.bad(
        dataset.path,
        fmt::format("{} of its {} bytes are not stored, and the file states no fill value", bytes,
                    out.entry.bytes));
  }
  filled_ = checked_add(filled_, bytes).value_or(UINT64_MAX);
  if (filled_ > most_filled_) {
    return failure_.bad(dataset.path,
                        fmt::format("more than {} bytes are fill values", most_filled_));
  }
  out.fill = *found->second;
  if (out.big_endian) std::ranges::reverse(out.fill);
  return {};
}

Status Checker::contiguous(const Dataset& dataset, CheckedTensor& out) {
  const uint64_t bytes = out.entry.bytes;
  if (bytes == 0) return {};
  if (dataset.address == kNoAddress) return fill(dataset, bytes, out);
  if (dataset.stored_bytes != bytes) {
    return failure_.bad(
        dataset.path, fmt::format("{} bytes are stored, expected {}", dataset.stored_bytes, bytes));
  }
  out.entry.offset = dataset.address;
  return add_extent(dataset, dataset.address, bytes);
}

// -- H7, H9, H10: chunks

Status Checker::filters(const Dataset& dataset) const {
  std::set<uint32_t> seen;
  for (const Filter& filter : dataset.filters) {
    if (filter.id != kDeflate && filter.id != kShuffle && filter.id != kFletcher32) {
      return failure_.unsupported(dataset.path, fmt::format("the filter {}", filter.id));
    }
    if (!seen.insert(filter.id).second) {
      return failure_.bad(dataset.path, fmt::format("has the filter {} twice", filter.id));
    }
    if (filter.id == kShuffle && (filter.values.empty() || filter.values[0] != dataset.type.size)) {
      return failure_.bad(dataset.path, "shuffled by another size than that of its elements");
    }
  }
  if (dataset.chunk_options != 0) {
    return failure_.unsupported(dataset.path, "partial chunks that are not filtered");
  }
  return {};
}

Status Checker::chunk(const Dataset& dataset, const Chunk& chunk, uint64_t chunk_bytes) {
  if (chunk.skipped >> dataset.filters.size() != 0) {
    return failure_.bad(dataset.path, "a chunk that skips a filter that it does not have");
  }
  uint64_t exact = chunk_bytes;
  bool deflated = false;
  for (size_t i = 0; i < dataset.filters.size(); ++i) {
    if ((chunk.skipped >> i & 1) != 0) continue;
    if (dataset.filters[i].id == kDeflate) deflated = true;
    if (dataset.filters[i].id == kFletcher32) exact += kChecksumBytes;
  }
  // Deflate makes incompressible bytes slightly longer.
  const uint64_t most = exact + exact / 1000 + 64;
  const bool fits = deflated ? chunk.bytes > 0 && chunk.bytes <= most &&
                                   chunk_bytes / kMaxInflation <= chunk.bytes
                             : chunk.bytes == exact;
  if (!fits) {
    return failure_.bad(dataset.path, fmt::format("a chunk of {} stored bytes, not {}{}",
                                                  chunk.bytes, exact, deflated ? " deflated" : ""));
  }
  return add_extent(dataset, chunk.address, chunk.bytes);
}

// Counts elements of the shape; elements of chunks that lie outside of the shape do not count. The
// chunks begin inside the shape and do not overlap.
uint64_t bytes_in_chunks(const Dataset& dataset) {
  uint64_t bytes = 0;
  for (const Chunk& chunk : dataset.chunks) {
    uint64_t held = dataset.type.size;
    for (size_t i = 0; i < dataset.dims.size(); ++i) {
      held *= std::min(dataset.chunk_dims[i], dataset.dims[i] - chunk.coordinates[i]);
    }
    bytes += held;
  }
  return bytes;
}

Status Checker::chunked(Dataset& dataset, CheckedTensor& out) {
  const size_t rank = dataset.dims.size();
  if (rank == 0 || dataset.chunk_dims.size() != rank) {
    return failure_.bad(dataset.path, "chunks of another rank than its shape");
  }
  if (base_ != 0) {
    return failure_.unsupported(dataset.path, "chunked data in a file with a user block");
  }
  FERRY_RETURN_IF_ERROR(filters(dataset));
  uint64_t chunk_bytes = dataset.type.size;
  uint64_t wanted = 1;   // number of chunks
  uint64_t abreast = 1;  // number of chunks that one row meets
  for (size_t i = 0; i < rank; ++i) {
    const uint64_t size = dataset.chunk_dims[i];
    const auto product = checked_mul(chunk_bytes, size);
    if (size == 0 || !product || *product > kMaxChunkBytes) {
      return failure_.unsupported(dataset.path,
                                  fmt::format("chunks must have 1 to {} bytes", kMaxChunkBytes));
    }
    chunk_bytes = *product;
    // There are at most as many chunks as elements, whose number has been checked. A dimension of
    // size 0 has no chunks.
    const uint64_t along = dataset.dims[i] / size + (dataset.dims[i] % size != 0);
    wanted = checked_mul(wanted, along).value_or(UINT64_MAX);
    if (i > 0) abreast = checked_mul(abreast, along).value_or(UINT64_MAX);
  }
  if (dataset.chunks.size() > wanted || dataset.chunks.size() > kMaxChunksOfDataset) {
    return failure_.bad(dataset.path, fmt::format("{} chunks are stored, expected {}",
                                                  dataset.chunks.size(), wanted));
  }
  // Sequential reading needs all chunks of a row in memory. Otherwise it would inflate them
  // repeatedly.
  if (!dataset.filters.empty() && chunk_bytes * abreast > kMaxHeldBytes) {
    return failure_.unsupported(
        dataset.path, fmt::format("filtered chunks of {} bytes side by side, more than {}",
                                  chunk_bytes * abreast, kMaxHeldBytes));
  }
  for (const Chunk& c : dataset.chunks) {
    bool on_grid = c.coordinates.size() == rank;
    for (size_t i = 0; on_grid && i < rank; ++i) {
      on_grid = c.coordinates[i] < dataset.dims[i] && c.coordinates[i] % dataset.chunk_dims[i] == 0;
    }
    if (!on_grid) return failure_.bad(dataset.path, "a chunk outside of its shape");
    FERRY_RETURN_IF_ERROR(chunk(dataset, c, chunk_bytes));
  }
  // No two chunks have the same coordinates. Elements in no chunk have the fill value.
  std::ranges::sort(dataset.chunks, {}, &Chunk::coordinates);
  const auto twice = std::ranges::adjacent_find(dataset.chunks, {}, &Chunk::coordinates);
  if (twice != dataset.chunks.end()) return failure_.bad(dataset.path, "two chunks in one place");
  if (dataset.chunks.size() < wanted) {
    FERRY_RETURN_IF_ERROR(fill(dataset, out.entry.bytes - bytes_in_chunks(dataset), out));
  }
  if (!dataset.chunks.empty()) out.entry.offset = dataset.chunks.front().address;
  out.chunk_dims = dataset.chunk_dims;
  out.filters = dataset.filters;
  out.chunks = std::move(dataset.chunks);
  return {};
}

// -- one dataset

// Sets TensorEntry::filters.
void note_filters(CheckedTensor& tensor) {
  TensorEntry& entry = tensor.entry;
  const auto add = [&](std::string_view what) {
    entry.filters += entry.filters.empty() ? "" : " ";
    entry.filters += what;
  };
  for (const Filter& filter : tensor.filters) {
    add(filter.id == kDeflate ? "deflate" : filter.id == kShuffle ? "shuffle" : "fletcher32");
  }
  if (tensor.layout == Layout::kChunked && tensor.filters.empty()) add("chunked");
  if (tensor.layout == Layout::kContiguous && !tensor.fill.empty()) add("not stored");
  if (tensor.big_endian) add("big-endian");
  for (const Chunk& chunk : tensor.chunks) entry.filtered_bytes += chunk.bytes;
  const bool whole = tensor.layout != Layout::kChunked && tensor.fill.empty();
  if (whole) entry.filtered_bytes = entry.bytes;
}

Result<CheckedTensor> Checker::tensor(Dataset& dataset) {
  CheckedTensor out;
  out.layout = dataset.layout;
  if (dataset.external_files > 0) {
    return failure_.bad(dataset.path, "its data are in other files (external storage)");
  }
  out.entry.name = dataset.path;
  if (dataset.layout == Layout::kVirtual) {
    return failure_.bad(dataset.path, "a virtual dataset, whose data are in other files");
  }
  out.entry.dtype = FERRY_TRY(dtype(dataset));
  out.big_endian = dataset.type.big_endian && dataset.type.size > 1;
  FERRY_RETURN_IF_ERROR(shape(dataset, out.entry));
  switch (dataset.layout) {
    case Layout::kContiguous:
      FERRY_RETURN_IF_ERROR(contiguous(dataset, out));
      break;
    case Layout::kChunked:
      FERRY_RETURN_IF_ERROR(chunked(dataset, out));
      break;
    case Layout::kCompact:
      if (dataset.inline_bytes.size() != out.entry.bytes) {
        return failure_.bad(dataset.path,
                            fmt::format("{} bytes are stored, expected {}",
                                        dataset.inline_bytes.size(), out.entry.bytes));
      }
      out.inline_bytes = std::move(dataset.inline_bytes);
      break;
    default:
      return failure_.unsupported(dataset.path, "an unknown layout");
  }
  note_filters(out);
  return out;
}

// Applies H8 to all datasets. The header of a dataset counts as one byte, which is enough to find
// data that overlap it.
Status Checker::extents_apart(const std::vector<Dataset>& datasets) {
  for (const Dataset& d : datasets) {
    const auto header = checked_add(base_, d.object);
    if (!header || *header >= file_bytes_) continue;
    extents_.push_back({*header, *header + 1, d.object, &d.path});
  }
  const auto key = [](const Extent& e) { return std::tuple(e.begin, e.end, e.object); };
  // Several names of one dataset have equal extents. Equal extents under one name are chunks that
  // would be read and inflated repeatedly.
  const auto named = [&](const Extent& e) {
    return std::tuple(e.begin, e.end, e.object, std::string_view(*e.path));
  };
  std::ranges::sort(extents_, {}, named);
  const auto twice = std::ranges::adjacent_find(extents_, {}, named);
  if (twice != extents_.end()) {
    return failure_.bad(*twice->path,
                        fmt::format("two of its chunks are the bytes at offset {}", twice->begin));
  }
  const Extent* last = nullptr;  // the extent that ends last so far
  for (const Extent& e : extents_) {
    const bool same = last != nullptr && key(*last) == key(e);
    if (last != nullptr && !same && e.begin < last->end) {
      return failure_.bad(*e.path, fmt::format("its bytes at offset {} are also those of {}",
                                               e.begin, quoted(*last->path, 80)));
    }
    if (last == nullptr || e.end > last->end) last = &e;
  }
  return {};
}

// -- H2, H3, H13

Status check_links(const Description& description, const Messages& failure) {
  for (const OtherLink& link : description.links) {
    switch (link.kind) {
      case LinkKind::kSoft:
        return failure.unsupported(link.path, "a soft link");
      case LinkKind::kExternal:
        return failure.bad(link.path, "a link to another file (external link)");
      case LinkKind::kUserDefined:
        return failure.unsupported(link.path, "a user-defined link");
    }
  }
  return {};
}

Status check_paths(const Description& description, const Messages& failure) {
  std::set<std::string_view> seen;
  for (const Dataset& d : description.datasets) {
    if (d.path.empty() || d.path.find('\0') != std::string::npos || !utf8::is_valid(d.path)) {
      return failure.bad(d.path, "a path that is not UTF-8 text");
    }
    if (!seen.insert(d.path).second) return failure.bad(d.path, "listed twice");
  }
  return {};
}

Status check_weight_names(const Description& description, const Messages& failure) {
  if (!is_legacy_keras(description)) return {};
  std::set<std::string_view> paths;
  for (const Dataset& d : description.datasets) paths.insert(d.path);
  for (const Attribute& a : description.attributes) {
    if (!a.name.starts_with("weight_names") || is_optimizer(a.object + "/")) continue;
    for (const std::string& weight : a.values) {
      const std::string path = a.object.empty() ? weight : a.object + "/" + weight;
      if (!paths.contains(path))
        return failure.bad(path, "listed as a weight, but not in the file");
    }
  }
  return {};
}

}  // namespace

Result<CheckedFile> check(Description description, uint64_t base, uint64_t file_bytes,
                          const std::string& name, bool keras) {
  Checker checker(description, base, file_bytes, name);
  const Messages& failure = checker.failure();
  FERRY_RETURN_IF_ERROR(check_links(description, failure));
  for (const Trouble& trouble : description.troubles) {
    return failure.bad(trouble.path, printable(trouble.what));
  }
  FERRY_RETURN_IF_ERROR(check_paths(description, failure));
  FERRY_RETURN_IF_ERROR(check_weight_names(description, failure));
  CheckedFile out;
  keras = keras || is_keras(description);
  for (Dataset& dataset : description.datasets) {
    if (keras && is_optimizer(dataset.path)) {
      const auto sum = checked_add(out.optimizer_bytes, dataset.stored_bytes);
      if (!sum || *sum > file_bytes) return failure.bad(dataset.path, "longer than the file");
      out.optimizer_bytes = *sum;
      continue;
    }
    out.tensors.push_back(FERRY_TRY(checker.tensor(dataset)));
  }
  FERRY_RETURN_IF_ERROR(checker.extents_apart(description.datasets));
  std::ranges::sort(out.tensors, {}, [](const CheckedTensor& t) {
    return std::tie(t.entry.offset, t.entry.bytes, t.entry.name);
  });
  out.attributes = std::move(description.attributes);
  return out;
}

}  // namespace ferry::hdf5
