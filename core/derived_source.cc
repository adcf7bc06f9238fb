#include "core/derived_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/checked.h"
#include "core/dtype.h"
#include "core/text.h"

namespace ferry {
namespace {

// The size of a block makes reads long even if a tensor is stored column by column.
constexpr int64_t kBlockElements = int64_t{1} << 18;
// Blocks begin at multiples of the number of rows that packed formats put into one integer.
constexpr int64_t kRowMultiple = 8;

int64_t block_rows(int64_t columns) {
  const int64_t rows = std::max<int64_t>(kBlockElements / columns, 1);
  return rows < kRowMultiple ? kRowMultiple : rows / kRowMultiple * kRowMultiple;
}

// Returns the bytes of `elements` values, or nullopt on overflow.
std::optional<uint64_t> bytes_of(uint64_t elements, const BlockEncoding* encoding) {
  if (encoding == nullptr) return checked_mul(elements, uint64_t{sizeof(float)});
  return checked_mul(elements / encoding->elements, uint64_t{encoding->bytes});
}

uint64_t row_bytes(const TensorEntry& entry) {
  return bytes_of(static_cast<uint64_t>(entry.shape[1]), entry.encoding).value_or(0);
}

}  // namespace

DerivedSource::DerivedSource(std::unique_ptr<TensorSource> base) {
  take(*base);
  sources_.push_back(std::move(base));
}

void DerivedSource::take(const TensorSource& source, const std::string& folder) {
  const auto first_file = static_cast<uint32_t>(files_.size());
  for (SourceFile file : source.files()) {
    if (!folder.empty()) file.name = folder + "." + file.name;
    files_.push_back(std::move(file));
  }
  for (size_t i = 0; i < source.entries().size(); ++i) {
    TensorEntry entry = source.entries()[i];
    entry.file += first_file;
    if (!folder.empty()) entry.name = folder + "." + entry.name;
    entries_.push_back(std::move(entry));
    const std::span<const size_t> parts = parts_of(source, i);
    places_.push_back({.source = &source,
                       .index = i,
                       .parts = {parts.begin(), parts.end()},
                       .form = parts.empty() ? std::string() : std::string(form_of(source, i))});
  }
}

Result<size_t> DerivedSource::add_source(std::unique_ptr<TensorSource> source,
                                         const std::string& folder) {
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& entry : entries_) names.insert(entry.name);
  for (const TensorEntry& entry : source->entries()) {
    const std::string name = folder.empty() ? entry.name : folder + "." + entry.name;
    if (!names.contains(name)) continue;
    return bad_input(fmt::format("{}: {} is a tensor of the checkpoint too",
                                 printable(source->path()), quoted(name)));
  }
  const size_t first = entries_.size();
  take(*source, folder);
  sources_.push_back(std::move(source));
  return first;
}

void DerivedSource::add_file(SourceFile file, std::string state) {
  files_.push_back(std::move(file));
  states_.push_back(std::move(state));
}

Result<size_t> DerivedSource::add(DerivedTensor tensor) {
  const auto elements = checked_numel(tensor.shape);
  const BlockEncoding* encoding = tensor.derivation->encoding();
  const auto bytes = elements ? bytes_of(static_cast<uint64_t>(*elements), encoding) : std::nullopt;
  if (!bytes || tensor.shape.size() != 2 || tensor.shape[1] <= 0 ||
      (encoding != nullptr && tensor.shape[1] % encoding->elements != 0)) {
    return bad_input(fmt::format("{}: {} has the shape {}", printable(path()), quoted(tensor.name),
                                 to_string(tensor.shape)));
  }
  Place place = {.derivation = std::move(tensor.derivation)};
  uint64_t stored = 0;
  for (const size_t part : tensor.parts) {
    std::vector<size_t> all(parts(part).begin(), parts(part).end());
    if (all.empty()) all.push_back(part);
    for (const size_t one : all) {
      if (std::ranges::count(place.parts, one) > 0) continue;
      place.parts.push_back(one);
      stored += entries_[one].stored_bytes();
    }
  }
  place.form = fmt::format("{}:{}/{}", tensor.kind, stored, *elements);
  const TensorEntry& first = entries_[place.parts.front()];
  TensorEntry entry = {.name = std::move(tensor.name),
                       .dtype = DType::kF32,
                       .shape = std::move(tensor.shape),
                       .bytes = *bytes,
                       .file = first.file,
                       .offset = first.offset,
                       .encoding = encoding};
  entries_.push_back(std::move(entry));
  places_.push_back(std::move(place));
  return entries_.size() - 1;
}

Result<BlockCache::Bytes> DerivedSource::compute(size_t index, int64_t first, int64_t rows) const {
  BlockCache::Bytes bytes(static_cast<uint64_t>(rows) * row_bytes(entries_[index]));
  FERRY_RETURN_IF_ERROR(places_[index].derivation->rows(*this, first, bytes));
  return bytes;
}

Status DerivedSource::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  if (index >= entries_.size() || !range_inside(offset, out.size(), entries_[index].bytes)) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}: read outside of a tensor", printable(path())));
  }
  const Place& place = places_[index];
  if (place.source != nullptr) return place.source->read(place.index, offset, out);
  const Shape& shape = entries_[index].shape;
  const int64_t height = block_rows(shape[1]);
  const uint64_t size = static_cast<uint64_t>(height) * row_bytes(entries_[index]);
  while (!out.empty()) {
    const uint64_t number = offset / size, skip = offset % size;
    const int64_t first = static_cast<int64_t>(number) * height;
    const BlockCache::Block block = FERRY_TRY(blocks_.get(
        index, number, [&] { return compute(index, first, std::min(height, shape[0] - first)); }));
    const size_t count = std::min<uint64_t>(out.size(), block->size() - skip);
    std::memcpy(out.data(), block->data() + skip, count);
    out = out.subspan(count);
    offset += count;
  }
  return {};
}

Result<std::optional<StoredCodes>> DerivedSource::codes(size_t index) const {
  const Place& place = places_[index];
  return place.source != nullptr ? place.source->codes(place.index)
                                 : place.derivation->codes(*this);
}

Status DerivedSource::read_codes(size_t index, int64_t first, std::span<int8_t> codes,
                                 std::span<float> scales) const {
  const Place& place = places_[index];
  return place.source != nullptr ? place.source->read_codes(place.index, first, codes, scales)
                                 : place.derivation->read_codes(*this, first, codes, scales);
}

Status DerivedSource::check_unchanged() const {
  for (const auto& source : sources_) FERRY_RETURN_IF_ERROR(source->check_unchanged());
  return {};
}

Result<std::string> DerivedSource::state() const {
  std::string text;
  for (const auto& source : sources_) {
    const auto* files = dynamic_cast<const FileState*>(source.get());
    if (files != nullptr) text += FERRY_TRY(files->state());
  }
  for (const std::string& state : states_) text += state;
  return text;
}

std::span<const size_t> parts_of(const TensorSource& source, size_t entry) {
  const auto* derived = dynamic_cast<const DerivedSource*>(&source);
  return derived == nullptr ? std::span<const size_t>() : derived->parts(entry);
}

std::string_view form_of(const TensorSource& source, size_t entry) {
  const auto* derived = dynamic_cast<const DerivedSource*>(&source);
  if (derived != nullptr && !derived->parts(entry).empty()) return derived->form(entry);
  return source.entries()[entry].form();
}

Status read_floats(const TensorSource& source, size_t entry, uint64_t first, std::span<float> out) {
  const TensorEntry& tensor = source.entries()[entry];
  if (dtype_bits(tensor.dtype) == 8 && tensor.encoding == nullptr) {
    std::vector<std::byte> stored(out.size());
    FERRY_RETURN_IF_ERROR(source.read(entry, first, stored));
    if (float8_to_f32(tensor.dtype, stored, out)) return {};
  } else if (is_castable(tensor.dtype) && tensor.encoding == nullptr) {
    const auto size = static_cast<uint64_t>(dtype_bytes(tensor.dtype));
    std::vector<std::byte> stored(out.size() * size);
    FERRY_RETURN_IF_ERROR(source.read(entry, first * size, stored));
    to_f32(tensor.dtype, stored.data(), out.data(), out.size());
    return {};
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: {} is {}, expected a float type", printable(source.path()),
                          quoted(tensor.name), tensor.form()));
}

}  // namespace ferry
