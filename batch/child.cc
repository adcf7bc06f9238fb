#include "batch/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "core/file.h"
#include "core/result.h"

namespace ferry::batch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGrace = std::chrono::seconds(4);
constexpr int kPollMilliseconds = 50;
constexpr int kNoStart = 127;

// Everything that the child needs is made before the fork, because a program with threads may make
// only async-signal-safe calls between fork and exec.
struct Launch {
  const char* program;
  char* const* argv;
  int in, out, log;
  pid_t parent;
};

[[noreturn]] void become(const Launch& launch) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != launch.parent) ::_exit(kNoStart);  // the parent died before prctl()
  ::dup2(launch.in, STDIN_FILENO);
  ::dup2(launch.out, STDOUT_FILENO);
  ::dup2(launch.log, STDERR_FILENO);
  ::execv(launch.program, launch.argv);
  ::_exit(kNoStart);
}

std::vector<char*> argv_of(std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return argv;
}

Result<pid_t> start(const ChildCommand& command) {
  const UniqueFd in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (in.get() < 0) return os_error("/dev/null", "cannot open", errno);
  constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const UniqueFd out(::open(command.out_path.c_str(), kNew, 0666));
  if (out.get() < 0) return os_error(command.out_path, "cannot create", errno);
  const UniqueFd log(::open(command.log_path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (log.get() < 0) return os_error(command.log_path, "cannot open", errno);
  std::vector<std::string> words = {"ferry"};
  words.insert(words.end(), command.words.begin(), command.words.end());
  const std::vector<char*> argv = argv_of(words);
  const Launch launch{.program = command.program.c_str(),
                      .argv = argv.data(),
                      .in = in.get(),
                      .out = out.get(),
                      .log = log.get(),
                      .parent = ::getpid()};
  const pid_t child = ::fork();
  if (child < 0) return os_error(command.program, "cannot start a process", errno);
  if (child == 0) become(launch);
  ::setpgid(child, child);  // parent and child both set it, because either may run first
  return child;
}

// Returns once the process has ended, or after kPollMilliseconds.
void wait_a_little(int pidfd) {
  if (pidfd < 0) {  // Linux before 5.3 has no pidfd_open
    std::this_thread::sleep_for(std::chrono::milliseconds(kPollMilliseconds / 5));
    return;
  }
  pollfd ended{.fd = pidfd, .events = POLLIN, .revents = 0};
  ::poll(&ended, 1, kPollMilliseconds);
}

bool has_ended(pid_t child) {
  siginfo_t info = {};
  const int got = ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
  return got != 0 || info.si_pid == child;
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

ChildEnd reap(pid_t child) {
  int status = 0;
  rusage used = {};
  while (::wait4(child, &status, 0, &used) < 0 && errno == EINTR) continue;
  ChildEnd end;
  end.exit = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.processor_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  end.max_rss_bytes = static_cast<uint64_t>(used.ru_maxrss) * 1024;
  return end;
}

}  // namespace

Result<ChildEnd> run_child(const ChildCommand& command, const std::function<bool()>& must_stop) {
  const Clock::time_point begin = Clock::now();
  const pid_t child = FERRY_TRY(start(command));
  // The header of glibc 2.36 declares pidfd_open() for C only, so the call goes by its number.
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  bool stopped = false, killed = false;
  Clock::time_point deadline;
  while (!has_ended(child)) {
    wait_a_little(pidfd.get());
    if (!stopped && must_stop()) {
      stopped = true;
      deadline = Clock::now() + kGrace;
      ::kill(-child, SIGTERM);
    } else if (stopped && !killed && Clock::now() >= deadline) {
      killed = true;
      ::kill(-child, SIGKILL);
    }
  }
  ChildEnd end = reap(child);
  end.stopped = stopped;
  end.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return end;
}

}  // namespace ferry::batch
