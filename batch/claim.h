// A Claim is a lease on a task, for processes on several hosts that share nothing but a file
// system. docs/batch.md says what a lease guarantees.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/result.h"

namespace ferry::batch {

class Claim {
 public:
  // Claims the task `id` in the folder `directory`. Returns nullopt if another process has a claim
  // that was touched less than `lease` ago by the clock of the file server, unless that process is
  // known to be dead.
  static Result<std::optional<Claim>> take(const std::string& directory, const std::string& id,
                                           std::chrono::seconds lease);
  ~Claim();  // gives the claim back
  Claim(Claim&& other) noexcept;
  Claim& operator=(Claim&&) = delete;

  // Touches the claim when a quarter of the lease or 30 s have passed. Returns false once another
  // process has taken the claim over.
  bool keep();

 private:
  Claim(std::string path, std::string own, std::chrono::seconds lease);

  std::string path_;  // DIRECTORY/ID
  std::string own_;   // DIRECTORY/ID~HOST~PROCESS~RANDOM, a second name of that file
  std::chrono::seconds interval_;
  std::chrono::steady_clock::time_point next_;
  bool kept_ = true;
};

// Removes stale claims and other files that killed processes left in `directory`.
Status sweep_claims(const std::string& directory, std::chrono::seconds lease);

}  // namespace ferry::batch
