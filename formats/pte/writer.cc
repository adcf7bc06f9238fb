// Layout of a .pte file:
//
//   0   u32   root offset           FlatBuffer, whose first 8 bytes come before the header
//   4   4     "ET12"
//   8   4     "eh00"                extended header; absent when there are no data
//   12  u32   length of it, 32
//   16  u64   bytes of the program: all from 0 to the end of the FlatBuffer
//   24  u64   where segments begin, a multiple of 128
//   32  u64   bytes from there to the end of the last segment, which ends the file
//   40  ...   rest of the FlatBuffer
//   ...       segment 0: constants, each aligned to 16
//   ...       segment 1, if there are any: initial contents of mutable buffers
//   ...       a segment for each blob of a delegate, then one for each named data
//
// Segments begin at multiples of 128 after the first.
#include "formats/pte/writer.h"

#include <fmt/format.h>

#include "core/checked.h"
#include "formats/pte/encode.h"
#include "formats/pte/flat_file.h"
#include "formats/pte/validate.h"

namespace ferry::pte {

namespace {

using ferry::wire::Range;

constexpr size_t kHeaderBytes = 32;

// The offsets of pieces within their segment, and the size of the segment. The last piece is not
// padded.
struct Packed {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
};

Packed pack(const std::vector<uint64_t>& sizes) {
  Packed out;
  out.offsets.push_back(0);
  for (size_t i = 1; i < sizes.size(); ++i) {
    out.offsets.push_back(align_up(out.bytes, ferry::wire::kConstantAlignment));
    out.bytes = out.offsets.back() + sizes[i];
  }
  return out;
}

Status check_sizes(const DataSizes& sizes) {
  constexpr uint64_t kLimit = uint64_t{1} << 56;  // so that sums of offsets cannot overflow
  uint64_t total = 0;
  for (const auto* list : {&sizes.constants, &sizes.initial}) {
    if (list->empty() || (*list)[0] != 0) {
      return fail(ErrorCode::kInternal, "program: data 0 is the unused placeholder");
    }
  }
  for (const auto* list : {&sizes.constants, &sizes.initial, &sizes.delegates, &sizes.named}) {
    for (uint64_t size : *list) {
      total = size > kLimit ? kLimit : total + size + ferry::wire::kSegmentAlignment;
      if (total >= kLimit)
        return fail(ErrorCode::kInternal, "program: more data than a file holds");
    }
  }
  return {};
}

// All segments in their order, and their pieces. Offsets are relative to the first segment.
class Segments {
 public:
  explicit Segments(const DataSizes& sizes) {
    tables_.constants = add_packed(Piece::Kind::kConstant,
                                   sizes.constants);  // this segment exists even if it is empty
    if (sizes.initial.size() > 1) {
      tables_.initial = add_packed(Piece::Kind::kInitial, sizes.initial);
    }
    tables_.delegates = add_single(Piece::Kind::kDelegate, sizes.delegates);
    tables_.named = add_single(Piece::Kind::kNamed, sizes.named);
  }

  const DataTables& tables() const { return tables_; }
  std::vector<Piece> take_pieces() { return std::move(pieces_); }
  uint64_t bytes() const { return tables_.segments.back().offset + tables_.segments.back().size; }

 private:
  uint64_t add_segment(uint64_t size) {
    const uint64_t begin = tables_.segments.empty() ? 0 : bytes();
    tables_.segments.push_back({align_up(begin, ferry::wire::kSegmentAlignment), size});
    return tables_.segments.back().offset;
  }

  void add_piece(Piece::Kind kind, size_t index, uint64_t offset, uint64_t size) {
    if (size > 0) pieces_.push_back({kind, static_cast<uint32_t>(index), offset, size});
  }

  std::vector<uint64_t> add_packed(Piece::Kind kind, const std::vector<uint64_t>& sizes) {
    Packed packed = pack(sizes);
    const uint64_t segment = add_segment(packed.bytes);
    for (size_t i = 1; i < sizes.size(); ++i) {
      add_piece(kind, i, segment + packed.offsets[i], sizes[i]);
    }
    return std::move(packed.offsets);
  }

  // Adds one segment for each size and returns the indices of the segments.
  std::vector<uint32_t> add_single(Piece::Kind kind, const std::vector<uint64_t>& sizes) {
    std::vector<uint32_t> out;
    for (size_t i = 0; i < sizes.size(); ++i) {
      out.push_back(static_cast<uint32_t>(tables_.segments.size()));
      add_piece(kind, i, add_segment(sizes[i]), sizes[i]);
    }
    return out;
  }

  DataTables tables_;
  std::vector<Piece> pieces_;
};

}  // namespace

Result<Layout> plan_program(const Program& program, const DataSizes& sizes) {
  FERRY_RETURN_IF_ERROR(check_sizes(sizes));
  if (auto valid = validate_program(program, sizes, "program"); !valid) {
    return fail(ErrorCode::kInternal, valid.error().message);
  }
  Segments segments(sizes);
  const uint64_t data_bytes = segments.bytes();
  const std::vector<uint8_t> flat = encode_program(program, segments.tables());

  Layout layout;
  if (data_bytes == 0) {
    const auto* bytes = reinterpret_cast<const std::byte*>(flat.data());
    layout.head.assign(bytes, bytes + flat.size());
    layout.file_bytes = layout.head.size();
    return layout;
  }
  layout.head = ferry::wire::insert_header(flat, kHeaderBytes);
  const uint64_t program_bytes = layout.head.size();
  const uint64_t base = align_up(program_bytes, ferry::wire::kSegmentAlignment);
  layout.head.resize(base);
  std::memcpy(layout.head.data() + 8, "eh00", 4);
  ferry::wire::store(std::span(layout.head), 12, static_cast<uint32_t>(kHeaderBytes));
  ferry::wire::store(std::span(layout.head), 16, program_bytes);
  ferry::wire::store(std::span(layout.head), 24, base);
  ferry::wire::store(std::span(layout.head), 32, data_bytes);
  layout.pieces = segments.take_pieces();
  for (Piece& piece : layout.pieces) piece.offset += base;
  layout.file_bytes = base + data_bytes;
  return layout;
}

}  // namespace ferry::pte
