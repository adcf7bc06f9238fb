// State: the folder beside a plan that says what has been tried and what is done. One small file
// for each event; nothing is appended to, because appends over NFS interleave.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/result.h"
#include "core/result.h"

namespace ferry::batch {

// All that is known of the last attempt of a task.
struct LastAttempt {
  uint64_t number = 0;
  // Either may be missing: a run can be killed at any time.
  std::optional<Started> started = {};
  std::optional<AttemptResult> result = {};
  // The digest of the bundle, once its conversion had ended. Survives a kill during verification.
  std::string converted = {};
};

class State {
 public:
  explicit State(std::string directory) : directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }
  // Makes the folders.
  Status prepare() const;

  // The last success.
  Result<std::optional<AttemptResult>> done(const std::string& id) const;
  // Numbers of all attempts, in ascending order.
  Result<std::vector<uint64_t>> attempts(const std::string& id) const;
  Result<LastAttempt> attempt(const std::string& id, uint64_t number) const;
  Result<std::optional<LastAttempt>> last_attempt(const std::string& id) const;
  // Makes the folder of a new one and gives its number.
  Result<uint64_t> begin_attempt(const std::string& id) const;

  Status write(const std::string& id, uint64_t number, const Started& started) const;
  // That the attempt has made the bundle with this digest.
  Status write_converted(const std::string& id, uint64_t number, const std::string& sha256) const;
  // Where the task is done, done() finds it too.
  Status write(const AttemptResult& result) const;

  std::string claims() const { return directory_ + "/claims"; }
  std::string attempt_path(const std::string& id, uint64_t number, const std::string& file) const;

 private:
  std::string done_path(const std::string& id) const;

  std::string directory_;
};

}  // namespace ferry::batch
