// One task writes all outputs of one weight. Weights are independent of each other, also in their
// digests, so tasks are the only parallelism. The longest tasks begin first. Each thread works on
// several tasks and writes a tile of each in turn, because hashing several streams together is
// faster than one after the other. Each program and each copied file is one task.
//
// Rejected: the plain digest of data files. It is a chain through the whole file, and so a second
// pass over every byte on one core, because digests of tensors are needed anyway. Conversion then
// took five times as long as a copy on two cores, instead of two and a half. Files for other
// programs need the plain digest, because their readers know no other.
//
// Rejected: copy_file_range for unchanged bytes. The bytes must be read for the digest anyway. Two
// threads on ext4 took 0.35 s for 1.2 GB with it, and 0.17 s with pread and pwrite through a
// buffer.
#include "packer/file_writer.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>

#include "core/file.h"
#include "core/interrupt.h"
#include "graph/recipe.h"
#include "packer/digests.h"
#include "packer/task_dealer.h"
#include "packer/weight_job.h"

namespace ferry::packer {
namespace {

constexpr uint64_t kWrittenTileBytes = uint64_t{1} << 20;
struct Task {
  size_t file = 0;
  std::span<const Extent> weight = {};  // all outputs of one weight; empty for a whole plain file
  uint64_t bytes = 0;
};

// Writes a file from front to back and computes its digests. Gaps are zero already.
class PlainFile {
 public:
  PlainFile(const OutputFile& out) : out_(out) {}

  Status append(std::span<const std::byte> bytes) {
    hash(bytes);
    FERRY_RETURN_IF_ERROR(out_.write_at(size_, bytes));
    size_ += bytes.size();
    return {};
  }
  void skip_to(uint64_t offset) {
    hash(std::vector<std::byte>(offset - size_));
    size_ = offset;
  }
  FileDigest finish() { return {hash_.finish(), fast_.finish()}; }

 private:
  void hash(std::span<const std::byte> bytes) {
    hash_.update(bytes);
    fast_.update(bytes);
  }

  const OutputFile& out_;
  Sha256 hash_;
  FastHash fast_;
  uint64_t size_ = 0;
};

class FileWriter {
 public:
  FileWriter(const FileSet& plan, const OutputFolder& folder, ResumableStage* stage,
             ThreadPool& pool, const std::function<void(uint64_t, uint64_t)>& progress)
      : plan_(plan), folder_(folder), stage_(stage), pool_(pool), progress_(progress) {
    digests_.files.resize(plan.files.size());
    digests_.fast_files.resize(plan.files.size());
    digests_.segments.resize(plan.segments);
    digests_.fast_segments.resize(plan.segments);
    digests_.entries.resize(plan.source->entries().size());
    digests_.non_finite.resize(plan.weights.size());
    crcs_.resize(plan.weights.size(), 0);
    for (const FilePlan& file : plan.files) {
      for (const Extent& extent : file.extents) total_ += extent.bytes;
    }
    assign_entries();
    done_.resize(plan.weights.size(), false);
  }

  Result<FileDigests> run() {
    const StageContents nothing;
    FERRY_RETURN_IF_ERROR(
        prepare_files(plan_, folder_, stage_ != nullptr ? stage_->contents : nothing));
    if (stage_ != nullptr) take_over(stage_->contents);
    const size_t count = plan_.files.size();
    const size_t at_once = std::clamp<size_t>(most_open_files() / 4, 1, 64);
    for (size_t begin = 0; begin < count; begin += at_once) {
      FERRY_RETURN_IF_ERROR(write_batch(begin, std::min(count, begin + at_once)));
    }
    return std::move(digests_);
  }

 private:
  // Each source tensor is hashed by one task: by the task that copies it unchanged, if there is
  // one.
  void assign_entries() {
    hashed_by_.resize(digests_.entries.size(), SIZE_MAX);
    if (!plan_.source_digests) return;
    for (size_t i = 0; i < plan_.weights.size(); ++i) {
      const graph::Recipe& recipe = *plan_.weights[i];
      if (is_whole_copy(recipe, *plan_.source)) hashed_by_[recipe.pieces[0].tensor] = i;
    }
    for (size_t i = 0; i < plan_.weights.size(); ++i) {
      for (size_t entry : stored_entries_of(*plan_.weights[i], *plan_.source)) {
        if (hashed_by_[entry] == SIZE_MAX) hashed_by_[entry] = i;
      }
    }
  }

  // Returns the source tensors that the task of a weight hashes.
  std::vector<size_t> entries_hashed_by(size_t weight) const {
    if (!plan_.source_digests) return {};
    std::vector<size_t> entries = stored_entries_of(*plan_.weights[weight], *plan_.source);
    std::erase_if(entries, [&](size_t entry) { return hashed_by_[entry] != weight; });
    return entries;
  }

  // Takes over the work of an earlier run, with the results that writing it now would give.
  void take_over(const StageContents& contents) {
    for (size_t weight = 0; weight < contents.weights.size(); ++weight) {
      if (const auto& record = contents.weights[weight]) take_over(weight, *record);
    }
  }
  void take_over(size_t weight, const WeightRecord& record) {
    std::vector<size_t> entries;
    for (const auto& [entry, digest] : record.entries) entries.push_back(entry);
    if (entries != entries_hashed_by(weight)) return;
    done_[weight] = true;
    uint64_t bytes = 0;
    for (size_t i = 0; i < record.outputs.size(); ++i) {
      digests_.segments[plan_.first_segment[weight] + i] = record.outputs[i];
      digests_.fast_segments[plan_.first_segment[weight] + i] = record.fast_outputs[i];
      bytes += plan_.weights[weight]->outputs[i].bytes();
    }
    for (const auto& [entry, digest] : record.entries) digests_.entries[entry] = digest;
    digests_.non_finite[weight] = record.non_finite;
    digests_.taken_over += bytes;
    advance(bytes);
  }

  Status write_batch(size_t begin, size_t end) {
    open_.clear();
    first_open_ = begin;
    std::vector<Task> tasks;
    for (size_t f = begin; f < end; ++f) {
      const FilePlan& file = plan_.files[f];
      open_.push_back(FERRY_TRY(folder_.open(file.name)));
      if (!file.has_weights) tasks.push_back({f, {}, file.bytes});
      add_weights(f, tasks);
    }
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const Task& a, const Task& b) { return a.bytes > b.bytes; });
    TaskDealer dealer(hashed_tasks(tasks), pool_.size());
    FERRY_RETURN_IF_ERROR(run_all(pool_.size(), [&](size_t) { return perform(tasks, dealer); }));
    return run_all(end - begin, [&](size_t i) { return finish_file(begin + i); });
  }

  std::vector<HashedTask> hashed_tasks(std::span<const Task> tasks) const {
    std::vector<HashedTask> hashed;
    for (const Task& task : tasks) {
      hashed.push_back({task.bytes});
      if (task.weight.empty()) continue;
      const size_t weight = task.weight[0].index;
      if (is_whole_copy(*plan_.weights[weight], *plan_.source)) continue;
      hashed.back().streams = task.weight.size() + entries_hashed_by(weight).size();
    }
    return hashed;
  }

  void add_weights(size_t index, std::vector<Task>& tasks) const {
    const std::vector<Extent>& extents = plan_.files[index].extents;
    for (size_t begin = 0, end = 0; begin < extents.size(); begin = end) {
      uint64_t bytes = 0;
      for (; end < extents.size() && (end == begin || belong_together(extents, end)); ++end) {
        bytes += extents[end].bytes;
      }
      if (extents[begin].kind != Extent::Kind::kWeight || done_[extents[begin].index]) continue;
      tasks.push_back({index, std::span(extents).subspan(begin, end - begin), bytes});
    }
  }
  // Whether extents[i] and the one before are outputs of one weight.
  static bool belong_together(const std::vector<Extent>& extents, size_t i) {
    return extents[i].kind == Extent::Kind::kWeight && extents[i].output > 0;
  }

  // Calls body(i) for every i in parallel, and begins no call after an error. Returns the first
  // error.
  Status run_all(size_t count, const std::function<Status(size_t)>& body) {
    pool_.parallel_for(count, [&](size_t i) {
      if (stop_) return;
      if (Status status = body(i); !status) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::move(status).error();
        stop_ = true;
      }
    });
    if (error_) return Failure(*error_);
    return {};
  }

  OutputFile& open_file(size_t file) { return open_[file - first_open_]; }

  // The body of one thread: takes tasks until there are none, or another thread has failed.
  Status perform(std::span<const Task> tasks, TaskDealer& dealer) {
    HashQueue queue;
    const auto start = [&](size_t task) { return begin(tasks[task], queue); };
    const auto step = [&](size_t task, WeightJob& job) -> Result<bool> {
      if (!job.is_written()) advance(FERRY_TRY(job.write_tile()));
      if (!job.is_written()) return false;
      FERRY_RETURN_IF_ERROR(note(tasks[task], FERRY_TRY(job.finish())));
      return true;
    };
    return take_turns<WeightJob>(dealer, start, step, [&] { return stop_.load(); });
  }

  // Returns nullptr if an earlier run has done the task.
  Result<std::unique_ptr<WeightJob>> begin(const Task& task, HashQueue& queue) {
    if (task.weight.empty()) {
      FERRY_RETURN_IF_ERROR(write_plain(task.file));
      return std::unique_ptr<WeightJob>();
    }
    const FilePlan& file = plan_.files[task.file];
    return std::make_unique<WeightJob>(
        WeightToWrite{.plan = plan_,
                      .out = open_file(task.file),
                      .extents = task.weight,
                      .hashed = entries_hashed_by(task.weight[0].index),
                      // In a file whose digest is taken over its bytes, only the journal needs the
                      // digests of weights.
                      .digested = !file.plain_digest || stage_ != nullptr,
                      .summed = file.finishing != nullptr},
        queue);
  }

  void advance(uint64_t bytes) {
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    written_ += bytes;
    progress_(written_, total_);
  }

  Status note(const Task& task, const WrittenOutputs& written) {
    const size_t weight = task.weight[0].index;
    for (size_t i = 0; i < written.digests.size(); ++i) {
      digests_.segments[plan_.first_segment[weight] + i] = written.digests[i];
      digests_.fast_segments[plan_.first_segment[weight] + i] = written.fast[i];
    }
    for (const auto& [entry, digest] : written.entries) digests_.entries[entry] = digest;
    digests_.non_finite[weight] = written.non_finite;
    crcs_[weight] = written.crc;
    if (stage_ == nullptr || stop_) return {};
    return stage_->journal.append({.weight = weight,
                                   .outputs = written.digests,
                                   .entries = written.entries,
                                   .non_finite = written.non_finite},
                                  task.bytes);
  }

  // Calls body(offset, tile) over `bytes` bytes, `tile_bytes` at a time. The caller fills `tile`.
  template <class Body>
  Status for_each_tile(uint64_t bytes, uint64_t tile_bytes, const Body& body) {
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(tile_bytes, bytes));
    for (uint64_t offset = 0; offset < bytes && !stop_; offset += tile_bytes) {
      FERRY_RETURN_IF_ERROR(check_interrupt());
      const uint64_t size = std::min(tile_bytes, bytes - offset);
      FERRY_RETURN_IF_ERROR(body(offset, std::span(buffer.get(), size)));
      advance(size);
    }
    return {};
  }

  Status write_plain(size_t index) {
    const FilePlan& file = plan_.files[index];
    PlainFile out(open_file(index));
    for (const Extent& extent : file.extents) {
      out.skip_to(extent.offset);
      FERRY_RETURN_IF_ERROR(write_extent(file, extent, out));
    }
    out.skip_to(file.bytes);
    set_digest(index, out.finish());
    return {};
  }

  Status write_extent(const FilePlan& file, const Extent& extent, PlainFile& out) {
    switch (extent.kind) {
      case Extent::Kind::kHead:
        advance(extent.bytes);
        return out.append(file.head);
      case Extent::Kind::kLiteral:
        return for_each_tile(extent.bytes, kWrittenTileBytes,
                             [&](uint64_t offset, std::span<std::byte> tile) -> Status {
                               file.literals[extent.index]->fill(offset, tile);
                               return out.append(tile);
                             });
      case Extent::Kind::kBlob:
        advance(extent.bytes);
        return out.append(file.blobs[extent.index]);
      case Extent::Kind::kCopy:
        return for_each_tile(
            extent.bytes, kWrittenTileBytes,
            [&](uint64_t offset, std::span<std::byte> tile) -> Status {
              FERRY_RETURN_IF_ERROR(plan_.copied[extent.index]->read_at(offset, tile));
              return out.append(tile);
            });
      case Extent::Kind::kWeight:
        break;  // only data files have weights
    }
    return {};
  }

  Status finish_file(size_t index) {
    const FilePlan& file = plan_.files[index];
    OutputFile& out = open_file(index);
    if (file.has_weights) {
      FERRY_RETURN_IF_ERROR(write_known(file, out));
      if (file.plain_digest) {
        set_digest(index, FERRY_TRY(digest_of_written(file, out)));
      } else {
        set_digest(index, FERRY_TRY(digest_data_file(file)));
      }
    }
    Status synced = out.sync_and_close();
    if (!synced && stage_ != nullptr) stage_->sync_failed = true;
    return synced;
  }

  // Writes the extents of a file with weights that are not weights.
  Status write_known(const FilePlan& file, const OutputFile& out) {
    for (const Extent& extent : file.extents) {
      if (extent.kind == Extent::Kind::kWeight) continue;
      if (extent.kind == Extent::Kind::kLiteral) {
        FERRY_RETURN_IF_ERROR(write_literal(*file.literals[extent.index], extent, out));
        continue;
      }
      const bool head = extent.kind == Extent::Kind::kHead;
      FERRY_RETURN_IF_ERROR(
          out.write_at(extent.offset, head ? std::span(file.head) : file.blobs[extent.index]));
      advance(extent.bytes);
    }
    if (!file.finishing) return {};
    std::vector<uint32_t> crcs;
    for (const Extent& extent : file.extents) {
      if (extent.kind != Extent::Kind::kWeight) continue;
      if (done_[extent.index]) crcs_[extent.index] = FERRY_TRY(crc_of_written(extent, out));
      crcs.push_back(crcs_[extent.index]);
    }
    for (const FileBytes& bytes : file.finishing(crcs)) {
      FERRY_RETURN_IF_ERROR(out.write_at(bytes.offset, bytes.bytes));
    }
    return {};
  }

  Status write_literal(const graph::Literal& literal, const Extent& extent, const OutputFile& out) {
    return for_each_tile(extent.bytes, kWrittenTileBytes,
                         [&](uint64_t offset, std::span<std::byte> tile) -> Status {
                           literal.fill(offset, tile);
                           return out.write_at(extent.offset + offset, tile);
                         });
  }

  // Calls body(tile) over bytes that have been written.
  template <class Body>
  Status read_back(const OutputFile& out, uint64_t offset, uint64_t bytes, const Body& body) {
    const auto buffer =
        std::make_unique_for_overwrite<std::byte[]>(std::min(kWrittenTileBytes, bytes));
    for (uint64_t at = 0; at < bytes && !stop_; at += kWrittenTileBytes) {
      FERRY_RETURN_IF_ERROR(check_interrupt());
      const std::span<std::byte> tile(buffer.get(), std::min(kWrittenTileBytes, bytes - at));
      FERRY_RETURN_IF_ERROR(out.read_at(offset + at, tile));
      body(tile);
    }
    return {};
  }

  Result<uint32_t> crc_of_written(const Extent& extent, const OutputFile& out) {
    uint32_t crc = 0;
    FERRY_RETURN_IF_ERROR(
        read_back(out, extent.offset, extent.bytes,
                  [&](std::span<const std::byte> tile) { crc = crc32_of(crc, tile); }));
    return crc;
  }

  Result<FileDigest> digest_of_written(const FilePlan& file, const OutputFile& out) {
    Sha256 hash;
    FastHash fast;
    FERRY_RETURN_IF_ERROR(read_back(out, 0, file.bytes, [&](std::span<const std::byte> tile) {
      hash.update(tile);
      if (plan_.fast_digests) fast.update(tile);
    }));
    return FileDigest{hash.finish(), fast.finish()};
  }

  void set_digest(size_t file, const FileDigest& digest) {
    digests_.files[file] = digest.sha256;
    digests_.fast_files[file] = digest.fast;
  }

  Result<FileDigest> digest_data_file(const FilePlan& file) const {
    std::vector<HashedSegment> segments;
    for (const Extent& extent : file.extents) {
      if (extent.kind != Extent::Kind::kWeight || extent.bytes == 0) continue;
      const size_t number = plan_.first_segment[extent.index] + extent.output;
      segments.push_back(
          {extent.offset, extent.bytes, digests_.segments[number], digests_.fast_segments[number]});
    }
    return digest_of_segments(file.bytes, segments,
                              [&](uint64_t offset, std::span<std::byte> out) -> Status {
                                for (std::byte& b : out) {
                                  b = offset < file.head.size() ? file.head[offset] : std::byte{0};
                                  ++offset;
                                }
                                return {};
                              });
  }

  const FileSet& plan_;
  const OutputFolder folder_;
  ResumableStage* stage_;
  ThreadPool& pool_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  std::vector<size_t> hashed_by_;  // source entry -> weight whose task hashes it
  std::vector<bool> done_;         // by weight: an earlier run has written it
  std::vector<uint32_t> crcs_;     // by weight, if the file needs them
  FileDigests digests_;            // tasks write disjoint elements
  std::vector<OutputFile> open_;   // files of the current batch
  size_t first_open_ = 0;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards the members below
  std::optional<Error> error_;
  uint64_t written_ = 0, total_ = 0;
};

}  // namespace

Result<FileDigests> write_files(const FileSet& plan, const OutputFolder& folder,
                                ResumableStage* stage, ThreadPool& pool,
                                const std::function<void(uint64_t, uint64_t)>& progress) {
  return FileWriter(plan, folder, stage, pool, progress).run();
}

}  // namespace ferry::packer
