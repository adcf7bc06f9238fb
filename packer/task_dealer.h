// TaskDealer and HashQueue: a thread works on several tasks in turn, so that it hashes their bytes
// together. Private to packer/.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/sha256.h"

namespace ferry::packer {

// Computes SHA-256 of several streams that one thread hashes at a time. Bytes wait in the queue
// until one of the streams must be finished. As many streams as help are then hashed together. For
// use by one thread.
class HashQueue {
 public:
  // Adds the next bytes of a stream. `data` and `hash` must not change until settle(hash).
  void add(Sha256& hash, std::span<const std::byte> data) {
    settle(hash);
    if (!data.empty()) waiting_.push_back({&hash, data});
  }
  // Hashes all bytes of the stream that are in the queue.
  void settle(Sha256& hash) {
    const auto is_wanted = [&](const Sha256Update& update) { return update.hash == &hash; };
    for (;;) {
      const auto wanted = std::ranges::find_if(waiting_, is_wanted);
      if (wanted == waiting_.end()) return;
      // The other streams that are hashed have waited longest.
      std::rotate(waiting_.begin(), wanted, wanted + 1);
      update_together(waiting_);
      std::erase_if(waiting_, [](const Sha256Update& update) { return update.data.empty(); });
    }
  }

 private:
  std::vector<Sha256Update> waiting_;
};

struct HashedTask {
  uint64_t bytes = 0;
  size_t streams = 1;  // SHA-256 streams that the task needs
};

// Deals tasks to threads in order. The longest tasks should come first.
class TaskDealer {
 public:
  TaskDealer(std::vector<HashedTask> tasks, size_t threads)
      : tasks_(std::move(tasks)),
        width_(std::min(sha256_width(), std::max(kPair, kMostStreams / threads))) {
    long_.resize(tasks_.size());
    uint64_t left = 0;
    for (size_t i = tasks_.size(); i-- > 0;) {
      long_[i] = width_ > kPair && tasks_[i].bytes > std::max(kShort, left / threads / width_);
      left += tasks_[i].bytes;
    }
  }

  // Returns the next task for a thread whose unfinished tasks are `open`. nullopt if the thread has
  // enough tasks, or if none is left. A thread without tasks gets one as long as any is left.
  std::optional<size_t> take(std::span<const size_t> open) {
    size_t next = next_.load();
    while (next < tasks_.size() && has_room(open, next)) {
      if (next_.compare_exchange_weak(next, next + 1)) return next;
    }
    return std::nullopt;
  }

 private:
  static constexpr size_t kPair = 2;
  // The most streams of all threads together; each has a buffer of about 256 KiB.
  static constexpr size_t kMostStreams = 256;
  // A task of at most this size does not keep other threads waiting.
  static constexpr uint64_t kShort = uint64_t{1} << 22;

  // More than two long streams at once are slow. A task that would be the last one to end is worked
  // on alone, or together with another long one.
  bool has_room(std::span<const size_t> open, size_t next) const {
    if (open.empty()) return true;
    size_t streams = tasks_[next].streams;
    for (const size_t task : open) {
      if (long_[task] != long_[next]) return false;
      streams += tasks_[task].streams;
    }
    return streams <= (long_[next] ? std::min(kPair, width_) : width_);
  }

  std::vector<HashedTask> tasks_;
  size_t width_;  // streams per thread
  std::vector<bool> long_;
  std::atomic<size_t> next_{0};
};

// The body of one thread: begins tasks as long as there is room for them, and does a step of each
// in turn until it has ended. begin(task) returns a job, or nullptr if the task is done already.
// step(task, job) tells whether the job has ended, and the job is then destroyed. An error of
// either ends the loop, and so does stopped().
template <class Job, class Begin, class Step, class Stopped>
Status take_turns(TaskDealer& dealer, const Begin& begin, const Step& step,
                  const Stopped& stopped) {
  std::vector<size_t> open;
  std::vector<std::unique_ptr<Job>> jobs;  // jobs of the tasks in `open`
  while (!stopped()) {
    for (std::optional<size_t> next; !stopped() && (next = dealer.take(open));) {
      std::unique_ptr<Job> job = FERRY_TRY(begin(*next));
      if (job == nullptr) continue;
      open.push_back(*next);
      jobs.push_back(std::move(job));
    }
    if (open.empty()) return {};
    for (size_t i = open.size(); i-- > 0 && !stopped();) {
      if (!FERRY_TRY(step(open[i], *jobs[i]))) continue;
      open.erase(open.begin() + static_cast<ptrdiff_t>(i));
      jobs.erase(jobs.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return {};
}

}  // namespace ferry::packer
