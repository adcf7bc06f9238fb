#include "batch/judge.h"

#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::batch {
namespace {

constexpr uint64_t kMaxDocumentBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxLogBytes = uint64_t{16} << 20;
constexpr int kSignalExit = 128;
constexpr int kNoStart = 127;  // exit code of run_child()

// Values of errno whose cause may pass, beside a full disk.
constexpr int kPassing[] = {EIO, ESTALE, ETIMEDOUT, EAGAIN};
constexpr int kFull[] = {ENOSPC, EDQUOT};

// Messages contain the text of strerror(), as in "PATH: cannot write: No space left on device".
bool has_error_of(const std::string& message, std::span<const int> numbers) {
  return std::ranges::any_of(numbers, [&](int number) {
    return message.find(fmt::format(": {}", std::strerror(number))) != std::string::npos;
  });
}

bool may_pass(const std::string& message) {
  return has_error_of(message, kPassing) || is_full_disk(message);
}

bool is_want_of_memory(const std::string& message) {
  return message.ends_with("not enough memory") || message.ends_with(std::strerror(ENOMEM)) ||
         message.find(" of memory") != std::string::npos;
}

std::optional<nlohmann::json> document_in(const std::string& path) {
  const Result<std::string> text = read_text_file(path, kMaxDocumentBytes);
  if (!text) return std::nullopt;
  Result<nlohmann::json> document = parse_json(*text, path);
  if (!document || !document->is_object()) return std::nullopt;
  return *std::move(document);
}

const nlohmann::json* find(const nlohmann::json& object, const char* member) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(member);
  return found == object.end() ? nullptr : &*found;
}

std::string message_in(const std::string& path) {
  const std::optional<nlohmann::json> document = document_in(path);
  if (!document) return {};
  const nlohmann::json* error = find(*document, "error");
  const nlohmann::json* message = error == nullptr ? nullptr : find(*error, "message");
  return message != nullptr && message->is_string() ? message->get<std::string>() : std::string();
}

// Returns the last error message in the log, or the last line if there is none.
std::string last_words(const std::string& path) {
  const Result<std::string> log = read_text_file(path, kMaxLogBytes);
  if (!log) return {};
  constexpr std::string_view kMark = "ferry: error: ";
  std::string_view text = *log;
  text = text.substr(0, text.find_last_not_of('\n') + 1);
  if (const size_t at = text.rfind(kMark); at != std::string_view::npos) {
    text.remove_prefix(at + kMark.size());
    return printable(text.substr(0, text.find('\n')));
  }
  return printable(text.substr(text.rfind('\n') + 1));
}

std::string message_of(const StepFiles& step, int exit) {
  std::string message = message_in(step.out_path);
  // A line that begins with "$ " is the command, which is logged before the process starts.
  if (message.empty()) message = last_words(step.log_path);
  if (message.empty() || message.starts_with("$ ")) {
    message = fmt::format("{} ended with {}", step.name, exit);
  }
  return message;
}

bool asks_to_stop(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGUSR1;
}

Class class_of(const StepFiles& step, int exit, const std::string& message) {
  switch (exit) {
    case 1:
      return step.name == "check" ? Class::kDamage : Class::kParity;
    case static_cast<int>(ErrorCode::kUsage):
      return Class::kUsage;
    case static_cast<int>(ErrorCode::kBadInput):
      return Class::kInput;
    case static_cast<int>(ErrorCode::kUnsupported):
      return Class::kUnsupported;
    case static_cast<int>(ErrorCode::kExists):
      return Class::kExists;
    case static_cast<int>(ErrorCode::kIo):
      return is_want_of_memory(message) ? Class::kMemory : Class::kIo;
    default:
      return Class::kInternal;
  }
}

// Part of the message of `ferry convert` when another process writes the same bundle.
constexpr std::string_view kBusy = "another process is writing it";

Judgement failed(int exit, Class reason, std::string message) {
  Judgement judgement{.outcome = Outcome::kFailed, .exit = exit, .reason = reason};
  const bool busy = reason == Class::kExists && message.find(kBusy) != std::string::npos;
  if (busy) judgement.reason = Class::kLease;
  judgement.transient = busy || (reason == Class::kIo && may_pass(message));
  if (judgement.transient) judgement.exit = kTransientExit;
  judgement.message = std::move(message);
  return judgement;
}

std::string ended_by(const StepFiles& step, int signal) {
  return fmt::format("{} was ended by signal {} ({})", step.name, signal, ::strsignal(signal));
}

std::optional<double> number_in(const nlohmann::json& metrics, const char* name) {
  const nlohmann::json* value = find(metrics, name);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->get<double>();
}

}  // namespace

bool is_full_disk(const std::string& message) {
  return has_error_of(message, kFull) || message.find("not enough space") != std::string::npos;
}

Judgement judge(const StepFiles& step, const ChildEnd& end, bool out_of_memory) {
  if (end.signal != 0) {
    if (end.stopped || asks_to_stop(end.signal)) {
      return interrupted(Class::kSignal, ended_by(step, end.signal));
    }
    const bool memory = end.signal == SIGKILL && out_of_memory;
    return failed(kSignalExit + end.signal, memory ? Class::kMemory : Class::kCrash,
                  ended_by(step, end.signal) + (memory ? ", for want of memory" : ""));
  }
  if (end.exit == 0) return {};
  if (end.exit > kSignalExit && asks_to_stop(end.exit - kSignalExit)) {
    return interrupted(Class::kSignal, message_of(step, end.exit));
  }
  if (end.exit == kNoStart) {
    return failed(static_cast<int>(ErrorCode::kIo), Class::kIo,
                  fmt::format("{}: the program cannot be started", step.name));
  }
  std::string message = message_of(step, end.exit);
  const Class reason = class_of(step, end.exit, message);
  return failed(end.exit, reason, std::move(message));
}

Judgement judge(const Error& error) {
  if (error.code == ErrorCode::kInterrupted) return interrupted(Class::kSignal, error.message);
  const StepFiles ours{.name = "batch", .out_path = {}, .log_path = {}};
  const int exit = static_cast<int>(error.code);
  return failed(exit, class_of(ours, exit, error.message), error.message);
}

Judgement interrupted(Class reason, std::string message) {
  return {.outcome = Outcome::kInterrupted,
          .exit = kTransientExit,
          .reason = reason,
          .transient = true,
          .message = std::move(message)};
}

std::optional<Parity> parity_in(const std::string& path) {
  const std::optional<nlohmann::json> document = document_in(path);
  if (!document) return std::nullopt;
  const nlohmann::json* result = find(*document, "result");
  if (result == nullptr) result = &*document;
  const nlohmann::json* verdict = find(*result, "parity");
  if (verdict == nullptr || !verdict->is_boolean()) return std::nullopt;
  Parity parity{.parity = verdict->get<bool>()};
  const nlohmann::json* metrics = find(*result, "metrics");
  // Without a comparison with a reference, the metrics are those of the comparison with the
  // checkpoint.
  if (const nlohmann::json* path_report = find(*result, "f32_path");
      metrics == nullptr && path_report) {
    metrics = find(*path_report, "metrics");
  }
  if (metrics == nullptr) return parity;
  parity.max_abs = number_in(*metrics, "max_abs");
  parity.sqnr_db = number_in(*metrics, "sqnr_db");
  parity.top1_agreement = number_in(*metrics, "top1_agreement");
  parity.kl_max = number_in(*metrics, "kl_max");
  return parity;
}

}  // namespace ferry::batch
