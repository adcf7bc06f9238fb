#include "patch/frames.h"

#include <zstd.h>

#include <memory>
#include <new>

namespace ferry::patch {
namespace {

// Higher levels shorten weights by less than 1 % and take several times as long.
constexpr int kLevel = 9;

struct FreeContexts {
  void operator()(ZSTD_CCtx* context) const { ::ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ::ZSTD_freeDCtx(context); }
};

}  // namespace

void append_frame(std::span<const std::byte> bytes, std::vector<std::byte>& out) {
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeContexts> context(::ZSTD_createCCtx());
  if (!context) throw std::bad_alloc();
  const size_t start = out.size();
  out.resize(start + ::ZSTD_compressBound(bytes.size()));
  const size_t stored = ::ZSTD_compressCCtx(context.get(), out.data() + start, out.size() - start,
                                            bytes.data(), bytes.size(), kLevel);
  // There is always room, so that only memory can be short.
  if (::ZSTD_isError(stored) != 0) throw std::bad_alloc();
  out.resize(start + stored);
}

std::optional<Frame> take_frame(std::span<const std::byte>& rest) {
  const size_t stored = ::ZSTD_findFrameCompressedSize(rest.data(), rest.size());
  if (::ZSTD_isError(stored) != 0 || stored == 0 || stored > rest.size()) return std::nullopt;
  const unsigned long long bytes = ::ZSTD_getFrameContentSize(rest.data(), stored);
  if (bytes == 0 || bytes == ZSTD_CONTENTSIZE_UNKNOWN || bytes == ZSTD_CONTENTSIZE_ERROR) {
    return std::nullopt;
  }
  const Frame frame{rest.first(stored), bytes};
  rest = rest.subspan(stored);
  return frame;
}

bool decompress(const Frame& frame, std::span<std::byte> out) {
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeContexts> context(::ZSTD_createDCtx());
  if (!context) throw std::bad_alloc();
  const size_t bytes = ::ZSTD_decompressDCtx(context.get(), out.data(), out.size(),
                                             frame.stored.data(), frame.stored.size());
  return ::ZSTD_isError(bytes) == 0 && bytes == out.size() && bytes == frame.bytes;
}

}  // namespace ferry::patch
