// The file around a program: extended header, segments, and where constants lie in them.
#include "formats/pte/reader.h"

#include <fmt/format.h>

#include "core/checked.h"
#include "formats/pte/decode.h"
#include "formats/pte/flat_file.h"
#include "formats/pte/validate.h"
#include "program_generated.h"

namespace ferry::pte {

namespace {

using ferry::wire::Range;
using Bytes = std::span<const std::byte>;

// The extended header (writer.cc has its layout), or what stands for it where there is none.
struct Header {
  uint64_t program_bytes = 0;
  Range data;  // all segments; absolute in the file
};

constexpr size_t kHeaderAt = ferry::wire::kPreambleBytes;
constexpr uint32_t kShortHeader = 24;  // early files: no size of the segments
constexpr uint32_t kLongHeader = 32;
constexpr std::string_view kHeaderMagic = "eh00";

bool has_header(Bytes file) {
  return file.size() >= kHeaderAt + kHeaderMagic.size() &&
         std::memcmp(file.data() + kHeaderAt, kHeaderMagic.data(), kHeaderMagic.size()) == 0;
}

Result<Header> read_header(Bytes file, const std::string& name) {
  if (!has_header(file)) return Header{file.size(), {file.size(), 0}};
  if (file.size() < kHeaderAt + kLongHeader) return bad_input(name + ": ends inside its header");
  const auto length = ferry::wire::load<uint32_t>(file, kHeaderAt + 4);
  if (length != kShortHeader && length < kLongHeader) {
    return bad_input(fmt::format("{}: extended header of {} bytes (offset 12)", name, length));
  }
  Header header;
  header.program_bytes = ferry::wire::load<uint64_t>(file, kHeaderAt + 8);
  if (header.program_bytes > file.size() || length > header.program_bytes ||
      header.program_bytes - length < kHeaderAt) {
    return bad_input(fmt::format("{}: program of {} bytes in a file of {} (offset 16)", name,
                                 header.program_bytes, file.size()));
  }
  header.data.offset = ferry::wire::load<uint64_t>(file, kHeaderAt + 16);
  if (length >= kLongHeader) {
    header.data.size = ferry::wire::load<uint64_t>(file, kHeaderAt + 24);
  } else if (header.data.offset <= file.size()) {
    header.data.size = file.size() - header.data.offset;
  }
  if (header.data.size == 0) {  // the base may be 0 when there is nothing to find there
    header.data.offset = header.program_bytes;
  }
  return header;
}

Status check_extent(Bytes file, const Header& header, const std::string& name) {
  const auto [offset, size] = header.data;
  if (!range_inside(offset, size, file.size())) {
    return bad_input(fmt::format("{}: segments at {} of {} bytes in a file of {} (offset 24)", name,
                                 offset, size, file.size()));
  }
  if (offset < header.program_bytes) {
    return bad_input(
        fmt::format("{}: segments begin at {}, inside the program of {} bytes (offset 24)", name,
                    offset, header.program_bytes));
  }
  if (offset + size != file.size()) {
    return bad_input(fmt::format("{}: {} bytes after the segments (offset {})", name,
                                 file.size() - offset - size, offset + size));
  }
  return {};
}

std::vector<Range> segments_of(const wire::Program& root) {
  std::vector<Range> out;
  if (root.segments() == nullptr) return out;
  for (const wire::FileSegment* segment : *root.segments()) {
    out.push_back({segment->offset(), segment->size()});
  }
  return out;
}

// The pieces of one data segment, each from its start to the end of the segment.
struct Pieces {
  std::vector<Bytes> spans;
  uint64_t segment_bytes = 0;
};

Result<Pieces> pieces_of(const wire::Subsegments& table, const std::vector<Range>& segments,
                         Bytes data, const char* what, const std::string& name) {
  const auto offsets = ferry::wire::copy_vector<uint64_t>(table.offsets());
  if (offsets.empty()) return bad_input(fmt::format("{}: no offsets of {}", name, what));
  Pieces out;
  out.spans.resize(offsets.size());
  if (offsets.size() == 1) return out;  // only the placeholder: no segment is loaded
  if (table.segment() >= segments.size()) {
    return bad_input(
        fmt::format("{}: {} in segment {} of {}", name, what, table.segment(), segments.size()));
  }
  const Range& segment = segments[table.segment()];
  out.segment_bytes = segment.size;
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] > segment.size) {
      return bad_input(fmt::format("{}: {} {} at {} in a segment of {} bytes", name, what, i,
                                   offsets[i], segment.size));
    }
    out.spans[i] = data.subspan(segment.offset + offsets[i], segment.size - offsets[i]);
  }
  return out;
}

Result<ProgramData> read_data(const wire::Program& root, const std::vector<Range>& segments,
                              Bytes data, const std::string& name) {
  if (root.constant_buffer() && root.constant_buffer()->size() > 0) {
    return fail(ErrorCode::kUnsupported, name + ": constants inside the program (an old format)");
  }
  if (root.constants() == nullptr) return bad_input(name + ": no table of constants");
  ProgramData out;
  Pieces constants = FERRY_TRY(pieces_of(*root.constants(), segments, data, "constant", name));
  out.constants = std::move(constants.spans);
  out.constant_bytes = constants.segment_bytes;
  out.initial.resize(1);
  const auto* initial = root.initial_contents();
  if (initial == nullptr || initial->size() == 0) return out;
  if (initial->size() > 1) {
    return fail(ErrorCode::kUnsupported, name + ": several segments of initial contents");
  }
  Pieces contents =
      FERRY_TRY(pieces_of(*initial->Get(0), segments, data, "initial contents", name));
  out.initial = std::move(contents.spans);
  out.initial_bytes = contents.segment_bytes;
  return out;
}

// Delegates are recorded, not executed; where their data lies must make sense all the same.
Status check_delegates(const wire::Program& root, size_t segments, const std::string& name) {
  const size_t inline_blobs = root.delegate_data() ? root.delegate_data()->size() : 0;
  for (const wire::Plan* plan : *root.plans()) {
    for (const wire::Delegate* delegate : *plan->delegates()) {
      const wire::DelegateBlob* blob = delegate->blob();
      if (blob == nullptr) return bad_input(name + ": a delegate without data");
      const bool known = blob->location() == 0 || blob->location() == 1;
      if (!known || blob->index() >= (blob->location() == 0 ? inline_blobs : segments)) {
        return bad_input(
            fmt::format("{}: data {} of a delegate does not exist", name, blob->index()));
      }
    }
  }
  if (root.named_data() == nullptr) return {};
  for (const wire::NamedBlob* blob : *root.named_data()) {
    if (blob->key() == nullptr || blob->segment() >= segments) {
      return bad_input(
          fmt::format("{}: named data in segment {} of {}", name, blob->segment(), segments));
    }
  }
  return {};
}

std::vector<uint64_t> sizes_of(const std::vector<Bytes>& spans) {
  std::vector<uint64_t> out;
  for (Bytes span : spans) out.push_back(span.size());
  return out;
}

}  // namespace

Result<LoadedProgram> read_program(std::span<const std::byte> file, const std::string& name) {
  const Header header = FERRY_TRY(read_header(file, name));
  FERRY_RETURN_IF_ERROR(check_extent(file, header, name));
  const ferry::wire::AlignedBytes flat(file.first(header.program_bytes));
  const auto* root = FERRY_TRY(ferry::wire::verified_root<wire::Program>(flat.get(), "ET12", name));
  const std::vector<Range> segments = segments_of(*root);
  if (const auto problem = ferry::wire::find_segment_problem(segments, header.data.size)) {
    return bad_input(fmt::format("{}: {}", name, problem->what));
  }

  LoadedProgram loaded;
  loaded.program = FERRY_TRY(decode_program(*root, header.program_bytes, name));
  const Bytes data = file.subspan(header.data.offset, header.data.size);
  loaded.data = FERRY_TRY(read_data(*root, segments, data, name));
  loaded.data.program_bytes = header.program_bytes;
  FERRY_RETURN_IF_ERROR(check_delegates(*root, segments.size(), name));
  const DataSizes extents{sizes_of(loaded.data.constants), sizes_of(loaded.data.initial)};
  FERRY_RETURN_IF_ERROR(validate_program(loaded.program, extents, name));
  return loaded;
}

}  // namespace ferry::pte
