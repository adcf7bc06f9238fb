#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "cli/envelope.h"
#include "core/interrupt.h"
#include "core/result.h"

namespace ferry::cli {
namespace {

constexpr std::array<int, 3> kStopSignals = {SIGINT, SIGTERM, SIGHUP};

#define FERRY_SHRUNK "a mapped file became shorter or unreadable while it was in use"
constexpr std::string_view kShrunk = FERRY_SHRUNK;
constexpr std::string_view kShrunkLine = "ferry: error: " FERRY_SHRUNK "\n";
#undef FERRY_SHRUNK

// The document is made before a signal comes, because a handler may not allocate memory. It lives
// as long as the process.
const std::string* shrunk_document = nullptr;

void write_all(int fd, std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
}

// Handlers may make only async-signal-safe calls.
extern "C" void on_sigbus(int) {
  write_all(STDERR_FILENO, kShrunkLine);
  if (shrunk_document != nullptr) write_all(STDOUT_FILENO, *shrunk_document);
  _exit(static_cast<int>(ErrorCode::kIo));
}

extern "C" void on_stop_signal(int signal) {
  if (interrupt_signal() != 0) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // the signal is delivered when this handler returns
    return;
  }
  request_interrupt(signal);
}

}  // namespace

void announce_json(const std::string& verb) {
  static std::string document;
  document = error_document(verb, {ErrorCode::kIo, std::string(kShrunk)});
  shrunk_document = &document;
}

void install_signal_handlers() {
  // If the parent process ignores SIGCHLD (`trap '' CHLD`), the exit codes of children are lost.
  ::signal(SIGCHLD, SIG_DFL);
  struct sigaction action = {};
  action.sa_handler = on_sigbus;
  ::sigaction(SIGBUS, &action, nullptr);
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;  // system calls go on; loops poll for the request to stop
  for (const int signal : kStopSignals) {
    struct sigaction before = {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

void also_stop_on(int signal) {
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

void let_signals_end_the_process() {
  for (const int signal : kStopSignals) {
    struct sigaction current = {};
    ::sigaction(signal, nullptr, &current);
    if (current.sa_handler == on_stop_signal) ::signal(signal, SIG_DFL);
  }
}

}  // namespace ferry::cli
