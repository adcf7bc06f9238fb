// Claim: a lease on a task, for processes on several hosts that share nothing but a file system.
// docs/batch.md says what it guarantees.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/result.h"

namespace ferry::batch {

class Claim {
 public:
  // A claim on the task `id` in the folder `directory`. nullopt while somebody else has one that
  // was touched less than `lease` ago, by the clock of the file server, and whose process is not
  // known to be dead.
  static Result<std::optional<Claim>> take(const std::string& directory, const std::string& id,
                                           std::chrono::seconds lease);
  ~Claim();  // gives it back
  Claim(Claim&& other) noexcept;
  Claim& operator=(Claim&&) = delete;

  // Touches it from time to time. False once somebody else has taken it over.
  bool keep();

 private:
  Claim(std::string path, std::string own, std::chrono::seconds lease);

  std::string path_;  // DIRECTORY/ID
  std::string own_;   // DIRECTORY/ID~HOST~PROCESS~RANDOM: the same file under a name of its own
  std::chrono::seconds interval_;
  std::chrono::steady_clock::time_point next_;
  bool kept_ = true;
};

// Removes what processes that were killed have left there.
Status sweep_claims(const std::string& directory, std::chrono::seconds lease);

}  // namespace ferry::batch
