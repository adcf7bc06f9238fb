// A State is the folder beside a plan that records attempts and their results. Each event is one
// small file; no file is appended to, because appends over NFS interleave.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "batch/result.h"
#include "core/result.h"

namespace ferry::batch {

// The records of an attempt at a task.
struct LastAttempt {
  uint64_t number = 0;
  // Both records may be missing, because a run can be killed at any time.
  std::optional<Started> started = {};
  std::optional<AttemptResult> result = {};
  // The digest of the bundle; empty until the conversion has ended. It is known even if the
  // verification was killed.
  std::string converted = {};
};

class State {
 public:
  explicit State(std::string directory) : directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }
  // Makes the folders of the state.
  Status prepare() const;

  // Returns the last success of the task, or nullopt.
  Result<std::optional<AttemptResult>> done(const std::string& id) const;
  // Returns the numbers of all attempts, in ascending order.
  Result<std::vector<uint64_t>> attempts(const std::string& id) const;
  Result<LastAttempt> attempt(const std::string& id, uint64_t number) const;
  Result<std::optional<LastAttempt>> last_attempt(const std::string& id) const;
  // Makes the folder of a new attempt and returns the number of the attempt.
  Result<uint64_t> begin_attempt(const std::string& id) const;

  Status write(const std::string& id, uint64_t number, const Started& started) const;
  // Records that the attempt has made the bundle with this digest.
  Status write_converted(const std::string& id, uint64_t number, const std::string& sha256) const;
  // Records the result of an attempt. A success becomes the result of done() too.
  Status write(const AttemptResult& result) const;

  std::string claims() const { return directory_ + "/claims"; }
  std::string attempt_path(const std::string& id, uint64_t number, const std::string& file) const;

 private:
  std::string done_path(const std::string& id) const;

  std::string directory_;
};

// -- small files of the state folder, each of which exists as a whole or not at all

// After a power failure a file that was written with kContents holds the new or the old text; with
// kNo it may be empty. A kill of the process harms neither.
enum class Durable { kNo, kContents };

// Writes `text` to the file `temporary`, which is on the same file system, and renames that to
// `path`.
Status write_small_file(const std::string& path, const std::string& temporary,
                        std::string_view text, Durable durable);

// Returns nullopt if there is no such file or the file is empty.
Result<std::optional<std::string>> read_small_file(const std::string& path);

// Makes a folder and those above it, as far as they are missing.
Status make_directories(const std::string& path);

// Sets the times of a file to the time of its file server's clock. Returns false if there is no
// such file.
bool touch(const std::string& path);
// Returns how many seconds ago `path` was touched by the file server's clock. To read that clock,
// it touches `beside`, a file on the same file system. Returns nullopt if either file is missing.
std::optional<double> seconds_since_touch(const std::string& path, const std::string& beside);

}  // namespace ferry::batch
