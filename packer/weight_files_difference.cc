// WeightFilesPlan::difference() tells whether existing files equal those of the plan, byte for
// byte. The files do not state their sources, so every tensor is made again and compared; nothing
// is written.
#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "core/directory.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "packer/weight_files.h"

namespace ferry::packer {
namespace {

constexpr uint64_t kTileBytes = uint64_t{1} << 20;

class FileComparison {
 public:
  FileComparison(const WeightFile& plan, const InputFile& file, const TensorSource& source,
                 ThreadPool& pool, const std::function<void(uint64_t)>& advance)
      : plan_(plan), file_(file), source_(source), pool_(pool), advance_(advance) {}

  Result<bool> same() {
    std::vector<uint32_t> crcs(plan_.tensors.size(), 0);
    pool_.parallel_for(plan_.tensors.size(), [&](size_t i) {
      if (stopped()) return;
      const auto equal = same_tensor(plan_.tensors[i], crcs[i]);
      const std::lock_guard lock(mutex_);
      if (!equal && !error_) error_ = equal.error();
      same_ = same_ && equal && *equal;
    });
    if (error_) return Failure(*error_);
    return same_ && FERRY_TRY(same_rest(crcs));
  }

 private:
  bool stopped() {
    const std::lock_guard lock(mutex_);
    return error_.has_value() || !same_;
  }

  Result<bool> holds(uint64_t offset, std::span<const std::byte> want) const {
    std::vector<std::byte> have(want.size());
    FERRY_RETURN_IF_ERROR(file_.read_at(offset, have));
    return std::ranges::equal(have, want);
  }

  Result<bool> same_tensor(const FileTensor& tensor, uint32_t& crc) const {
    const graph::Recipe& recipe = tensor.recipe;
    const int64_t count = graph::row_count(recipe);
    const int64_t step = std::max<int64_t>(1, std::min(graph::tile_rows(recipe), count));
    const uint64_t row = graph::row_bytes(recipe, 0);
    std::vector<std::byte> tile(static_cast<uint64_t>(step) * row);
    for (int64_t first = 0; first < count; first += step) {
      FERRY_RETURN_IF_ERROR(check_interrupt());
      const int64_t rows = std::min(step, count - first);
      const std::span<std::byte> want = std::span(tile).first(static_cast<uint64_t>(rows) * row);
      const std::span<std::byte> outs[] = {want};
      FERRY_TRY(graph::materialize_rows(recipe, source_, first, rows, outs));
      if (!FERRY_TRY(holds(tensor.offset + static_cast<uint64_t>(first) * row, want))) return false;
      if (plan_.finishing) {
        crc = static_cast<uint32_t>(
            ::crc32_z(crc, reinterpret_cast<const unsigned char*>(want.data()), want.size()));
      }
      advance_(want.size());
    }
    return true;
  }

  // Compares known bytes, literals, and the zeros between all extents.
  Result<bool> same_rest(const std::vector<uint32_t>& crcs) {
    std::vector<FileBytes> last;
    if (plan_.finishing) last = plan_.finishing(crcs);
    std::map<uint64_t, uint64_t> ends;  // ends of the extents by their offsets
    for (const FileBytes& known : plan_.known) {
      std::vector<std::byte> want = known.bytes;
      for (const FileBytes& over : last) put_over(over, known.offset, want);
      if (!FERRY_TRY(holds(known.offset, want))) return false;
      ends[known.offset] = known.offset + known.bytes.size();
      advance_(want.size());
    }
    for (const FileLiteral& made : plan_.literals) {
      std::vector<std::byte> want(made.literal.bytes);
      made.literal.fill(0, want);
      if (!FERRY_TRY(holds(made.offset, want))) return false;
      ends[made.offset] = made.offset + want.size();
      advance_(want.size());
    }
    for (const FileBytes& over : last) {
      if (!FERRY_TRY(holds(over.offset, over.bytes))) return false;
      ends[over.offset] = std::max(ends[over.offset], over.offset + over.bytes.size());
    }
    for (const FileTensor& tensor : plan_.tensors) {
      ends[tensor.offset] = tensor.offset + tensor.recipe.output().bytes();
    }
    uint64_t at = 0;
    for (const auto& [begin, end] : ends) {
      if (!FERRY_TRY(is_zero(at, begin))) return false;
      at = std::max(at, end);
    }
    return is_zero(at, plan_.bytes);
  }

  static void put_over(const FileBytes& over, uint64_t offset, std::vector<std::byte>& bytes) {
    if (over.offset < offset || over.offset - offset > bytes.size()) return;
    const uint64_t at = over.offset - offset;
    const uint64_t count = std::min<uint64_t>(over.bytes.size(), bytes.size() - at);
    std::copy_n(over.bytes.begin(), count, bytes.begin() + static_cast<int64_t>(at));
  }

  Result<bool> is_zero(uint64_t begin, uint64_t end) const {
    for (uint64_t at = begin; at < end; at += kTileBytes) {
      const std::vector<std::byte> zeros(std::min(kTileBytes, end - at));
      if (!FERRY_TRY(holds(at, zeros))) return false;
    }
    return true;
  }

  const WeightFile& plan_;
  const InputFile& file_;
  const TensorSource& source_;
  ThreadPool& pool_;
  const std::function<void(uint64_t)>& advance_;
  std::mutex mutex_;  // guards the members below
  std::optional<Error> error_;
  bool same_ = true;
};

Result<bool> same_plain(const PlainFileInput& plan, const InputFile& file) {
  const auto text = std::as_bytes(std::span(plan.text));
  for (uint64_t at = 0; at < file.size(); at += kTileBytes) {
    std::vector<std::byte> have(std::min(kTileBytes, file.size() - at)), want(have.size());
    FERRY_RETURN_IF_ERROR(file.read_at(at, have));
    if (plan.file) {
      FERRY_RETURN_IF_ERROR(plan.file->read_at(at, want));
    } else {
      std::ranges::copy(text.subspan(at, want.size()), want.begin());
    }
    if (have != want) return false;
  }
  return true;
}

// The existing output: files of a directory, or a single file.
class Target {
 public:
  static Result<Target> open(const std::string& path, bool is_directory) {
    Target target;
    target.path_ = path;
    if (is_directory) target.directory_ = FERRY_TRY(Directory::open(path));
    return target;
  }

  // Returns why the target does not have exactly these files; empty if it has.
  Result<std::string> check_names(const std::vector<PlannedFile>& files) const {
    if (!directory_) return std::string();
    for (const std::string& name : FERRY_TRY(directory_->names())) {
      if (std::ranges::count(files, name, &PlannedFile::path) > 0) continue;
      return fmt::format("{} is not one of its files", quoted(name));
    }
    return std::string();
  }

  Result<InputFile> file(const std::string& name) const {
    using Links = InputFile::Links;
    return directory_ ? directory_->open_file(name, name, Links::kRefuse)
                      : InputFile::open(path_, Links::kRefuse);
  }

 private:
  std::string path_;
  std::optional<Directory> directory_;
};

}  // namespace

Result<std::string> WeightFilesPlan::difference(const std::string& path, ThreadPool& pool,
                                                const ShowProgress& progress) const {
  const auto target = Target::open(path, input().is_directory);
  if (!target) return target.error().message;
  if (std::string why = FERRY_TRY(target->check_names(files())); !why.empty()) return why;
  std::vector<InputFile> opened;
  for (const PlannedFile& planned : files()) {
    auto file = target->file(planned.path);
    if (!file) return file.error().message;
    if (file->size() != planned.bytes) {
      return fmt::format("{} has {} bytes, not {}", quoted(planned.path), file->size(),
                         planned.bytes);
    }
    opened.push_back(*std::move(file));
  }
  std::mutex mutex;
  uint64_t done = 0;
  const std::function<void(uint64_t)> advance = [&](uint64_t bytes) {
    if (!progress) return;
    const std::lock_guard lock(mutex);
    progress(done += bytes, total_bytes());
  };
  const size_t with_weights = input().files.size();
  for (size_t i = 0; i < opened.size(); ++i) {
    const bool equal =
        i < with_weights
            ? FERRY_TRY(FileComparison(input().files[i], opened[i], source(), pool, advance).same())
            : FERRY_TRY(same_plain(input().plain[i - with_weights], opened[i]));
    if (!equal) return fmt::format("{} has other bytes", quoted(files()[i].path));
  }
  FERRY_RETURN_IF_ERROR(source().check_unchanged());
  return std::string();
}

}  // namespace ferry::packer
