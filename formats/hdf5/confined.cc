#include "formats/hdf5/confined.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "core/file.h"

namespace ferry::hdf5 {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FERRY_HDF5_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(undefined_behavior_sanitizer)
#define FERRY_HDF5_SANITIZED 1
#endif
#endif
#ifdef FERRY_HDF5_SANITIZED
constexpr bool kSanitized = true;  // sanitizers are slow and reserve vast address space
#else
constexpr bool kSanitized = false;
#endif

using Clock = std::chrono::steady_clock;

// Exit statuses of the child. Any other status comes from a sanitizer.
enum ChildExit : int { kDone = 0, kNotConfined = 101, kNoMemory = 102, kThrew = 103 };

// The wall-clock limit. It is long, because on a busy machine the child may have a tenth of a
// processor.
std::chrono::milliseconds wall_limit(const ConfinedLimits& limits) {
  return std::chrono::milliseconds(10'000 + 10 * limits.cpu_milliseconds);
}

// -- the child

bool limit_to(int resource, uint64_t value) {
  const rlimit limit{value, value};
  return ::setrlimit(resource, &limit) == 0;
}

uint64_t address_space_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

bool set_limits(const ConfinedLimits& limits) {
  for (const int resource : {RLIMIT_CORE, RLIMIT_FSIZE}) {
    if (!limit_to(resource, 0)) return false;
  }
  if (kSanitized) return true;
  const uint64_t used = address_space_bytes();
  if (used == 0 || !limit_to(RLIMIT_AS, used + limits.memory_bytes)) return false;
  // The timer is the effective limit. RLIMIT_CPU, which counts whole seconds of the child alone, is
  // a second limit behind it.
  if (!limit_to(RLIMIT_CPU, 2 + limits.cpu_milliseconds / 1000)) return false;
  itimerval timer{};
  timer.it_value.tv_sec = static_cast<time_t>(limits.cpu_milliseconds / 1000);
  timer.it_value.tv_usec = static_cast<suseconds_t>(limits.cpu_milliseconds % 1000 * 1000);
  return ::setitimer(ITIMER_PROF, &timer, nullptr) == 0;
}

// After this call, a system call that is not listed fails with EPERM. So does a read from a
// descriptor other than `in`, and a write to one other than `out`.
bool enter_filter(int in, int out) {
  scmp_filter_ctx filter = ::seccomp_init(SCMP_ACT_ERRNO(EPERM));
  if (filter == nullptr) return false;
  bool ok = true;
  const auto allow = [&](int call) {
    ok = ok && ::seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0) == 0;
  };
  const auto allow_on = [&](int call, int fd) {
    const scmp_arg_cmp first = {0, SCMP_CMP_EQ, static_cast<scmp_datum_t>(fd), 0};
    ok = ok && ::seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, call, 1, &first) == 0;
  };
  allow_on(SCMP_SYS(pread64), in);
  if (kSanitized) {
    // Sanitizers write reports, and use pipes to find out whether memory can be read.
    for (const int call :
         {SCMP_SYS(write), SCMP_SYS(pipe), SCMP_SYS(pipe2), SCMP_SYS(read), SCMP_SYS(close)}) {
      allow(call);
    }
  } else {
    allow_on(SCMP_SYS(write), out);
  }
  for (const int call :
       {SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(mprotect), SCMP_SYS(madvise),
        SCMP_SYS(futex), SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(getpid),
        SCMP_SYS(gettid), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigreturn),
        SCMP_SYS(sigaltstack), SCMP_SYS(sched_yield), SCMP_SYS(restart_syscall), SCMP_SYS(exit),
        SCMP_SYS(exit_group)}) {
    allow(call);
  }
  // Only private memory may be mapped, because other descriptors of the parent are still open here.
  const scmp_arg_cmp anonymous = {3, SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS};
  ok = ok && ::seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, &anonymous) == 0;
  ok = ok && ::seccomp_load(filter) == 0;  // sets no_new_privs
  ::seccomp_release(filter);
  return ok;
}

bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<size_t>(wrote);
  }
  return true;
}

// Appends the trailer that every answer has. It shows that the answer is complete if the exit
// status is unavailable.
std::string with_trailer(std::string answer) {
  const uint64_t size = answer.size();
  answer.append(reinterpret_cast<const char*>(&size), sizeof size);
  return answer;
}

// Removes the trailer. Returns false if the answer is incomplete.
bool take_trailer(std::string& answer) {
  uint64_t size = 0;
  if (answer.size() < sizeof size) return false;
  const size_t at = answer.size() - sizeof size;
  std::memcpy(&size, answer.data() + at, sizeof size);
  answer.resize(at);
  return size == at;
}

// -- the parent

enum class ReadEnd { kComplete, kTooLong, kTimedOut, kFailed };

ReadEnd read_answer(int fd, const ConfinedLimits& limits, std::string& answer) {
  const auto deadline = Clock::now() + wall_limit(limits);
  std::array<char, 16384> buffer;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return ReadEnd::kTimedOut;
    pollfd ready{fd, POLLIN, 0};
    const int events = ::poll(&ready, 1, static_cast<int>(left.count()));
    if (events == 0) return ReadEnd::kTimedOut;
    const ssize_t got = events < 0 ? -1 : ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ReadEnd::kFailed;
    if (got == 0) return ReadEnd::kComplete;
    if (answer.size() + static_cast<size_t>(got) > limits.answer_bytes + sizeof(uint64_t)) {
      return ReadEnd::kTooLong;
    }
    answer.append(buffer.data(), static_cast<size_t>(got));
  }
}

Status judge_end(const std::string& name, int status, const ConfinedLimits& limits) {
  const auto bad = [&](std::string_view what) -> Status {
    return bad_input(fmt::format("{}: the HDF5 library {}", name, what));
  };
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    if (number == SIGPROF || number == SIGXCPU) {
      return bad(fmt::format("took more than {} ms to walk the file", limits.cpu_milliseconds));
    }
    return bad(fmt::format("crashed on the file (signal {})", number));
  }
  switch (WEXITSTATUS(status)) {
    case kDone:
      return {};
    case kNotConfined:
      return fail(
          ErrorCode::kIo,
          fmt::format("{}: HDF5 is not supported on this system: it cannot confine the reader",
                      name));
    case kExitCannotRead:
      return fail(ErrorCode::kIo, fmt::format("{}: cannot be read", name));
    case kNoMemory:
      return bad(fmt::format("needs more than {} bytes of memory", limits.memory_bytes));
    default:
      return bad("failed on the file");
  }
}

// Returns the exit status of the child, or nullopt if the program ignores SIGCHLD, because the
// system then keeps no status.
std::optional<int> wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  return status;
}

}  // namespace

void run_confined(int in, int out, const ConfinedLimits& limits, const ConfinedWork& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent's signal handlers must not run in the child. Those of a sanitizer stay, because they
  // print its report.
  for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGPROF, SIGXCPU}) {
    ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  int status = kThrew;
  try {
    work.prepare();
    status = kNotConfined;
    if (set_limits(limits) && enter_filter(in, out)) {
      status = kThrew;
      if (write_all(out, with_trailer(work.work()))) status = kDone;
    }
  } catch (const std::bad_alloc&) {
    status = kNoMemory;
  } catch (...) {
  }
  ::_exit(status);
}

StartChild fork_confined(int in, const ConfinedLimits& limits, const ConfinedWork& work) {
  return [in, limits, work](int out) {
    const pid_t child = ::fork();
    if (child == 0) run_confined(in, out, limits, work);
    return child;
  };
}

Result<std::string> call_confined(const std::string& name, const ConfinedLimits& limits,
                                  const StartChild& start) {
  const auto system_error = [&](std::string_view what) {
    const std::string reason = std::strerror(errno);
    return fail(ErrorCode::kIo,
                fmt::format("{}: cannot {} the HDF5 reader: {}", name, what, reason));
  };
  UniqueFd answers;
  pid_t child = -1;
  {
    // Children are started one at a time, so that no child inherits the write end of another's
    // pipe. The answer ends when the last write end is closed.
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    std::array<int, 2> ends = {};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("connect to");
    answers = UniqueFd(ends[0]);
    const UniqueFd write_end(ends[1]);
    child = start(write_end.get());
    if (child < 0) return system_error("start");
  }

  std::string answer;
  const ReadEnd end = read_answer(answers.get(), limits, answer);
  if (end != ReadEnd::kComplete) ::kill(child, SIGKILL);
  const std::optional<int> status = wait_for(child);
  switch (end) {
    case ReadEnd::kTimedOut:
      return bad_input(fmt::format("{}: the HDF5 library did not answer for {} ms", name,
                                   wall_limit(limits).count()));
    case ReadEnd::kTooLong:
      return bad_input(
          fmt::format("{}: its description has more than {} bytes", name, limits.answer_bytes));
    case ReadEnd::kFailed:
      return fail(ErrorCode::kIo, fmt::format("{}: no answer from the HDF5 reader", name));
    case ReadEnd::kComplete:
      break;
  }
  if (status) FERRY_RETURN_IF_ERROR(judge_end(name, *status, limits));
  if (!take_trailer(answer)) {
    return bad_input(fmt::format("{}: the HDF5 library failed on the file", name));
  }
  return answer;
}

}  // namespace ferry::hdf5
