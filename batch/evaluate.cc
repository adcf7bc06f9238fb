#include "batch/evaluate.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <map>
#include <span>
#include <utility>

#include "core/file.h"
#include "core/sha256.h"
#include "core/text.h"
#include "packer/manifest.h"

namespace ferry::batch {
namespace {

using Verdict = Evaluation::Verdict;

// Of a part of a bundle what it has instead.
std::string manifest_path(const std::string& bundle) {
  const std::string part = fmt::format("{}/{}", bundle, packer::kPartName);
  struct stat status = {};
  if (::stat(part.c_str(), &status) == 0) return part;
  return fmt::format("{}/{}", bundle, packer::kManifestName);
}

// Seconds of the file server's clock; 0 where there is no such file.
double time_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

// Whether the bundle that is there can only have come from this attempt: it was allowed to write
// there, never came to record what it made, and the bundle is not younger than it.
bool is_of_killed(const LastAttempt& last, const State& state, const Task& task) {
  if (!last.started || !last.started->may_replace || !last.converted.empty()) return false;
  const bool ended = last.result && last.result->outcome == Outcome::kFailed &&
                     last.result->reason != Class::kCrash && last.result->reason != Class::kMemory;
  if (ended) return false;
  // Times of a running attempt are set every 30 s.
  constexpr double kBetweenTouches = 60;
  const double end =
      last.result
          ? time_of(state.attempt_path(task.id, last.number, "result.json"))
          : time_of(state.attempt_path(task.id, last.number, "started.json")) + kBetweenTouches;
  return time_of(manifest_path(task.output)) <= end;
}

Error in_the_way(const Task& task, bool made_by_plan) {
  return {ErrorCode::kExists, fmt::format("{}: {} (--force replaces it)", printable(task.output),
                                          made_by_plan ? "exists, made with another fingerprint"
                                                       : "exists, and this plan did not make it")};
}

struct Evaluator {
  const Task& task;
  const State& state;
  const EvaluateOptions& options;
  const std::function<Status()>& keep_on;
  std::optional<std::string> present = bundle_digest(task.output);
  Evaluation found = {};
  std::map<Thoroughness, Fingerprint> fingerprints = {};

  // Of the task as it is now; each is made once.
  Result<Fingerprint> fingerprint(Thoroughness kind) {
    const auto known = fingerprints.find(kind);
    if (known != fingerprints.end()) return known->second;
    return fingerprints.emplace(kind, FERRY_TRY(fingerprint_of(task, kind, keep_on))).first->second;
  }

  // A success is compared in the way in which its fingerprint was made.
  Result<bool> holds(const AttemptResult& success) {
    const Fingerprint now = FERRY_TRY(fingerprint(thoroughness_of(success.fingerprint)));
    if (success.outcome != Outcome::kDone || success.fingerprint != now.text ||
        success.output != task.output || present != success.sha256) {
      return false;
    }
    found.fingerprint = now;
    found.recorded = success;
    return true;
  }

  Result<Verdict> verdict() {
    const std::optional<AttemptResult> done = FERRY_TRY(state.done(task.id));
    if (done && FERRY_TRY(holds(*done))) return Verdict::kUpToDate;
    const std::optional<LastAttempt> last = FERRY_TRY(state.last_attempt(task.id));
    // After a power failure only one of the two records may be there.
    if (last && last->result && FERRY_TRY(holds(*last->result))) return Verdict::kUpToDate;
    found.fingerprint = FERRY_TRY(fingerprint(options.thoroughness));
    const std::string& now = found.fingerprint.text;
    if (!options.again && last && last->result && last->result->is_final() &&
        last->result->fingerprint == now) {
      found.recorded = last->result;
      return Verdict::kFailedBefore;
    }
    if (!present) return Verdict::kTry;
    const bool same = last && last->started && last->started->fingerprint == now;
    if (same && !last->converted.empty() && last->converted == *present) {
      found.converted = *present;
    } else if (options.force || (same && is_of_killed(*last, state, task))) {
      found.replace = true;
    } else {
      found.problem = in_the_way(task, done && present == done->sha256);
      return Verdict::kHopeless;
    }
    return Verdict::kTry;
  }
};

}  // namespace

std::optional<std::string> bundle_digest(const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) return std::nullopt;
  const Result<std::string> manifest =
      read_text_file(manifest_path(path), packer::kMaxManifestBytes);
  if (!manifest) return std::string();
  return to_hex(sha256(std::as_bytes(std::span<const char>(*manifest))));
}

Evaluation evaluate(const Task& task, const State& state, const EvaluateOptions& options,
                    const std::function<Status()>& keep_on) {
  Evaluator evaluator{.task = task, .state = state, .options = options, .keep_on = keep_on};
  const Result<Verdict> verdict = evaluator.verdict();
  evaluator.found.verdict = verdict.value_or(Verdict::kHopeless);
  if (!verdict) evaluator.found.problem = verdict.error();
  return std::move(evaluator.found);
}

}  // namespace ferry::batch
