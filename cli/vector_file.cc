// Source: numpy.lib.format, the description of version 1.0.
#include "cli/vector_file.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "core/text.h"

namespace ferry::cli {
namespace {

// The format requires a multiple of 64. 128 is enough for any number of rows.
constexpr size_t kHeaderBytes = 128;

std::string header_of(int64_t rows, int64_t width) {
  constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
  const size_t length = kHeaderBytes - kMagic.size() - sizeof(uint16_t);
  std::string header(kMagic);
  header += static_cast<char>(length & 0xFFU);
  header += static_cast<char>(length >> 8U);
  header +=
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, width);
  header.resize(kHeaderBytes - 1, ' ');
  return header + '\n';
}

}  // namespace

Result<VectorFile> VectorFile::create(const std::string& path, int64_t width) {
  if (!path.ends_with(".npy")) {
    return fail(ErrorCode::kUsage,
                fmt::format("--out {}: a file of vectors ends in .npy", printable(path)));
  }
  return VectorFile(FERRY_TRY(AtomicFile::create(path, IfExists::kRefuse, kHeaderBytes)), width);
}

Status VectorFile::add(std::span<const float> row) {
  const auto offset = kHeaderBytes + static_cast<uint64_t>(rows_) * row.size_bytes();
  rows_ += 1;
  return file_.write_at(offset, std::as_bytes(row));
}

Status VectorFile::finish() {
  const std::string header = header_of(rows_, width_);
  FERRY_RETURN_IF_ERROR(file_.write_at(0, std::as_bytes(std::span(header))));
  return file_.publish();
}

}  // namespace ferry::cli
