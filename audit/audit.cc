#include "audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "audit/findings.h"
#include "audit/targets.h"
#include "core/dtype.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/result.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/thread_pool.h"

namespace ferry::audit {
namespace {

// read_contents() reads all bytes of an artifact for digests and properties of values. Private to
// audit/.

constexpr size_t kWindowBytes = size_t{1} << 20;  // a multiple of the element size of every dtype
constexpr size_t kBlock = 1024;                   // number of f32 values

using Bytes = std::span<const std::byte>;

// Tracks which values of Leaf::content are still possible after the bytes read so far.
class ContentScan {
 public:
  explicit ContentScan(const Leaf& leaf) {
    const auto dtype = dtype_from_name(leaf.dtype);
    const bool plain = leaf.is_tensor() && leaf.encoding.empty() && dtype.has_value();
    width_ = plain ? static_cast<size_t>(dtype_bits(*dtype)) / 8 : 0;
    constant_ = width_ > 0;
    bf16_ = f16_ = plain && dtype == DType::kF32;
    zero_ = leaf.is_tensor();
  }

  void add(Bytes bytes) {
    zero_ = zero_ && std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
    if (constant_) add_constant(bytes);
    if (bf16_ || f16_) add_halves(bytes);
  }

  std::string result(uint64_t elements) const {
    if (zero_) return "zero";
    if (constant_ && elements > 1) return "constant";
    if (bf16_) return "bf16";
    return f16_ ? "f16" : "";
  }

 private:
  // All elements are equal if the bytes equal themselves moved by one element, and begin with the
  // tensor's first element.
  void add_constant(Bytes bytes) {
    if (bytes.size() % width_ != 0) {
      constant_ = false;
      return;
    }
    if (!seen_) std::copy_n(bytes.begin(), width_, first_.begin());
    seen_ = true;
    constant_ =
        std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(width_), first_.begin()) &&
        std::memcmp(bytes.data(), bytes.data() + width_, bytes.size() - width_) == 0;
  }

  void add_halves(Bytes bytes) {
    std::array<float, kBlock> values, back;
    std::array<std::byte, kBlock * 2> half;
    for (size_t at = 0; at + 4 <= bytes.size() && (bf16_ || f16_); at += kBlock * 4) {
      const size_t count = std::min(kBlock, (bytes.size() - at) / 4);
      std::memcpy(values.data(), bytes.data() + at, count * 4);
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        bool& possible = dtype == DType::kBF16 ? bf16_ : f16_;
        if (!possible) continue;
        from_f32(dtype, values.data(), half.data(), count);
        to_f32(dtype, half.data(), back.data(), count);
        possible = std::memcmp(values.data(), back.data(), count * 4) == 0;
      }
    }
  }

  size_t width_ = 0;
  bool zero_ = false, constant_ = false, bf16_ = false, f16_ = false, seen_ = false;
  std::array<std::byte, 16> first_ = {};
};

Status read_leaf(const InputFile& file, Leaf& leaf, const std::function<void(uint64_t)>& advance) {
  std::vector<std::byte> window(std::min<uint64_t>(leaf.bytes, kWindowBytes));
  const bool hashes = leaf.sha256.empty();
  Sha256 hash;
  ContentScan scan(leaf);
  for (uint64_t at = 0; at < leaf.bytes; at += window.size()) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const std::span part(window.data(), std::min<uint64_t>(window.size(), leaf.bytes - at));
    FERRY_RETURN_IF_ERROR(file.read_at(leaf.offset + at, part));
    if (hashes) hash.update(part);
    scan.add(part);
    advance(part.size());
  }
  if (hashes) leaf.sha256 = to_hex(hash.finish());
  leaf.content = leaf.bytes > 0 && leaf.is_tensor() ? scan.result(leaf.elements) : leaf.content;
  return {};
}

Result<std::vector<InputFile>> open_files(const std::string& path, const Audit& audit) {
  std::error_code ignored;
  const bool directory = std::filesystem::is_directory(path, ignored);
  std::vector<InputFile> files;
  for (const AuditedFile& file : audit.files) {
    // Paths are relative to the target. A target that is a file lies beside its shards.
    const std::filesystem::path parent =
        directory ? std::filesystem::path(path) : std::filesystem::path(path).parent_path();
    const std::string below = (parent / file.path).string();
    files.push_back(FERRY_TRY(InputFile::open(below)));
    if (files.back().size() == file.bytes) continue;
    return fail(ErrorCode::kIo, fmt::format("{}: has changed while it was read", printable(below)));
  }
  return files;
}

// Sets Leaf::content, and Leaf::sha256 where it is empty. `path` is the audited target. Uses 1 MiB
// of memory per thread. Returns kIo if a file has changed, and kInterrupted.
Status read_contents(const std::string& path, Audit& audit,
                     const std::function<void(uint64_t done, uint64_t total)>& progress,
                     ThreadPool& pool) {
  const std::vector<InputFile> files = FERRY_TRY(open_files(path, audit));
  const uint64_t total = audit.bytes();
  std::mutex mutex;
  uint64_t done = 0;
  Status status;
  const auto advance = [&](uint64_t bytes) {
    const std::lock_guard lock(mutex);
    done += bytes;
    if (progress) progress(done, total);
  };
  pool.parallel_for(audit.leaves.size(), [&](size_t i) {
    Leaf& leaf = audit.leaves[i];
    Status read = read_leaf(files[leaf.file], leaf, advance);
    const std::lock_guard lock(mutex);
    if (!read && status) status = std::move(read);
  });
  FERRY_RETURN_IF_ERROR(std::move(status));
  for (const InputFile& file : files) FERRY_RETURN_IF_ERROR(file.check_unchanged());
  return {};
}

namespace fs = std::filesystem;

// Reads the FlatBuffer identifier, which reveals programs and data files that have other
// extensions.
Result<std::string> file_identifier(const InputFile& file) {
  std::array<char, 8> bytes = {};
  if (file.size() < bytes.size()) return std::string();
  FERRY_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(bytes))));
  return std::string(bytes.data() + 4, 4);
}

// Looks only at the top of the directory.
bool holds_programs(const std::string& directory) {
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const fs::path extension = at->path().extension();
    if (extension == ".pte" || extension == ".ptd") return true;
  }
  return false;
}

Result<Audit> audit_file(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  if (path.ends_with(".pte") || path.ends_with(".bpte")) return audit_program(file);
  if (path.ends_with(".ptd")) return audit_data(file);
  const std::string identifier = FERRY_TRY(file_identifier(file));
  if (identifier == "ET12") return audit_program(file);
  if (identifier == "FT01") return audit_data(file);
  return audit_checkpoint(path);
}

Result<Audit> audit_structure(const std::string& path, ThreadPool& pool) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (fs::exists(path + "/manifest.json", ignored)) return audit_bundle(path, pool);
    return holds_programs(path) ? audit_folder(path) : audit_checkpoint(path);
  }
  if (!fs::exists(path, ignored)) return audit_checkpoint(path);  // returns the error
  return audit_file(path);
}

}  // namespace

std::string target_name(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.ends_with('/')) trimmed.pop_back();
  return base_name(trimmed);
}

uint64_t Audit::bytes() const {
  uint64_t sum = 0;
  for (const AuditedFile& file : files) sum += file.bytes;
  return sum;
}

uint64_t Audit::elements() const {
  uint64_t sum = 0;
  for (const Leaf& leaf : leaves) sum += leaf.elements;
  return sum;
}

uint64_t Audit::bytes_of(LeafKind kind) const {
  uint64_t sum = 0;
  for (const Leaf& leaf : leaves) sum += leaf.kind == kind ? leaf.bytes : 0;
  return sum;
}

Result<Audit> audit_path(const std::string& path, const AuditOptions& options, ThreadPool& pool) {
  Audit audit = FERRY_TRY(audit_structure(path, pool));
  if (options.digests) {
    FERRY_RETURN_IF_ERROR(read_contents(path, audit, options.progress, pool));
    audit.content_read = true;
  }
  audit.findings = find_all(audit);
  return audit;
}

}  // namespace ferry::audit
