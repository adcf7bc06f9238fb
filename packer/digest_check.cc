// Digests of the files of a bundle against its manifest, by SHA-256 and, where it is stated, XXH3.
// A damaged data file is traced to a tensor.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/file.h"
#include "core/interrupt.h"
#include "core/progress.h"
#include "core/sha256.h"
#include "core/text.h"
#include "packer/bundle_examination.h"
#include "packer/hash_queue.h"
#include "packer/segment_digest.h"
#include "packer/task_dealer.h"

namespace ferry::packer {
namespace {

constexpr uint64_t kHashChunk = uint64_t{1} << 18;

// The digests of a run of bytes, chunk by chunk. Read, not mapped: a file that shrinks meanwhile is
// an error then, not a signal.
class RangeJob {
 public:
  RangeJob(const InputFile& file, uint64_t offset, uint64_t bytes, HashQueue& queue)
      : file_(file), offset_(offset), left_(bytes), queue_(queue) {
    chunk_ = std::make_unique_for_overwrite<std::byte[]>(std::min(kHashChunk, bytes));
  }
  RangeJob(const RangeJob&) = delete;
  ~RangeJob() { queue_.settle(hash_); }

  bool is_done() const { return left_ == 0; }
  // The next chunk; the number of bytes.
  Result<uint64_t> step() {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    queue_.settle(hash_);
    const auto part = std::span(chunk_.get(), std::min(kHashChunk, left_));
    FERRY_RETURN_IF_ERROR(file_.read_at(offset_, part));
    queue_.add(hash_, part);
    fast_.update(part);
    offset_ += part.size();
    left_ -= part.size();
    return part.size();
  }
  // After the last one.
  Result<FileDigest> finish() {
    queue_.settle(hash_);
    FERRY_RETURN_IF_ERROR(file_.check_unchanged());
    return FileDigest{hash_.finish(), fast_.finish()};
  }

 private:
  const InputFile& file_;
  uint64_t offset_, left_;
  HashQueue& queue_;
  std::unique_ptr<std::byte[]> chunk_;
  Sha256 hash_;
  FastHash fast_;
};

// Hashes all files of a manifest in parallel: data files tensor by tensor, others as a whole.
class DigestCheck {
 public:
  // Files of a wrong digest are taken out of `files`.
  DigestCheck(const Manifest& manifest, const std::set<std::string>* only, OpenFilesByName& files,
              ProblemList& problems)
      : manifest_(manifest), only_(only), files_(files), problems_(problems) {}

  void run(ThreadPool& pool, const ShowProgress& show) {
    collect();
    // Long ones first, so that no thread starts the longest one last.
    std::vector<Range*> order;
    for (Range& range : ranges_) order.push_back(&range);
    std::stable_sort(order.begin(), order.end(),
                     [](const Range* a, const Range* b) { return a->bytes > b->bytes; });
    uint64_t bytes = 0;
    std::vector<HashedTask> tasks;
    for (const Range* range : order) {
      tasks.push_back({range->bytes});
      bytes += range->bytes;
    }
    SharedProgress progress(show, bytes);
    TaskDealer dealer(std::move(tasks), pool.size());
    pool.parallel_for(pool.size(), [&](size_t) { hash_ranges(order, dealer, progress); });
    for (size_t begin = 0; begin < ranges_.size();) {
      size_t end = begin;
      while (end < ranges_.size() && ranges_[end].file == ranges_[begin].file) ++end;
      judge(std::span(ranges_).subspan(begin, end - begin));
      begin = end;
    }
  }

 private:
  // A run of bytes to hash: a segment, or the whole of a plain file.
  struct Range {
    size_t file = 0;
    uint64_t offset = 0, bytes = 0;
    const ManifestTensor* tensor = nullptr;  // nullptr for a plain file
    Result<FileDigest> digest = FileDigest{};
  };

  const InputFile& file_of(size_t file) const { return files_.at(manifest_.files[file].path); }

  // Of one thread. An error of a range is kept with it.
  void hash_ranges(std::span<Range* const> ranges, TaskDealer& dealer, SharedProgress& progress) {
    HashQueue queue;
    const auto begin = [&](size_t task) -> Result<std::unique_ptr<RangeJob>> {
      const Range& range = *ranges[task];
      return std::make_unique<RangeJob>(file_of(range.file), range.offset, range.bytes, queue);
    };
    const auto step = [&](size_t task, RangeJob& job) -> Result<bool> {
      return advance(job, ranges[task]->digest, progress);
    };
    (void)take_turns<RangeJob>(dealer, begin, step, [] { return false; });
  }
  // Whether the job has ended; `digest` is its result then.
  static bool advance(RangeJob& job, Result<FileDigest>& digest, SharedProgress& progress) {
    if (!job.is_done()) {
      auto read = job.step();
      if (!read) {
        digest = read.pass();
        return true;
      }
      progress.advance(*read);
    }
    if (!job.is_done()) return false;
    digest = job.finish();
    return true;
  }

  void collect() {
    const TensorsByFile tensors = tensors_by_file(manifest_);
    for (size_t i = 0; i < manifest_.files.size(); ++i) {
      const ManifestFile& file = manifest_.files[i];
      if (!files_.contains(file.path) || (only_ != nullptr && !only_->contains(file.path)))
        continue;
      if (file.method == kPlainDigest) {
        ranges_.push_back({i, 0, file.bytes});
        continue;
      }
      const auto found = tensors.find(file.path);
      std::vector<const ManifestTensor*> stated, owners;
      if (found != tensors.end()) stated = found->second;
      const auto segments = segments_of(stated, file.bytes, &owners);
      if (!segments) {
        fail_file(i, "cannot be hashed: the manifest does not state its tensors in order");
        continue;
      }
      if (segments->empty()) judge_data_file(i, {});
      for (size_t k = 0; k < segments->size(); ++k) {
        ranges_.push_back({i, (*segments)[k].offset, (*segments)[k].bytes, owners[k]});
      }
    }
  }

  void fail_file(size_t file, const std::string& what) {
    problems_.add(manifest_.files[file].path, what);
    files_.erase(manifest_.files[file].path);
  }
  void fail_file(size_t file, const Error& error) {
    problems_.add(manifest_.files[file].path, error);
    files_.erase(manifest_.files[file].path);
  }

  // All ranges of one file.
  void judge(std::span<Range> ranges) {
    const size_t file = ranges[0].file;
    for (const Range& range : ranges) {
      if (!range.digest) return fail_file(file, range.digest.error());
    }
    if (ranges[0].tensor) {
      judge_data_file(file, ranges);
    } else if (to_hex(ranges[0].digest->sha256) != manifest_.files[file].digest) {
      fail_file(file, kChanged);
    } else {
      judge_fast(file, ranges[0].digest->fast);
    }
  }

  void judge_fast(size_t file, const FastDigest& digest) {
    const std::string& stated = manifest_.files[file].xxh3;
    if (stated.empty() || to_hex(digest) == stated) return;
    fail_file(file, "does not have the XXH3 that the manifest states beside its SHA-256");
  }

  void judge_data_file(size_t file, std::span<Range> ranges) {
    std::vector<HashedSegment> segments;
    for (const Range& range : ranges) {
      segments.push_back({range.offset, range.bytes, range.digest->sha256, range.digest->fast});
      if (to_hex(range.digest->sha256) == range.tensor->sha256) continue;
      return fail_file(file, fmt::format("{} (tensor {}, offset {})", kChanged,
                                         quoted(range.tensor->name), range.offset));
    }
    const auto digest = digest_of_data_file(file, segments);
    if (!digest) {
      fail_file(file, digest.error());
    } else if (to_hex(digest->sha256) != manifest_.files[file].digest) {
      fail_file(file, fmt::format("{} outside of its tensors", kChanged));
    } else {
      judge_fast(file, digest->fast);
    }
  }

  Result<FileDigest> digest_of_data_file(size_t file,
                                         const std::vector<HashedSegment>& segments) const {
    const InputFile& input = file_of(file);
    return digest_of_segments(
        manifest_.files[file].bytes, segments,
        [&](uint64_t offset, std::span<std::byte> out) { return input.read_at(offset, out); });
  }

  static constexpr const char* kChanged =
      "does not have the SHA-256 that the manifest states: it was changed";

  const Manifest& manifest_;
  const std::set<std::string>* only_;
  OpenFilesByName& files_;
  ProblemList& problems_;
  std::vector<Range> ranges_;  // by file
};

}  // namespace

void check_digests(const Manifest& manifest, const std::set<std::string>* only,
                   OpenFilesByName& files, ThreadPool& pool, const ShowProgress& progress,
                   ProblemList& problems) {
  DigestCheck(manifest, only, files, problems).run(pool, progress);
}

}  // namespace ferry::packer
