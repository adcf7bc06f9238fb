#include "proof/reference_file.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "core/sha256.h"
#include "core/text.h"

namespace ferry::proof {

Result<HashedFile> HashedFile::open(const std::string& path) {
  constexpr uint64_t kBlock = uint64_t{1} << 20;
  InputFile file = FERRY_TRY(InputFile::open(path));
  std::vector<std::byte> block(kBlock);
  Sha256 sum;
  for (uint64_t at = 0; at < file.size(); at += kBlock) {
    const std::span<std::byte> part =
        std::span(block).first(static_cast<size_t>(std::min(kBlock, file.size() - at)));
    FERRY_RETURN_IF_ERROR(file.read_at(at, part));
    sum.update(part);
  }
  return HashedFile(std::move(file), to_hex(sum.finish()));
}

Result<ReferenceFile> HashedFile::reference(bool embedded) const {
  FERRY_RETURN_IF_ERROR(file_.check_unchanged());
  return ReferenceFile{.name = base_name(file_.path()),
                       .embedded = embedded,
                       .bytes = file_.size(),
                       .sha256 = sha256_};
}

}  // namespace ferry::proof
