// Checks the digests of a bundle's files against its manifest, by SHA-256 and, if it is stated,
// XXH3. Damage in a data file is traced to a tensor.
#include <fmt/format.h>
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/interrupt.h"
#include "core/progress.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/xxh3.h"
#include "packer/bundle_examination.h"
#include "packer/digests.h"
#include "packer/task_dealer.h"

namespace ferry::packer {
namespace {

constexpr uint64_t kHashChunk = uint64_t{1} << 18;

// Computes the digests of a range of bytes, chunk by chunk. The file is read and not mapped: if it
// shrinks meanwhile, that is an error and not a signal.
class RangeJob {
 public:
  RangeJob(const InputFile& file, uint64_t offset, uint64_t bytes, HashQueue& queue)
      : file_(file), offset_(offset), left_(bytes), queue_(queue) {
    chunk_ = std::make_unique_for_overwrite<std::byte[]>(std::min(kHashChunk, bytes));
  }
  RangeJob(const RangeJob&) = delete;
  ~RangeJob() { queue_.settle(hash_); }

  bool is_done() const { return left_ == 0; }
  // Hashes the next chunk and returns its number of bytes.
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
  // Returns the digests after the last chunk.
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

// Hashes all files of a manifest in parallel: data files by tensor, other files as a whole.
class DigestCheck {
 public:
  // Removes files with a wrong digest from `files`.
  DigestCheck(const Manifest& manifest, const std::set<std::string>* only, OpenFilesByName& files,
              ProblemList& problems)
      : manifest_(manifest), only_(only), files_(files), problems_(problems) {}

  void run(ThreadPool& pool, const ShowProgress& show) {
    collect();
    // The longest ranges come first, so that no thread begins a long one at the end.
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
  // A range of bytes to hash: a segment, or a whole plain file.
  struct Range {
    size_t file = 0;
    uint64_t offset = 0, bytes = 0;
    const ManifestTensor* tensor = nullptr;  // nullptr for a plain file
    Result<FileDigest> digest = FileDigest{};
  };

  const InputFile& file_of(size_t file) const { return files_.at(manifest_.files[file].path); }

  // The body of one thread. An error is stored in its range.
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
  // Whether the job has ended, with its result in `digest`.
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

  // Compares the digests of all ranges of one file.
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

class FastCheck {
 public:
  FastCheck(const Manifest& manifest, const OpenBundleFiles& files)
      : manifest_(manifest), files_(files) {}

  std::set<std::string> run(ThreadPool& pool, const ShowProgress& show) {
    for (size_t i = 0; i < manifest_.files.size(); ++i) {
      if (files_.open.contains(manifest_.files[i].path)) collect(i);
    }
    SharedProgress progress(show, bytes_);
    pool.parallel_for(blocks_.size(), [&](size_t i) {
      digest(blocks_[i]);
      progress.advance(blocks_[i].bytes);
    });
    for (size_t begin = 0, end = 0; begin < blocks_.size(); begin = end) {
      while (end < blocks_.size() && blocks_[end].file == blocks_[begin].file) ++end;
      judge(std::span(blocks_).subspan(begin, end - begin));
    }
    return std::move(suspects_);
  }

 private:
  // A block of a range of bytes. A range is a segment, or a whole plain file.
  struct Block {
    size_t file = 0;
    uint64_t offset = 0, bytes = 0;
    bool begins_run = false;
    Result<FastDigest> digest = FastDigest{};
  };

  const std::string& name_of(size_t file) const { return manifest_.files[file].path; }

  void collect(size_t index) {
    const ManifestFile& file = manifest_.files[index];
    if (file.method == kPlainDigest) return add_run(index, 0, file.bytes);
    if (tensors_.empty()) tensors_ = tensors_by_file(manifest_);
    const auto found = tensors_.find(file.path);
    std::vector<const ManifestTensor*> stated;
    if (found != tensors_.end()) stated = found->second;
    const auto segments = segments_of(stated, file.bytes, nullptr);
    if (!segments || segments->empty()) {
      suspects_.insert(file.path);
      return;
    }
    for (const HashedSegment& segment : *segments) add_run(index, segment.offset, segment.bytes);
  }

  void add_run(size_t file, uint64_t offset, uint64_t bytes) {
    bytes_ += bytes;
    for (uint64_t done = 0; done == 0 || done < bytes; done += kFastDigestBlock) {
      blocks_.push_back({file, offset + done, std::min(kFastDigestBlock, bytes - done), done == 0});
    }
  }

  void digest(Block& block) const {
    if (const Status go_on = check_interrupt(); !go_on) {
      block.digest = Failure(go_on.error());
      return;
    }
    const auto mapped = files_.mapped.find(name_of(block.file));
    if (mapped != files_.mapped.end()) {
      block.digest = xxh3(mapped->second.bytes().subspan(block.offset, block.bytes));
      return;
    }
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(block.bytes);
    const std::span bytes(buffer.get(), block.bytes);
    const Status read = files_.open.at(name_of(block.file)).read_at(block.offset, bytes);
    block.digest = read ? Result<FastDigest>(xxh3(bytes)) : Failure(read.error());
  }

  // Compares the digests of all blocks of one file.
  void judge(std::span<const Block> blocks) {
    const size_t file = blocks[0].file;
    const auto digest = digest_of_file(file, blocks);
    const bool same = digest && to_hex(*digest) == manifest_.files[file].xxh3 &&
                      files_.open.at(name_of(file)).check_unchanged();
    if (!same) suspects_.insert(name_of(file));
  }

  Result<FastDigest> digest_of_file(size_t file, std::span<const Block> blocks) const {
    std::vector<HashedSegment> runs;
    FastHash hash;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].begins_run) runs.push_back({blocks[i].offset, 0});
      runs.back().bytes += blocks[i].bytes;
      if (blocks[i].bytes > 0) hash.add_block(FERRY_TRY(blocks[i].digest));
      if (i + 1 == blocks.size() || blocks[i + 1].begins_run) runs.back().fast = hash.finish();
    }
    const ManifestFile& stated = manifest_.files[file];
    if (stated.method == kPlainDigest) return runs[0].fast;
    const InputFile& input = files_.open.at(stated.path);
    const auto read = [&](uint64_t offset, std::span<std::byte> out) {
      return input.read_at(offset, out);
    };
    return FERRY_TRY(digest_of_segments(stated.bytes, runs, read)).fast;
  }

  const Manifest& manifest_;
  const OpenBundleFiles& files_;
  TensorsByFile tensors_;
  std::vector<Block> blocks_;  // by file
  uint64_t bytes_ = 0;
  std::set<std::string> suspects_;
};

}  // namespace

void check_digests(const Manifest& manifest, const std::set<std::string>* only,
                   OpenFilesByName& files, ThreadPool& pool, const ShowProgress& progress,
                   ProblemList& problems) {
  DigestCheck(manifest, only, files, problems).run(pool, progress);
}

std::set<std::string> find_damage(const Manifest& manifest, const OpenBundleFiles& files,
                                  ThreadPool& pool, const ShowProgress& progress) {
  return FastCheck(manifest, files).run(pool, progress);
}

}  // namespace ferry::packer
