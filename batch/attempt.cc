#include "batch/attempt.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "batch/child.h"
#include "batch/host.h"
#include "batch/judge.h"
#include "batch/shell.h"
#include "batch/state.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "core/version.h"
#include "packer/manifest.h"

namespace ferry::batch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTouchInterval = std::chrono::seconds(30);

class Attempt {
 public:
  Attempt(const Task& task, const Evaluation& evaluation, const State& state,
          const AttemptOptions& options)
      : task_(task), evaluation_(evaluation), state_(state), options_(options) {}

  Result<AttemptResult> make();

 private:
  Status begin();
  Judgement work();
  Judgement convert();
  Judgement verify();
  Judgement check();
  Judgement compare_with_expectation() const;
  Status describe_bundle();
  Status finish(Judgement judgement);

  Judgement run(const std::string& name, std::vector<std::string> words);
  bool must_stop();
  Judgement stopped() const;
  std::string file(const std::string& name) const {
    return state_.attempt_path(task_.id, result_.attempt, name);
  }

  const Task& task_;
  const Evaluation& evaluation_;
  const State& state_;
  const AttemptOptions& options_;
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point touched_ = begun_;
  bool lost_lease_ = false;
  AttemptResult result_;
};

Status Attempt::begin() {
  const Process& us = this_process();
  result_.ferry = version();
  result_.id = task_.id;
  result_.input = task_.input;
  result_.output = task_.output;
  result_.index = task_.index;
  result_.fingerprint = evaluation_.fingerprint.text;
  result_.input_bytes = evaluation_.fingerprint.input_bytes;
  result_.host = us.host;
  result_.start = utc_now();
  result_.attempt = FERRY_TRY(state_.begin_attempt(task_.id));
  const bool tries = evaluation_.verdict == Evaluation::Verdict::kTry;
  return state_.write(task_.id, result_.attempt,
                      Started{.fingerprint = result_.fingerprint,
                              .host = us.host,
                              .boot = us.boot,
                              .start = result_.start,
                              .process = us.id,
                              .process_start = us.start,
                              .may_replace = tries && evaluation_.converted.empty()});
}

bool Attempt::must_stop() {
  if (options_.keep_lease && !options_.keep_lease()) lost_lease_ = true;
  if (Clock::now() - touched_ >= kTouchInterval) {
    touched_ = Clock::now();
    touch(file("started.json"));
  }
  return lost_lease_ || interrupt_signal() != 0;
}

Judgement Attempt::stopped() const {
  if (lost_lease_) return interrupted(Class::kLease, "another process has taken the lease over");
  const Status status = check_interrupt();
  return interrupted(Class::kSignal, status ? "stopped" : status.error().message);
}

Judgement Attempt::run(const std::string& name, std::vector<std::string> words) {
  if (must_stop()) return stopped();
  words.insert(words.begin(), name);
  const StepFiles files{.name = name, .out_path = file(name + ".json"), .log_path = file("log")};
  std::ofstream(files.log_path, std::ios::app) << "$ ferry " << shell_line(words) << "\n";
  const uint64_t kills = out_of_memory_kills();
  const Result<ChildEnd> end = run_child({.program = options_.program,
                                          .words = std::move(words),
                                          .out_path = files.out_path,
                                          .log_path = files.log_path},
                                         [this] { return must_stop(); });
  if (!end) return judge(end.error());
  result_.steps.push_back({.name = name,
                           .exit = end->exit,
                           .signal = end->signal,
                           .seconds = end->seconds,
                           .processor_seconds = end->processor_seconds,
                           .max_rss_bytes = end->max_rss_bytes});
  Judgement judgement = judge(files, *end, out_of_memory_kills() > kills);
  // If this program stopped the process, the reason for that says more than the process's own
  // message.
  if (judgement.outcome == Outcome::kInterrupted && must_stop()) return stopped();
  return judgement;
}

Judgement Attempt::convert() {
  const size_t slash = task_.output.find_last_not_of('/');
  const size_t parent = task_.output.rfind('/', slash);
  if (parent != std::string::npos && parent > 0) {
    const Status made = make_directories(task_.output.substr(0, parent));
    if (!made) return judge(made.error());
  }
  std::vector<std::string> words = {as_operand(task_.input),
                                    "-o",
                                    as_operand(task_.output),
                                    "--json",
                                    "--resume",  // uses what an earlier attempt wrote
                                    "--threads",
                                    fmt::format("{}", options_.threads)};
  if (evaluation_.replace) words.emplace_back("--overwrite");
  words.insert(words.end(), task_.args.begin(), task_.args.end());
  return run("convert", std::move(words));
}

// Copies sizes and digests from the bundle's manifest into the result, and records that this
// attempt made the bundle.
Status Attempt::describe_bundle() {
  const std::string part = fmt::format("{}/{}", task_.output, packer::kPartName);
  struct stat status = {};
  if (::stat(part.c_str(), &status) == 0) {  // one part of a bundle has no manifest
    result_.sha256 = bundle_digest(task_.output).value_or("");
    return state_.write_converted(task_.id, result_.attempt, result_.sha256);
  }
  const std::string path = fmt::format("{}/{}", task_.output, packer::kManifestName);
  const std::string text = FERRY_TRY(read_text_file(path, packer::kMaxManifestBytes));
  const packer::Manifest manifest = FERRY_TRY(packer::read_manifest(text, printable(path)));
  result_.sha256 = bundle_digest(task_.output).value_or("");
  result_.output_bytes = text.size();
  for (const packer::ManifestFile& entry : manifest.files) {
    result_.output_bytes += entry.bytes;
    result_.outputs.push_back(
        {.path = entry.path, .bytes = entry.bytes, .method = entry.method, .digest = entry.digest});
  }
  return state_.write_converted(task_.id, result_.attempt, result_.sha256);
}

Judgement Attempt::verify() {
  std::vector<std::string> words = {as_operand(task_.output), "--json", "--threads",
                                    fmt::format("{}", options_.threads)};
  if (task_.verify.checkpoint) {
    words.insert(words.end(), {"--checkpoint", as_operand(task_.input)});
  }
  if (!task_.verify.reference.empty()) {
    words.insert(words.end(), {"--reference", as_operand(task_.verify.reference)});
  }
  words.insert(words.end(), task_.verify.args.begin(), task_.verify.args.end());
  Judgement judgement = run("verify", std::move(words));
  result_.parity = parity_in(file("verify.json"));
  if (judgement.reason == Class::kParity) judgement.message = "verify finds no parity";
  if (judgement.exit == kNotProvedExit) {
    judgement.exit = 1;
    judgement.reason = Class::kParity;
    judgement.message =
        "verify cannot tell: the codes lose too much for a reference alone; add \"checkpoint\"";
  }
  return judgement;
}

Judgement Attempt::check() {
  return run("check", {as_operand(task_.output), "--json", "--threads",
                       fmt::format("{}", options_.threads)});
}

Judgement Attempt::compare_with_expectation() const {
  const Expectation& expect = task_.expect;
  Judgement judgement{.outcome = Outcome::kFailed, .exit = 1, .reason = Class::kExpectation};
  if (!expect.sha256.empty() && expect.sha256 != result_.sha256) {
    judgement.message =
        fmt::format("the bundle's sha256 is {}, not {}", result_.sha256, expect.sha256);
    return judgement;
  }
  if (expect.max_bytes && result_.output_bytes > *expect.max_bytes) {
    judgement.message = fmt::format("the bundle has {} bytes, more than {}", result_.output_bytes,
                                    *expect.max_bytes);
    return judgement;
  }
  return {};
}

Judgement Attempt::work() {
  Judgement judgement;
  if (evaluation_.converted.empty()) judgement = convert();
  if (judgement.outcome != Outcome::kDone) return judgement;
  if (const Status described = describe_bundle(); !described) return judge(described.error());
  judgement = compare_with_expectation();
  if (judgement.outcome == Outcome::kDone && task_.verify.check) judgement = check();
  if (judgement.outcome == Outcome::kDone && task_.verify.verifies()) judgement = verify();
  return judgement;
}

Status Attempt::finish(Judgement judgement) {
  result_.outcome = judgement.outcome;
  result_.exit = judgement.exit;
  result_.reason = judgement.reason;
  result_.transient = judgement.transient;
  result_.message = std::move(judgement.message);
  result_.seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  for (const Step& step : result_.steps) {
    result_.processor_seconds += step.processor_seconds;
    result_.max_rss_bytes = std::max(result_.max_rss_bytes, step.max_rss_bytes);
  }
  return state_.write(result_);
}

Result<AttemptResult> Attempt::make() {
  FERRY_RETURN_IF_ERROR(begin());
  Judgement judgement;
  if (evaluation_.verdict == Evaluation::Verdict::kHopeless) {
    judgement = judge(*evaluation_.problem);
  } else {
    judgement = work();
  }
  FERRY_RETURN_IF_ERROR(finish(std::move(judgement)));
  return std::move(result_);
}

}  // namespace

Result<AttemptResult> make_attempt(const Task& task, const Evaluation& evaluation,
                                   const State& state, const AttemptOptions& options) {
  return Attempt(task, evaluation, state, options).make();
}

}  // namespace ferry::batch
