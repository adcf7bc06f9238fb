#include "batch/evaluate.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/directory.h"
#include "core/file.h"
#include "core/result.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/version.h"
#include "packer/manifest.h"

namespace ferry::batch {
namespace {

constexpr uint64_t kWholeBytes = uint64_t{1} << 20;
constexpr uint64_t kEndBytes = uint64_t{16} << 10;
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr std::string_view kBytesPrefix = "bytes:";
constexpr std::array<std::string_view, 8> kWeightSuffixes = {
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".hdf5", ".gguf"};

struct Work {
  Thoroughness thoroughness;
  const std::function<Status()>& keep_on;
  Sha256 sum = {};
  uint64_t bytes = 0;

  // The length goes before each text, so that two different lists of texts never give the same
  // bytes.
  void add(std::string_view text) {
    const std::string length = fmt::format("{}:", text.size());
    sum.update(std::as_bytes(std::span<const char>(length)));
    sum.update(std::as_bytes(std::span<const char>(text)));
  }
  void add(uint64_t number) { add(fmt::format("{}", number)); }
};

Status add_range(Work& work, const InputFile& file, uint64_t begin, uint64_t end) {
  std::vector<std::byte> piece;
  for (uint64_t at = begin; at < end; at += piece.size()) {
    FERRY_RETURN_IF_ERROR(work.keep_on());
    piece.resize(std::min(end - at, kPieceBytes));
    FERRY_RETURN_IF_ERROR(file.read_at(at, piece));
    work.sum.update(piece);
  }
  return {};
}

Status add_large(Work& work, const InputFile& file) {
  struct stat now = {};
  const InputFile::Descriptor descriptor = FERRY_TRY(file.descriptor());
  if (::fstat(descriptor.fd(), &now) != 0) return os_error(file.path(), "cannot stat", errno);
  work.add(fmt::format("{}.{:09}", now.st_mtim.tv_sec, now.st_mtim.tv_nsec));
  FERRY_RETURN_IF_ERROR(add_range(work, file, 0, kEndBytes));
  return add_range(work, file, file.size() - kEndBytes, file.size());
}

Status add_file(Work& work, const std::string& name, const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  work.bytes += file.size();
  work.add(name);
  work.add(file.size());
  const bool whole = work.thoroughness == Thoroughness::kBytes || file.size() <= kWholeBytes;
  return whole ? add_range(work, file, 0, file.size()) : add_large(work, file);
}

bool is_regular(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_weight_file(std::string_view name) {
  return std::ranges::any_of(kWeightSuffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// Adds the regular files of a folder, without hidden ones and those for which `leave_out` returns
// true.
template <class LeaveOut>
Status add_directory(Work& work, const std::string& path, const LeaveOut& leave_out) {
  const Directory directory = FERRY_TRY(Directory::open(path));
  for (const std::string& name : FERRY_TRY(directory.names())) {
    const std::string full = directory.path_of(name);
    if (name.starts_with('.') || leave_out(name) || !is_regular(full)) continue;
    FERRY_RETURN_IF_ERROR(add_file(work, name, full));
  }
  return {};
}

// A conversion of a tensor file also reads the configuration and tokenizer beside the file. A
// conversion of an index also reads the weight files beside the index.
Status add_input(Work& work, const std::string& input) {
  if (!is_regular(input)) {
    return add_directory(work, input, [](const std::string&) { return false; });
  }
  const std::string name = base_name(input);
  const size_t slash = input.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : input.substr(0, slash + 1);
  const bool index = name.ends_with(".json");
  work.add(name);
  return add_directory(work, parent, [&](const std::string& other) {
    return !index && other != name && is_weight_file(other);
  });
}

// Adds the words of a command line, and the contents of files that words name.
Status add_words(Work& work, const std::vector<std::string>& words) {
  work.add(words.size());
  for (const std::string& word : words) {
    work.add(word);
    const std::string value = word.substr(word.find('=') + 1);  // the whole word if it has no '='
    if (is_regular(value)) FERRY_RETURN_IF_ERROR(add_file(work, "", value));
  }
  return {};
}

Status add_verify(Work& work, const Verify& verify) {
  work.add(fmt::format("{} {} {}", verify.embedded, verify.checkpoint, verify.check));
  work.add(verify.reference);
  if (!verify.reference.empty()) FERRY_RETURN_IF_ERROR(add_file(work, "", verify.reference));
  return add_words(work, verify.args);
}

using Verdict = Evaluation::Verdict;

// Returns the path of the manifest, or of the file that a part of a bundle has instead.
std::string manifest_path(const std::string& bundle) {
  const std::string part = fmt::format("{}/{}", bundle, packer::kPartName);
  struct stat status = {};
  if (::stat(part.c_str(), &status) == 0) return part;
  return fmt::format("{}/{}", bundle, packer::kManifestName);
}

// Returns the time of the last change in seconds of the file server's clock; 0 if there is no such
// file.
double time_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

// Returns whether the existing bundle can only have come from this attempt: the attempt was allowed
// to write there, was killed before it recorded a bundle, and the bundle is not younger than the
// attempt.
bool is_of_killed(const LastAttempt& last, const State& state, const Task& task) {
  if (!last.started || !last.started->may_replace || !last.converted.empty()) return false;
  const bool ended = last.result && last.result->outcome == Outcome::kFailed &&
                     last.result->reason != Class::kCrash && last.result->reason != Class::kMemory;
  if (ended) return false;
  // A running attempt touches started.json every 30 s.
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

  // Makes the fingerprint of the task as it is now, once for each thoroughness.
  Result<Fingerprint> fingerprint(Thoroughness kind) {
    const auto known = fingerprints.find(kind);
    if (known != fingerprints.end()) return known->second;
    return fingerprints.emplace(kind, FERRY_TRY(fingerprint_of(task, kind, keep_on))).first->second;
  }

  // Returns whether a recorded success still holds, compared with the thoroughness of the recorded
  // fingerprint.
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
    // A power failure may have lost the record in done/ and kept the record of the attempt.
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

Result<Fingerprint> fingerprint_of(const Task& task, Thoroughness thoroughness,
                                   const std::function<Status()>& keep_on) {
  Work work{.thoroughness = thoroughness, .keep_on = keep_on};
  work.add(version());
  FERRY_RETURN_IF_ERROR(add_words(work, task.args));
  FERRY_RETURN_IF_ERROR(add_verify(work, task.verify));
  work.add(task.expect.sha256);
  work.add(task.expect.max_bytes ? fmt::format("{}", *task.expect.max_bytes) : "");
  work.bytes = 0;  // input_bytes counts the checkpoint alone
  FERRY_RETURN_IF_ERROR(add_input(work, task.input));
  return Fingerprint{
      .text = fmt::format("{}{}", thoroughness == Thoroughness::kBytes ? kBytesPrefix : "stat:",
                          to_hex(work.sum.finish())),
      .input_bytes = work.bytes};
}

Thoroughness thoroughness_of(const std::string& fingerprint) {
  return fingerprint.starts_with(kBytesPrefix) ? Thoroughness::kBytes : Thoroughness::kStat;
}

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
