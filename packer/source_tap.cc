#include "packer/source_tap.h"

#include <algorithm>
#include <cstring>

namespace ferry::packer {
namespace {

// Windows and tiles of two weights stay in the cache of one core.
constexpr uint64_t kWindow = uint64_t{1} << 18;

}  // namespace

Status SourceTap::next_window(size_t index, Watched& watched) const {
  queue_.settle(watched.hash);
  watched.window.resize(std::min(kWindow, source_.entries()[index].bytes - watched.done));
  FERRY_RETURN_IF_ERROR(source_.read(index, watched.done, watched.window));
  watched.done += watched.window.size();
  queue_.add(watched.hash, watched.window);
  return {};
}

Status SourceTap::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const auto found = watched_.find(index);
  if (found == watched_.end()) return source_.read(index, offset, out);
  Watched& watched = found->second;
  while (!out.empty()) {
    if (offset == watched.done && watched.done < source_.entries()[index].bytes) {
      FERRY_RETURN_IF_ERROR(next_window(index, watched));
    }
    const bool in_window = offset >= watched.begin() && offset < watched.done;
    const uint64_t left = in_window                  ? watched.done - offset
                          : offset < watched.begin() ? watched.begin() - offset
                                                     : out.size();
    const auto part = out.first(std::min<uint64_t>(out.size(), left));
    if (in_window) {
      std::memcpy(part.data(), watched.window.data() + (offset - watched.begin()), part.size());
    } else {
      FERRY_RETURN_IF_ERROR(source_.read(index, offset, part));
    }
    offset += part.size();
    out = out.subspan(part.size());
  }
  return {};
}

Result<Digest> SourceTap::finish(size_t entry) {
  Watched& watched = watched_.at(entry);
  while (watched.done < source_.entries()[entry].bytes) {
    FERRY_RETURN_IF_ERROR(next_window(entry, watched));
  }
  queue_.settle(watched.hash);
  return watched.hash.finish();
}

}  // namespace ferry::packer
