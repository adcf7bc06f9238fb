// TaskDealer: which tasks a thread works on by turns, so that it hashes their bytes together.
// Private to packer/.
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

struct HashedTask {
  uint64_t bytes = 0;
  size_t streams = 1;  // computations of SHA-256 that it needs
};

// Deals tasks to threads in their order, which should be the longest first.
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

  // The next task for a thread that has not ended `open`; nothing where it has enough, or there is
  // none. A thread without any gets one as long as there are some.
  std::optional<size_t> take(std::span<const size_t> open) {
    size_t next = next_.load();
    while (next < tasks_.size() && has_room(open, next)) {
      if (next_.compare_exchange_weak(next, next + 1)) return next;
    }
    return std::nullopt;
  }

 private:
  static constexpr size_t kPair = 2;
  // The streams of all threads together: each has a buffer of some 256 KiB.
  static constexpr size_t kMostStreams = 256;
  // So little does not keep other threads waiting.
  static constexpr uint64_t kShort = uint64_t{1} << 22;

  // More than two streams at once are slow. A task that would be the last one to end then
  // is worked on alone, or with another one of the kind.
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
  size_t width_;  // streams of a thread
  std::vector<bool> long_;
  std::atomic<size_t> next_{0};
};

// Runs in one thread: begins tasks as long as there is room for them, and does a step of each by
// turns until it has ended. begin(task) gives a job, or nullptr where the task is done already;
// step(task, job) says whether the job has ended, which destroys it. An error of either ends all,
// as stopped() does.
template <class Job, class Begin, class Step, class Stopped>
Status take_turns(TaskDealer& dealer, const Begin& begin, const Step& step,
                  const Stopped& stopped) {
  std::vector<size_t> open;
  std::vector<std::unique_ptr<Job>> jobs;  // of `open`
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
