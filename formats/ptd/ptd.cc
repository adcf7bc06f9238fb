// Layout of a .ptd file:
//
//   0   u32   root offset           FlatBuffer, whose first 8 bytes come before the header
//   4   4     "FT01"
//   8   4     "FH01"
//   12  u32   length of the header, 40
//   16  u64   where the rest of the FlatBuffer begins, 48
//   24  u64   bytes of that rest
//   32  u64   where segments begin, a multiple of 128
//   40  u64   bytes from there to the end of the last segment, which ends the file
//   48  ...   rest of the FlatBuffer
//   ...       segments, each a multiple of 128 after the base
//
// An entry without a layout is data of a delegate. It may share a segment with a tensor.
#include "formats/ptd/ptd.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "core/checked.h"
#include "core/dim_order.h"
#include "core/text.h"
#include "flat_tensor_generated.h"
#include "formats/pte/flat_file.h"
#include "formats/pte/program.h"
#include "formats/pte/validate.h"

namespace ferry::ptd {

namespace {

using ferry::wire::Range;
using Bytes = std::span<const std::byte>;

constexpr uint32_t kHeaderBytes = 40;
constexpr uint64_t kFlatBegin = ferry::wire::kPreambleBytes + kHeaderBytes;

struct Header {
  uint64_t flat_end = 0;
  Range data;
};

Result<Header> read_header(Bytes file, const std::string& name) {
  if (file.size() < kFlatBegin) {
    return bad_input(fmt::format("{}: {} bytes, shorter than the header", name, file.size()));
  }
  if (std::memcmp(file.data() + 4, "FT01FH01", 8) != 0) {
    return bad_input(name + ": not a .ptd file (offset 4)");
  }
  const auto length = ferry::wire::load<uint32_t>(file, 12);
  if (length != kHeaderBytes) {
    return bad_input(fmt::format("{}: header of {} bytes (offset 12)", name, length));
  }
  const auto begin = ferry::wire::load<uint64_t>(file, 16);
  const auto size = ferry::wire::load<uint64_t>(file, 24);
  if (begin < kFlatBegin || !range_inside(begin, size, file.size())) {
    return bad_input(fmt::format("{}: index at {} of {} bytes in a file of {} (offset 16)", name,
                                 begin, size, file.size()));
  }
  Header header{begin + size,
                {ferry::wire::load<uint64_t>(file, 32), ferry::wire::load<uint64_t>(file, 40)}};
  return header;
}

Status check_data_range(const Header& header, uint64_t file_bytes, const std::string& name) {
  const Range& data = header.data;
  if (!range_inside(data.offset, data.size, file_bytes) || data.offset < header.flat_end) {
    return bad_input(fmt::format("{}: segments at {} of {} bytes in a file of {} (offset 32)", name,
                                 data.offset, data.size, file_bytes));
  }
  if (data.offset + data.size == file_bytes) return {};
  return bad_input(
      fmt::format("{}: {} bytes after the segments", name, file_bytes - data.offset - data.size));
}

class Reader {
 public:
  Reader(const wire::FlatTensor& root, const std::vector<Range>& segments, uint64_t data_bytes,
         uint64_t flat_bytes, const std::string& file)
      : root_(root),
        segments_(segments),
        problem_(ferry::wire::find_segment_problem(segments, data_bytes)),
        budget_(4 * flat_bytes),
        file_(file) {}

  Result<std::vector<NamedTensor>> read() {
    std::vector<NamedTensor> out;
    std::unordered_set<std::string> keys;
    if (root_.named_data() == nullptr) return bad_input(file_ + ": no table of names");
    out.reserve(root_.named_data()->size());
    for (const wire::NamedData* entry : *root_.named_data()) {
      out.push_back(FERRY_TRY(read_entry(*entry)));
      if (!keys.insert(out.back().key).second) return error("its name occurs twice");
    }
    if (problem_) return bad_input(fmt::format("{}: {}", file_, problem_->what));
    return out;
  }

 private:
  Failure error(const std::string& what, ErrorCode code = ErrorCode::kBadInput) const {
    return fail(code, fmt::format("{}: {} (tensor {})", file_, what, quoted(key_)));
  }

  Result<NamedTensor> read_entry(const wire::NamedData& entry) {
    if (entry.key() == nullptr) return bad_input(file_ + ": a tensor without a name");
    key_ = entry.key()->string_view();
    // Entries of a FlatBuffer may share a key, so the copies are limited to a few times the size of
    // the file.
    if (key_.size() > budget_) return error("names larger than the file");
    budget_ -= key_.size();
    if (key_.empty() || key_.find('\0') != std::string_view::npos) {
      return error("a name that is empty or holds a NUL");
    }
    FERRY_RETURN_IF_ERROR(check_segment(entry.segment()));
    if (entry.layout() == nullptr) {
      return NamedTensor{std::string(key_), DType::kU8, {}, entry.segment(), false};
    }
    const wire::Layout& layout = *entry.layout();
    NamedTensor out{std::string(key_), DType::kF32, {}, entry.segment()};
    const auto dtype = dtype_from_executorch(layout.scalar_type());
    if (!dtype) {
      return error(fmt::format("scalar type {}", layout.scalar_type()), ErrorCode::kUnsupported);
    }
    out.dtype = *dtype;
    out.sizes = FERRY_TRY(read_sizes(layout));
    FERRY_RETURN_IF_ERROR(check_bytes(out));
    return out;
  }

  Result<std::vector<int32_t>> read_sizes(const wire::Layout& layout) const {
    if (!layout.sizes() || !layout.dim_order()) return error("no sizes or order of dimensions");
    const size_t rank = layout.sizes()->size();
    if (rank > pte::kMaxRank) return error(fmt::format("rank {}", rank));
    if (layout.dim_order()->size() != rank) {
      return error(
          fmt::format("{} sizes and {} dimensions in order", rank, layout.dim_order()->size()));
    }
    auto sizes = ferry::wire::copy_vector<int32_t>(layout.sizes());
    const auto order = ferry::wire::copy_vector<uint8_t>(layout.dim_order());
    for (size_t i = 0; i < rank; ++i) {
      if (sizes[i] < 0) return error(fmt::format("dimension {}", sizes[i]));
    }
    if (!is_permutation(order)) return error("the order of dimensions is no permutation");
    if (!is_row_major(order)) {
      return error("dimensions out of order", ErrorCode::kUnsupported);
    }
    return sizes;
  }

  Status check_segment(uint32_t segment) const {
    if (segment >= segments_.size()) {
      return error(fmt::format("in segment {} of {}", segment, segments_.size()));
    }
    if (problem_ && problem_->segment == segment) return error(problem_->what);
    return {};
  }

  Status check_bytes(const NamedTensor& tensor) const {
    pte::Tensor shape;
    shape.dtype = tensor.dtype;
    shape.sizes = tensor.sizes;
    const auto bytes = pte::tensor_bytes(shape);
    if (!bytes) return error("its size overflows");
    if (*bytes != segments_[tensor.segment].size) {
      return error(fmt::format("{} bytes, segment {} has {}", *bytes, tensor.segment,
                               segments_[tensor.segment].size));
    }
    return {};
  }

  const wire::FlatTensor& root_;
  const std::vector<Range>& segments_;
  std::optional<ferry::wire::SegmentProblem> problem_;
  uint64_t budget_;
  const std::string& file_;
  std::string_view key_;  // key of the entry that is being read
};

flatbuffers::Offset<wire::Layout> encode_layout(flatbuffers::FlatBufferBuilder& b,
                                                const NamedTensor& tensor) {
  if (!tensor.is_tensor) return 0;
  std::vector<uint8_t> order(tensor.sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint8_t>(i);
  const auto sizes = b.CreateVector(tensor.sizes);
  const auto scalar_type = static_cast<int8_t>(dtype_info(tensor.dtype).executorch);
  return wire::CreateLayout(b, scalar_type, sizes, b.CreateVector(order));
}

std::vector<uint8_t> encode(const std::vector<NamedTensor>& tensors,
                            const std::vector<Range>& segments) {
  flatbuffers::FlatBufferBuilder b(1 << 14);
  std::vector<flatbuffers::Offset<wire::NamedData>> entries;
  for (const NamedTensor& tensor : tensors) {
    const auto key = b.CreateString(tensor.key);
    entries.push_back(wire::CreateNamedData(b, key, tensor.segment, encode_layout(b, tensor)));
  }
  std::vector<flatbuffers::Offset<wire::DataSegment>> table;
  for (const auto& [offset, size] : segments) {
    table.push_back(wire::CreateDataSegment(b, offset, size));
  }
  const auto segment_vector = b.CreateVector(table);
  b.Finish(wire::CreateFlatTensor(b, 0, segment_vector, b.CreateVector(entries)), "FT01");
  return {b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize()};
}

}  // namespace

Result<DataFile> read_data_file(std::span<const std::byte> file, const std::string& name) {
  const Header header = FERRY_TRY(read_header(file, name));
  const ferry::wire::AlignedBytes flat(file.first(header.flat_end));
  const auto* root =
      FERRY_TRY(ferry::wire::verified_root<wire::FlatTensor>(flat.get(), "FT01", name));
  if (root->version() != 0) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: version {}", name, root->version()));
  }
  if (root->segments() == nullptr) return bad_input(name + ": no table of segments");
  std::vector<Range> segments;
  for (const wire::DataSegment* segment : *root->segments()) {
    segments.push_back({segment->offset(), segment->size()});
  }
  // If the file is cut short, the index still names the tensor that is affected.
  const uint64_t there = file.size() - std::min<uint64_t>(header.data.offset, file.size());
  const Status range = check_data_range(header, file.size(), name);
  const uint64_t data_bytes = range ? header.data.size : std::min(header.data.size, there);
  DataFile out;
  out.tensors = FERRY_TRY(Reader(*root, segments, data_bytes, flat.get().size(), name).read());
  FERRY_RETURN_IF_ERROR(Status(range));
  for (const auto& [offset, size] : segments) {
    out.segments.push_back({header.data.offset + offset, size});
  }
  return out;
}

Result<Layout> plan_data_file(const std::vector<NamedTensor>& tensors,
                              const std::vector<uint64_t>& segment_sizes) {
  std::vector<Range> segments;
  uint64_t end = 0;
  for (uint64_t size : segment_sizes) {
    const uint64_t offset = align_up(end, ferry::wire::kSegmentAlignment);
    segments.push_back({offset, size});
    const auto next = checked_add(offset, size);
    if (!next || *next > pte::kMaxMemoryBytes) {
      return fail(ErrorCode::kInternal, "data file: more data than a file holds");
    }
    end = *next;
  }
  Layout layout;
  layout.head = ferry::wire::insert_header(encode(tensors, segments), kHeaderBytes);
  const uint64_t flat_end = layout.head.size();
  const uint64_t base = align_up(flat_end, ferry::wire::kSegmentAlignment);
  layout.head.resize(base);
  const std::span<std::byte> head(layout.head);
  std::memcpy(head.data() + 8, "FH01", 4);
  ferry::wire::store(head, 12, kHeaderBytes);
  ferry::wire::store(head, 16, kFlatBegin);
  ferry::wire::store(head, 24, flat_end - kFlatBegin);
  ferry::wire::store(head, 32, base);
  ferry::wire::store(head, 40, end);
  for (const auto& [offset, size] : segments) layout.segments.push_back({base + offset, size});
  layout.file_bytes = base + end;
  return layout;
}

}  // namespace ferry::ptd
