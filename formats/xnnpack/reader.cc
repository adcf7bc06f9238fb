// Reads the bytes around the graph, whose layout is in blob_layout.h.
#include "formats/xnnpack/reader.h"

#include <fmt/format.h>

#include "blob_generated.h"
#include "core/checked.h"
#include "formats/pte/flat_file.h"
#include "formats/xnnpack/blob_layout.h"
#include "formats/xnnpack/decode.h"
#include "formats/xnnpack/validate.h"

namespace ferry::xnnpack {

namespace {

using ferry::wire::load;
using ferry::wire::Range;
using Bytes = std::span<const std::byte>;

struct Header {
  Range flat;
  Range constants;
};

Status check_region(const Range& region, Bytes blob, size_t field, const std::string& name) {
  if (range_inside(region.offset, region.size, blob.size())) return {};
  return bad_input(fmt::format("{}: a region at {} of {} bytes in a blob of {} (offset {})", name,
                               region.offset, region.size, blob.size(), field));
}

Result<Header> read_header(Bytes blob, const std::string& name) {
  if (blob.size() < kHeaderBytes) {
    return bad_input(fmt::format("{}: {} bytes, shorter than the header", name, blob.size()));
  }
  if (std::memcmp(blob.data() + kMagicAt, kMagic.data(), kMagic.size()) != 0) {
    return bad_input(name + ": not a blob of the XNNPACK backend (offset 4)");
  }
  const auto length = load<uint16_t>(blob, kLengthAt);
  if (length != kHeaderBytes) {
    return bad_input(fmt::format("{}: header of {} bytes (offset {})", name, length, kLengthAt));
  }
  Header header{{load<uint32_t>(blob, kFlatAt), load<uint32_t>(blob, kFlatAt + 4)},
                {load<uint32_t>(blob, kConstantsAt), load<uint64_t>(blob, kConstantsAt + 4)}};
  FERRY_RETURN_IF_ERROR(check_region(header.flat, blob, kFlatAt, name));
  FERRY_RETURN_IF_ERROR(check_region(header.constants, blob, kConstantsAt, name));
  if (header.flat.offset < kHeaderBytes ||
      header.constants.offset < header.flat.offset + header.flat.size) {
    return bad_input(fmt::format("{}: regions overlap (offset {})", name, kFlatAt));
  }
  return header;
}

const char* identifier_of(Bytes flat) {
  const bool early = flat.size() >= 8 && std::memcmp(flat.data() + 4, kEarlyIdentifier, 4) == 0;
  return early ? kEarlyIdentifier : kIdentifier;
}

// Makes offsets that are relative to the region of constants relative to the blob.
Status place_constants(const Header& header, const std::string& name, Graph& graph) {
  for (size_t i = 1; i < graph.constants.size(); ++i) {
    Constant& constant = graph.constants[i];
    if (!constant.key.empty()) continue;
    if (!range_inside(constant.offset, constant.bytes, header.constants.size)) {
      return bad_input(
          fmt::format("{}: constant {} (offset {}, {} bytes) exceeds the {} of its "
                      "region",
                      name, i, constant.offset, constant.bytes, header.constants.size));
    }
    constant.offset += header.constants.offset;
  }
  return {};
}

}  // namespace

Result<Graph> read_blob(std::span<const std::byte> blob, const std::string& name) {
  const Header header = FERRY_TRY(read_header(blob, name));
  const ferry::wire::AlignedBytes flat(blob.subspan(header.flat.offset, header.flat.size));
  const auto* root = FERRY_TRY(
      ferry::wire::verified_root<wire::Graph>(flat.get(), identifier_of(flat.get()), name));
  Graph graph = FERRY_TRY(decode_graph(*root, header.flat.size, name));
  FERRY_RETURN_IF_ERROR(place_constants(header, name, graph));
  FERRY_RETURN_IF_ERROR(validate_graph(graph, name));
  return graph;
}

}  // namespace ferry::xnnpack
