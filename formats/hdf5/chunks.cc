#include "formats/hdf5/chunks.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "core/text.h"

namespace ferry::hdf5 {
namespace {

constexpr size_t kSumBytes = 4;

ChunkShape chunk_shape(const CheckedTensor& tensor) {
  ChunkShape shape;
  shape.element_bytes = static_cast<uint64_t>(dtype_bytes(tensor.entry.dtype));
  shape.bytes = shape.element_bytes;
  for (const uint64_t size : tensor.chunk_dims)
    shape.bytes *= size;  // check() has bounded it: at most 64 MiB
  return shape;
}

Error with_place(Error error, const InputFile& input, const CheckedTensor& tensor,
                 const Chunk& chunk) {
  error.message = fmt::format("{}: {} (tensor {}, offset {})", printable(input.path()),
                              error.message, quoted(tensor.entry.name, 160), chunk.address);
  return error;
}

// The stream must inflate to exactly `bytes` bytes and end there.
Result<std::vector<std::byte>> inflate_exactly(std::span<const std::byte> stored, uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  z_stream stream{};
  if (::inflateInit(&stream) != Z_OK) return fail(ErrorCode::kInternal, "zlib does not start");
  // Both sizes fit into zlib's types, because check() has bounded them to little more than 64 MiB.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(stored.data()));
  stream.avail_in = static_cast<uInt>(stored.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = ::inflate(&stream, Z_FINISH);
  const bool exact = status == Z_STREAM_END && stream.avail_out == 0 && stream.avail_in == 0;
  ::inflateEnd(&stream);
  if (!exact) {
    return bad_input(fmt::format("a chunk does not inflate to {} bytes", bytes));
  }
  return out;
}

std::vector<std::byte> unshuffle(std::span<const std::byte> data, size_t element_bytes) {
  std::vector<std::byte> out(data.size());
  const size_t elements = data.size() / element_bytes;
  for (size_t plane = 0; plane < element_bytes; ++plane) {
    const std::byte* from = data.data() + plane * elements;
    for (size_t i = 0; i < elements; ++i) out[i * element_bytes + plane] = from[i];
  }
  std::copy(data.begin() + static_cast<ptrdiff_t>(elements * element_bytes), data.end(),
            out.begin() + static_cast<ptrdiff_t>(elements * element_bytes));
  return out;
}

Status take_sum(std::vector<std::byte>& data) {
  if (data.size() < kSumBytes) return bad_input("a chunk too short for its fletcher32 sum");
  uint32_t stored;
  std::memcpy(&stored, data.data() + data.size() - kSumBytes, kSumBytes);
  data.resize(data.size() - kSumBytes);
  const uint32_t sum = fletcher32(data);
  if (sum == stored) return {};
  return bad_input(fmt::format("the fletcher32 sum of a chunk is {:#010x}, not {:#010x} as stored",
                               sum, stored));
}

bool is_applied(uint32_t skipped, size_t filter) { return (skipped >> filter & 1) == 0; }

// Returns the size of the chunk before filter `end` was applied, including earlier checksums.
uint64_t bytes_before(const std::vector<Filter>& filters, uint32_t skipped, size_t end,
                      uint64_t chunk_bytes) {
  for (size_t i = 0; i < end; ++i) {
    if (is_applied(skipped, i) && filters[i].id == kFletcher32) chunk_bytes += kSumBytes;
  }
  return chunk_bytes;
}

// Copies the intersection of a chunk and a request, one run of the last dimension at a time. The
// request begins at byte `flat` of the tensor.
class Scatter {
 public:
  Scatter(const CheckedTensor& tensor, const Chunk& chunk, uint64_t flat, std::span<std::byte> out)
      : tensor_(tensor), flat_(flat), out_(out) {
    const size_t rank = tensor.chunk_dims.size();
    strides_.resize(rank);
    extent_.resize(rank);
    auto stride = static_cast<uint64_t>(dtype_bytes(tensor.entry.dtype));
    element_bytes_ = stride;
    for (size_t i = rank; i-- > 0;) {
      const auto size = static_cast<uint64_t>(tensor.entry.shape[i]);
      strides_[i] = stride;
      stride *= size;
      extent_[i] = std::min(tensor.chunk_dims[i], size - chunk.coordinates[i]);
      first_ += strides_[i] * chunk.coordinates[i];
      last_ += strides_[i] * (chunk.coordinates[i] + extent_[i] - 1);
    }
  }

  // Returns whether the chunk and the request can intersect.
  bool meets() const { return last_ + element_bytes_ > flat_ && first_ < flat_ + out_.size(); }

  void copy(std::span<const std::byte> data) const { copy_dimension(data.data(), 0, first_); }

 private:
  // `from` is the element's byte position in the chunk, `to` its byte offset in the tensor. The
  // element has the coordinates chosen so far, and 0 for the other dimensions.
  void copy_dimension(const std::byte* from, size_t dimension, uint64_t to) const {
    if (dimension + 1 == extent_.size()) return copy_run(from, to);
    uint64_t step = element_bytes_;
    for (size_t i = dimension + 1; i < extent_.size(); ++i) step *= tensor_.chunk_dims[i];
    for (uint64_t i = 0; i < extent_[dimension]; ++i) {
      copy_dimension(from + i * step, dimension + 1, to + i * strides_[dimension]);
    }
  }

  void copy_run(const std::byte* from, uint64_t to) const {
    const uint64_t begin = std::max(to, flat_);
    const uint64_t end = std::min(to + extent_.back() * element_bytes_, flat_ + out_.size());
    if (begin < end) std::memcpy(out_.data() + (begin - flat_), from + (begin - to), end - begin);
  }

  const CheckedTensor& tensor_;
  uint64_t flat_;
  std::span<std::byte> out_;
  std::vector<uint64_t> strides_, extent_;
  uint64_t element_bytes_ = 0, first_ = 0, last_ = 0;
};

}  // namespace

uint32_t fletcher32(std::span<const std::byte> data) {
  // The checksum consists of two sums of big-endian 16-bit words modulo 65535. Carries are folded
  // in every 360 words, before a sum could overflow.
  constexpr size_t kWords = 360;
  uint32_t sum = 0, sum_of_sums = 0;
  const auto fold = [&] {
    sum = (sum & 0xffff) + (sum >> 16);
    sum_of_sums = (sum_of_sums & 0xffff) + (sum_of_sums >> 16);
  };
  size_t at = 0;
  const size_t words = data.size() / 2;
  for (size_t word = 0; word < words;) {
    for (const size_t end = std::min(words, word + kWords); word < end; ++word, at += 2) {
      sum += std::to_integer<uint32_t>(data[at]) << 8 | std::to_integer<uint32_t>(data[at + 1]);
      sum_of_sums += sum;
    }
    fold();
  }
  if (data.size() % 2 != 0) {
    sum += std::to_integer<uint32_t>(data[at]) << 8;
    sum_of_sums += sum;
    fold();
  }
  fold();
  return sum_of_sums << 16 | sum;
}

Result<std::vector<std::byte>> unfilter_chunk(std::vector<std::byte> stored,
                                              const std::vector<Filter>& filters, uint32_t skipped,
                                              const ChunkShape& shape, bool to_sum) {
  for (size_t i = filters.size(); i-- > 0;) {
    if (!is_applied(skipped, i)) continue;
    switch (filters[i].id) {
      case kFletcher32:
        FERRY_RETURN_IF_ERROR(take_sum(stored));
        if (to_sum) return stored;
        break;
      case kDeflate:
        stored = FERRY_TRY(inflate_exactly(stored, bytes_before(filters, skipped, i, shape.bytes)));
        break;
      case kShuffle:
        stored = unshuffle(stored, shape.element_bytes);
        break;
      default:
        return fail(ErrorCode::kInternal, "an unknown filter");
    }
  }
  if (stored.size() != shape.bytes && !to_sum) {
    return bad_input(fmt::format("a chunk of {} bytes, not {}", stored.size(), shape.bytes));
  }
  return stored;
}

Result<ChunkReader::Bytes> ChunkReader::chunk(const InputFile& input, const CheckedTensor& tensor,
                                              const Key& key) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto place = places_.find(key); place != places_.end()) {
      recent_.splice(recent_.begin(), recent_, place->second);
      return recent_.front().second;
    }
  }
  const Chunk& place = tensor.chunks[key.second];
  std::vector<std::byte> stored(place.bytes);
  FERRY_RETURN_IF_ERROR(input.read_at(place.address, stored));
  const ChunkShape shape = chunk_shape(tensor);
  auto plain = unfilter_chunk(std::move(stored), tensor.filters, place.skipped, shape);
  if (!plain) {
    return Failure(with_place(std::move(plain).error(), input, tensor, place));
  }
  if (tensor.big_endian) swap_elements(*plain, shape.element_bytes);
  const auto bytes = std::make_shared<const std::vector<std::byte>>(*std::move(plain));

  const std::lock_guard lock(mutex_);
  if (places_.contains(key)) return bytes;  // another thread was faster
  recent_.emplace_front(key, bytes);
  places_[key] = recent_.begin();
  held_bytes_ += bytes->size();
  while (held_bytes_ > kMaxHeldBytes && recent_.size() > 1) {
    held_bytes_ -= recent_.back().second->size();
    places_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return bytes;
}

Status ChunkReader::read(const InputFile& input, const CheckedTensor& tensor, size_t id,
                         uint64_t offset, std::span<std::byte> out) {
  if (!tensor.fill.empty()) fill_elements(out, offset, tensor.fill);
  for (size_t i = 0; i < tensor.chunks.size() && !out.empty(); ++i) {
    const Scatter scatter(tensor, tensor.chunks[i], offset, out);
    if (!scatter.meets()) continue;
    const Bytes bytes = FERRY_TRY(chunk(input, tensor, {id, i}));
    scatter.copy(*bytes);
  }
  return {};
}

Status check_sums(const InputFile& input, const CheckedTensor& tensor) {
  if (std::ranges::find(tensor.filters, kFletcher32, &Filter::id) == tensor.filters.end())
    return {};
  const ChunkShape shape = chunk_shape(tensor);
  for (const Chunk& place : tensor.chunks) {
    std::vector<std::byte> stored(place.bytes);
    FERRY_RETURN_IF_ERROR(input.read_at(place.address, stored));
    auto checked =
        unfilter_chunk(std::move(stored), tensor.filters, place.skipped, shape, /*to_sum=*/true);
    if (!checked) {
      return Failure(with_place(std::move(checked).error(), input, tensor, place));
    }
  }
  return {};
}

void fill_elements(std::span<std::byte> out, uint64_t offset, std::span<const std::byte> element) {
  if (std::ranges::count(element, std::byte{0}) == std::ssize(element)) {
    std::ranges::fill(out, std::byte{0});
    return;
  }
  size_t at = offset % element.size();
  for (std::byte& b : out) {
    b = element[at];
    if (++at == element.size()) at = 0;
  }
}

void swap_elements(std::span<std::byte> data, size_t element_bytes) {
  for (size_t at = 0; at + element_bytes <= data.size(); at += element_bytes) {
    std::reverse(data.begin() + static_cast<ptrdiff_t>(at),
                 data.begin() + static_cast<ptrdiff_t>(at + element_bytes));
  }
}

}  // namespace ferry::hdf5
