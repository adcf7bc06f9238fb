#include "core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/interrupt.h"

namespace ferry {
namespace {

// A decode step makes hundreds of short jobs with short pauses between them. Spinning over a pause
// is cheaper than a sleep and a wake-up, which cost about as much as a job.
constexpr std::chrono::microseconds kSpin(50);
constexpr size_t kCacheLine = 64;
constexpr size_t kMaxItems = UINT32_MAX;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins while `value` equals `old`, at most kSpin, then sleeps until it differs.
void wait_while(const std::atomic<uint32_t>& value, uint32_t old, bool spin) {
  if (spin) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        relax();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

// The items of a job that nobody has claimed yet, of those that one thread got: [next, end). The
// thread takes the first, and others that have nothing left take the last, so that each thread
// reads memory in one stream. With items taken one by one from a common list, products of matrices
// that fit no cache took up to 1.5 times as long, because each item began a stream anew.
class Share {
 public:
  void fill(uint32_t next, uint32_t end) {
    range_.store(range(next, end), std::memory_order_release);
  }
  // Returns false if there is none.
  bool take_first(uint32_t& item) { return take(1, 0, item); }
  bool take_last(uint32_t& item) { return take(0, 1, item); }

 private:
  static uint64_t range(uint32_t next, uint32_t end) { return uint64_t{next} << 32 | end; }

  bool take(uint32_t front, uint32_t back, uint32_t& item) {
    uint64_t seen = range_.load(std::memory_order_acquire);
    while (true) {
      const auto next = static_cast<uint32_t>(seen >> 32), end = static_cast<uint32_t>(seen);
      if (next == end) return false;
      item = front != 0 ? next : end - 1;
      if (range_.compare_exchange_weak(seen, range(next + front, end - back),
                                       std::memory_order_acq_rel, std::memory_order_acquire)) {
        return true;
      }
    }
  }

  std::atomic<uint64_t> range_{0};
};

// A job is done when its items are done; a thread that slept through the job is not waited for.
// That is safe because a thread looks at `body`, `begin` and the like only after it has claimed an
// item, and the job cannot end, nor the next job begin, before that item is done. A claim that a
// thread began in one job and ends in a later one takes an item of the later one.
struct ThreadPool::Impl {
  std::vector<Share> shares;  // of the calling thread and of each worker
  alignas(kCacheLine) std::atomic<uint32_t> unfinished{0};
  alignas(kCacheLine) std::atomic<uint32_t> signal{0};  // changes with every job
  std::atomic<bool> stop{false};
  alignas(kCacheLine) const std::function<void(size_t)>* body = nullptr;
  const std::atomic<int>* interrupt = nullptr;  // see InterruptScope
  size_t begin = 0;
  bool spin = false;
  std::vector<std::thread> workers;
  // Once an item of the current job has thrown, the remaining items are counted but not run.
  std::atomic<bool> failed{false};
  std::mutex failure_mutex;
  std::exception_ptr failure;  // the first exception, guarded by failure_mutex

  ~Impl() { end_workers(); }

  // Returns true if all `wanted` threads run. If the system refuses one, all of them are ended.
  bool start_workers(size_t wanted) {
    try {
      workers.reserve(wanted);
      shares = std::vector<Share>(wanted + 1);
      while (workers.size() < wanted) {
        workers.emplace_back([this, thread = workers.size() + 1] { loop(thread); });
      }
      return true;
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
    end_workers();
    return false;
  }

  void end_workers() {
    stop.store(true, std::memory_order_release);
    announce();
    for (std::thread& worker : workers) worker.join();
    workers.clear();
    stop.store(false, std::memory_order_relaxed);
  }

  void run_item(size_t index) noexcept {
    if (failed.load(std::memory_order_relaxed)) return;
    const InterruptScope scope(interrupt);
    try {
      (*body)(index);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
  }

  bool claim(size_t thread, uint32_t& item) {
    if (shares[thread].take_first(item)) return true;
    for (size_t i = 1; i < shares.size(); ++i) {
      if (shares[(thread + i) % shares.size()].take_last(item)) return true;
    }
    return false;
  }

  void work(size_t thread) {
    for (uint32_t item; claim(thread, item);) {
      run_item(begin + item);
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
    }
  }

  void loop(size_t thread) {
    uint32_t seen = 0;
    while (true) {
      wait_while(signal, seen, spin);
      // In this order: an end that is announced behind both changes the signal once more.
      seen = signal.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      work(thread);
    }
  }

  void announce() {
    signal.fetch_add(1, std::memory_order_acq_rel);
    signal.notify_all();
  }

  void run(size_t first, uint32_t items, const std::function<void(size_t)>& function) {
    body = &function;
    interrupt = InterruptScope::current();
    begin = first;
    unfinished.store(items, std::memory_order_relaxed);
    const auto before = [&](size_t thread) {
      return static_cast<uint32_t>(uint64_t{items} * thread / shares.size());
    };
    for (size_t i = 0; i < shares.size(); ++i) shares[i].fill(before(i), before(i + 1));
    announce();
    work(0);
    while (uint32_t left = unfinished.load(std::memory_order_acquire)) {
      wait_while(unfinished, left, spin);
    }
    if (failed.load(std::memory_order_relaxed)) rethrow();
  }

  [[noreturn]] void rethrow() {
    failed.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(failure, nullptr));
  }
};

ThreadPool::ThreadPool(size_t threads) : impl_(std::make_unique<Impl>()) {
  // With more threads than processors, a spinning thread would keep a working one from running.
  impl_->spin = threads <= hardware_threads();
  // After a refusal half as many threads are tried, not as many as could be started: the work needs
  // some of the resources itself.
  for (size_t extra = threads - 1; extra > 0 && !impl_->start_workers(extra);) extra /= 2;
}

ThreadPool::~ThreadPool() = default;

size_t ThreadPool::size() const { return impl_->workers.size() + 1; }

void ThreadPool::parallel_for(size_t count, const std::function<void(size_t)>& body) {
  if (impl_->workers.empty() || count <= 1) {
    for (size_t i = 0; i < count; ++i) body(i);
    return;
  }
  for (size_t begin = 0; begin < count; begin += kMaxItems) {
    impl_->run(begin, static_cast<uint32_t>(std::min(count - begin, kMaxItems)), body);
  }
}

size_t ThreadPool::hardware_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    return std::max<size_t>(1, static_cast<size_t>(CPU_COUNT(&set)));
  }
  return std::max<size_t>(1, std::thread::hardware_concurrency());
}

}  // namespace ferry
