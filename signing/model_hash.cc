#include "signing/model_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <utility>

#include "core/interrupt.h"
#include "core/text.h"
#include "signing/openssl_handles.h"

namespace ferry::signing {
namespace {

// A chunk stays in the second-level cache between reading and hashing.
constexpr uint64_t kChunk = uint64_t{256} << 10;
constexpr uint64_t kProgressStep = uint64_t{16} << 20;

class RangeHash {
 public:
  explicit RangeHash(HashType type) : context_(EVP_MD_CTX_new()) {
    const EVP_MD* const method = type == HashType::kSha256 ? EVP_sha256() : EVP_blake2b512();
    ok_ = context_ && EVP_DigestInit_ex(context_.get(), method, nullptr) == 1;
  }
  void update(std::span<const std::byte> data) {
    ok_ = ok_ && EVP_DigestUpdate(context_.get(), data.data(), data.size()) == 1;
  }
  Result<std::string> finish() {
    std::string digest(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    auto* const out = reinterpret_cast<unsigned char*>(digest.data());
    if (!ok_ || EVP_DigestFinal_ex(context_.get(), out, &size) != 1) {
      return fail(ErrorCode::kInternal, fmt::format("cannot hash: {}", take_openssl_error()));
    }
    digest.resize(size);
    return digest;
  }

 private:
  Owned<EVP_MD_CTX> context_;
  bool ok_ = false;
};

// Adds up the bytes that all threads have hashed.
class Meter {
 public:
  Meter(const Progress& progress, uint64_t total) : progress_(progress), total_(total) {}
  void add(uint64_t bytes) {
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (done_ < shown_ + kProgressStep && done_ != total_) return;
    shown_ = done_;
    progress_(done_, total_);
  }

 private:
  const Progress& progress_;
  uint64_t total_, done_ = 0, shown_ = 0;
  std::mutex mutex_;
};

Result<std::string> hash_range(const ModelTree& tree, const FileRange& range, HashType type,
                               Meter& meter) {
  FERRY_RETURN_IF_ERROR(check_interrupt());
  const InputFile file = FERRY_TRY(tree.open_file(range.name));
  if (file.size() != range.file_bytes) {
    return fail(ErrorCode::kIo,
                fmt::format("{}: changed while it was being read", printable(file.path())));
  }
  const uint64_t size = std::min(kChunk, range.bytes);
  const auto chunk = std::make_unique_for_overwrite<std::byte[]>(size);
  RangeHash hash(type);
  for (uint64_t done = 0; done < range.bytes; done += size) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const auto part = std::span(chunk.get(), std::min(size, range.bytes - done));
    FERRY_RETURN_IF_ERROR(file.read_at(range.offset + done, part));
    hash.update(part);
    meter.add(part.size());
  }
  FERRY_RETURN_IF_ERROR(file.check_unchanged());
  return hash.finish();
}

}  // namespace

std::string_view name_of(HashType type) { return type == HashType::kSha256 ? "sha256" : "blake2b"; }

size_t digest_bytes(HashType type) { return type == HashType::kSha256 ? 32 : 64; }

Result<std::vector<std::string>> hash_ranges(const ModelTree& tree,
                                             std::span<const FileRange> ranges, HashType type,
                                             ThreadPool& pool, const Progress& progress) {
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Long ranges come first, so that no thread starts the longest one last.
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return ranges[i].bytes; });
  uint64_t total = 0;
  for (const FileRange& range : ranges) total += range.bytes;
  Meter meter(progress, total);
  std::vector<Result<std::string>> results(ranges.size());
  pool.parallel_for(order.size(), [&](size_t i) {
    results[order[i]] = hash_range(tree, ranges[order[i]], type, meter);
  });
  std::vector<std::string> digests;
  digests.reserve(results.size());
  for (auto& result : results) digests.push_back(FERRY_TRY(std::move(result)));
  return digests;
}

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto value = static_cast<unsigned char>(c);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

}  // namespace ferry::signing
