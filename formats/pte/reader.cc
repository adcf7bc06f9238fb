// Reads the extended header, the segments, and the positions of constants in them.
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

// The extended header, whose layout is in writer.cc. A file without one has default values here.
struct Header {
  uint64_t program_bytes = 0;
  Range data;  // all segments, at their position in the file
};

constexpr size_t kHeaderAt = ferry::wire::kPreambleBytes;
constexpr uint32_t kShortHeader = 24;  // early files, which do not state the size of the segments
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
  if (header.data.size == 0) {  // the base may be 0 if there are no data
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

// The pieces of one data segment. Each extends from its start to the end of the segment.
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
  if (offsets.size() == 1) return out;  // there is only the placeholder, so no segment is loaded
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

// Returns the blobs in the program's own table, as ranges of the file.
Result<std::vector<Bytes>> inline_blobs(const wire::Program& root, Bytes flat, Bytes file,
                                        const std::string& name) {
  std::vector<Bytes> out;
  if (root.delegate_data() == nullptr) return out;
  for (const wire::InlineDelegateData* blob : *root.delegate_data()) {
    if (blob->data() == nullptr) return bad_input(name + ": data of a delegate are absent");
    const auto* begin = reinterpret_cast<const std::byte*>(blob->data()->Data());
    out.push_back(file.subspan(static_cast<size_t>(begin - flat.data()), blob->data()->size()));
  }
  return out;
}

struct File {
  const wire::Program& root;
  Bytes flat;  // the FlatBuffer of `root`
  Bytes bytes;
  std::vector<Range> segments;
  Bytes data;  // all segments
  const std::string& name;

  Bytes segment(size_t index) const {
    return data.subspan(segments[index].offset, segments[index].size);
  }
};

Status read_delegates(const File& file, const BlobPlaces& places, ProgramData& out) {
  const auto inside = FERRY_TRY(inline_blobs(file.root, file.flat, file.bytes, file.name));
  for (const auto& [is_segment, index] : places.delegates) {
    if (index >= (is_segment ? file.segments.size() : inside.size())) {
      return bad_input(fmt::format("{}: data {} of a delegate does not exist", file.name, index));
    }
    out.delegates.push_back(is_segment ? file.segment(index) : inside[index]);
    out.delegate_bytes += out.delegates.back().size();
  }
  return {};
}

Status read_named_data(const File& file, const BlobPlaces& places, ProgramData& out) {
  for (uint32_t segment : places.named) {
    if (segment >= file.segments.size()) {
      return bad_input(fmt::format("{}: named data in segment {} of {}", file.name, segment,
                                   file.segments.size()));
    }
    out.named.push_back(file.segment(segment));
    out.named_bytes += out.named.back().size();
  }
  return {};
}

}  // namespace

DataSizes sizes_of(const ProgramData& data) {
  const auto sizes = [](const std::vector<Bytes>& spans) {
    std::vector<uint64_t> out;
    for (Bytes span : spans) out.push_back(span.size());
    return out;
  };
  return {sizes(data.constants), sizes(data.initial), sizes(data.delegates), sizes(data.named)};
}

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
  auto [program, places] = FERRY_TRY(decode_program(*root, header.program_bytes, name));
  loaded.program = std::move(program);
  const Bytes data = file.subspan(header.data.offset, header.data.size);
  loaded.data = FERRY_TRY(read_data(*root, segments, data, name));
  loaded.data.program_bytes = header.program_bytes;
  const File parts{*root, flat.get(), file, segments, data, name};
  FERRY_RETURN_IF_ERROR(read_delegates(parts, places, loaded.data));
  FERRY_RETURN_IF_ERROR(read_named_data(parts, places, loaded.data));
  FERRY_RETURN_IF_ERROR(validate_program(loaded.program, sizes_of(loaded.data), name));
  return loaded;
}

}  // namespace ferry::pte
