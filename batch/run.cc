#include "batch/run.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "batch/attempt.h"
#include "batch/claim.h"
#include "batch/judge.h"
#include "core/interrupt.h"

namespace ferry::batch {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = TaskEnd::Kind;
using namespace std::chrono_literals;

constexpr auto kLongestPause = 60'000ms;
constexpr auto kLongestLook = 5'000ms;  // longest pause before another try to get a lease

// A task that waits for a worker.
struct Turn {
  size_t place = 0;  // index into RunEnd::tasks
  Clock::time_point not_before = {};
  int64_t tries = 0;  // number of failed attempts
  int64_t looks = 0;  // number of times that another process had the lease
};

// Hands out turns in order, and skips turns whose `not_before` is in the future.
class Queue {
 public:
  explicit Queue(size_t count) : left_(count) {
    for (size_t place = 0; place < count; ++place) turns_.push_back({.place = place});
  }
  // Waits for the next turn. Returns nullopt once all tasks have ended, or a signal asks to stop.
  std::optional<Turn> next() {
    std::unique_lock lock(mutex_);
    while (left_ > 0 && !stopped_ && interrupt_signal() == 0) {
      const Clock::time_point now = Clock::now();
      const auto due =
          std::ranges::find_if(turns_, [&](const Turn& turn) { return turn.not_before <= now; });
      if (due != turns_.end()) {
        const Turn turn = *due;
        turns_.erase(due);
        return turn;
      }
      changed_.wait_for(lock, 50ms);
    }
    return std::nullopt;
  }
  void give_back(const Turn& turn) {
    const std::scoped_lock lock(mutex_);
    turns_.push_back(turn);
  }
  void finish() {
    const std::scoped_lock lock(mutex_);
    --left_;
    changed_.notify_all();
  }
  // Hands out no more turns.
  void stop() {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Turn> turns_;
  size_t left_;  // number of tasks that have not ended
  bool stopped_ = false;
};

std::chrono::milliseconds doubled(std::chrono::milliseconds first, int64_t times,
                                  std::chrono::milliseconds most) {
  constexpr int64_t kMostDoublings = 20;
  return std::min(first * (int64_t{1} << std::min(times, kMostDoublings)), most);
}

class Runner {
 public:
  Runner(const Plan& plan, std::span<const size_t> indices, const State& state,
         const RunOptions& options, const std::function<void(const TaskEnd&)>& report)
      : plan_(plan),
        state_(state),
        options_(options),
        report_(report),
        queue_(indices.size()),
        ends_(indices.size()) {
    for (size_t place = 0; place < indices.size(); ++place) ends_[place].index = indices[place];
    attempt_.program = options.program;
    attempt_.threads = std::max<size_t>(1, options.threads / workers());
  }

  Result<RunEnd> run();

 private:
  size_t workers() const {
    return std::clamp<size_t>(options_.workers, 1, std::max<size_t>(1, ends_.size()));
  }
  void work();
  Status take_turn(Turn turn);
  Status attempt(Turn turn, const Evaluation& evaluation, std::optional<Claim> claim);
  bool settle(size_t place, const Evaluation& evaluation);
  void stop_for(const std::string& message);
  void end(size_t place, Kind kind, AttemptResult result);
  Evaluation look_at(const Task& task) const {
    return evaluate(task, state_, options_.evaluate, check_interrupt);
  }

  const Plan& plan_;
  const State& state_;
  const RunOptions& options_;
  const std::function<void(const TaskEnd&)>& report_;
  AttemptOptions attempt_;
  Queue queue_;
  std::mutex mutex_;  // guards ends_, problem_ and calls of report_
  std::vector<TaskEnd> ends_;
  std::optional<Error> problem_;
  std::string full_disk_;
};

void Runner::stop_for(const std::string& message) {
  const std::scoped_lock lock(mutex_);
  if (full_disk_.empty()) full_disk_ = message;
  queue_.stop();
}

void Runner::end(size_t place, Kind kind, AttemptResult result) {
  {
    const std::scoped_lock lock(mutex_);
    ends_[place].kind = kind;
    ends_[place].result = std::move(result);
    if (report_) report_(ends_[place]);
  }
  queue_.finish();
}

// Ends the task and returns true if no attempt is needed.
bool Runner::settle(size_t place, const Evaluation& evaluation) {
  const bool up_to_date = evaluation.verdict == Evaluation::Verdict::kUpToDate;
  if (!up_to_date && evaluation.verdict != Evaluation::Verdict::kFailedBefore) return false;
  end(place, up_to_date ? Kind::kUpToDate : Kind::kFailedBefore, *evaluation.recorded);
  return true;
}

// Makes an attempt, unless none is needed or another process has a lease on the task.
Status Runner::take_turn(Turn turn) {
  const Task& task = plan_.tasks[ends_[turn.place].index];
  Evaluation evaluation = look_at(task);
  if (settle(turn.place, evaluation)) return {};
  if (!options_.leases) return attempt(turn, evaluation, std::nullopt);
  std::optional<Claim> claim = FERRY_TRY(Claim::take(state_.claims(), task.id, options_.lease));
  if (!claim && !options_.wait) {
    end(turn.place, Kind::kElsewhere, {});
    return {};
  }
  if (!claim) {
    turn.not_before = Clock::now() + doubled(250ms, turn.looks++, kLongestLook);
    queue_.give_back(turn);
    return {};
  }
  // Another process may have done the task before this one got the lease.
  evaluation = look_at(task);
  if (settle(turn.place, evaluation)) return {};
  return attempt(turn, evaluation, std::move(claim));
}

Status Runner::attempt(Turn turn, const Evaluation& evaluation, std::optional<Claim> claim) {
  if (interrupt_signal() != 0) return {};  // the task stays kNotBegun
  AttemptOptions options = attempt_;
  if (claim) options.keep_lease = [&claim] { return claim->keep(); };
  const Task& task = plan_.tasks[ends_[turn.place].index];
  AttemptResult result = FERRY_TRY(make_attempt(task, evaluation, state_, options));
  claim.reset();
  const bool again = result.transient && turn.tries < options_.retries && interrupt_signal() == 0;
  // The next task would find the disk full too, so that all of them would be tried in vain.
  if (!again && result.transient && is_full_disk(result.message)) stop_for(result.message);
  if (!again) {
    end(turn.place, Kind::kAttempted, std::move(result));
    return {};
  }
  turn.not_before = Clock::now() + doubled(options_.first_pause, turn.tries++, kLongestPause);
  queue_.give_back(turn);
  return {};
}

void Runner::work() {
  while (const std::optional<Turn> turn = queue_.next()) {
    const Status done = take_turn(*turn);
    if (done) continue;
    // The state folder cannot be written. The task has no record, so the run ends with an error.
    if (is_full_disk(done.error().message)) {
      stop_for(done.error().message);
      continue;
    }
    const std::scoped_lock lock(mutex_);
    if (!problem_) problem_ = done.error();
    queue_.finish();
  }
}

Result<RunEnd> Runner::run() {
  FERRY_RETURN_IF_ERROR(state_.prepare());
  if (options_.leases) FERRY_RETURN_IF_ERROR(sweep_claims(state_.claims(), options_.lease));
  std::vector<std::thread> others;
  for (size_t i = 1; i < workers(); ++i) others.emplace_back([this] { work(); });
  work();
  for (std::thread& other : others) other.join();
  if (problem_) return Failure(*problem_);
  RunEnd end{.tasks = std::move(ends_),
             .interrupted = interrupt_signal() != 0,
             .full_disk = std::move(full_disk_)};
  for (const TaskEnd& task : end.tasks) end.exit = worse_exit(end.exit, exit_of(task));
  if (!end.full_disk.empty()) end.exit = kFullDiskExit;
  return end;
}

}  // namespace

int exit_of(const TaskEnd& end) {
  switch (end.kind) {
    case Kind::kUpToDate:
      return 0;
    case Kind::kElsewhere:
    case Kind::kNotBegun:
      return kTransientExit;
    case Kind::kAttempted:
    case Kind::kFailedBefore:
      break;
  }
  return end.result.exit;
}

int worse_exit(int a, int b) {
  // Sorted from good to bad. Other codes, those of crashed processes, are worse. kTransientExit is
  // the worst, because it says that another run may help.
  constexpr std::array<int, 8> kOrder = {0, 1, 4, 3, 2, 6, 5, 70};
  const auto rank = [&](int code) {
    if (code == kTransientExit) return kOrder.size() + 1;
    return static_cast<size_t>(std::ranges::find(kOrder, code) - kOrder.begin());
  };
  return rank(a) >= rank(b) ? a : b;
}

Result<RunEnd> run_tasks(const Plan& plan, std::span<const size_t> indices, const State& state,
                         const RunOptions& options,
                         const std::function<void(const TaskEnd&)>& report) {
  return Runner(plan, indices, state, options, report).run();
}

}  // namespace ferry::batch
