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
//   ...       segment 1 (a multiple of 128 after the first): initial contents of mutable buffers
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

// Offsets of pieces within their segment, and the segment's size (its last piece is not padded).
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

void add_pieces(Piece::Kind kind, const Packed& packed, const std::vector<uint64_t>& sizes,
                uint64_t segment, std::vector<Piece>& pieces) {
  for (uint32_t i = 1; i < sizes.size(); ++i) {
    if (sizes[i] > 0) pieces.push_back({kind, i, segment + packed.offsets[i], sizes[i]});
  }
}

Status check_sizes(const DataSizes& sizes) {
  constexpr uint64_t kLimit = uint64_t{1} << 56;  // so that sums of offsets cannot overflow
  uint64_t total = 0;
  for (const auto* list : {&sizes.constants, &sizes.initial}) {
    if (list->empty() || (*list)[0] != 0) {
      return fail(ErrorCode::kInternal, "program: data 0 is the unused placeholder");
    }
    for (uint64_t size : *list) {
      total = size > kLimit ? kLimit : total + size + ferry::wire::kConstantAlignment;
      if (total >= kLimit)
        return fail(ErrorCode::kInternal, "program: more data than a file holds");
    }
  }
  return {};
}

}  // namespace

Result<Layout> plan_program(const Program& program, const DataSizes& sizes) {
  FERRY_RETURN_IF_ERROR(check_sizes(sizes));
  if (auto valid = validate_program(program, sizes, "program"); !valid) {
    return fail(ErrorCode::kInternal, valid.error().message);
  }
  for (const Method& method : program.methods) {
    if (!method.delegates.empty()) {
      return fail(ErrorCode::kUnsupported, "program: delegates cannot be written");
    }
  }
  const Packed constants = pack(sizes.constants);
  const Packed initial = pack(sizes.initial);
  DataTables tables;
  tables.constants = constants.offsets;
  tables.segments.push_back({0, constants.bytes});  // there even when it is empty
  if (initial.offsets.size() > 1) {
    tables.initial = initial.offsets;
    tables.segments.push_back(
        {align_up(constants.bytes, ferry::wire::kSegmentAlignment), initial.bytes});
  }
  const uint64_t data_bytes = tables.segments.back().offset + tables.segments.back().size;
  const std::vector<uint8_t> flat = encode_program(program, tables);

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
  add_pieces(Piece::Kind::kConstant, constants, sizes.constants, base, layout.pieces);
  add_pieces(Piece::Kind::kInitial, initial, sizes.initial, base + tables.segments.back().offset,
             layout.pieces);
  layout.file_bytes = base + data_bytes;
  return layout;
}

}  // namespace ferry::pte
