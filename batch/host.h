// Identifies this process in leases and records that other hosts read too.
#pragma once

#include <cstdint>
#include <string>

namespace ferry::batch {

struct Process {
  std::string host;  // consists of letters, digits, '.', '_' and '-'
  // The boot id of the kernel and the PID namespace. Process numbers can be compared only where
  // `boot` is equal.
  std::string boot;
  int64_t id = 0;
  // Clock ticks between boot and start of the process. Processes that reuse a number differ here.
  uint64_t start = 0;
};

const Process& this_process();

enum class Life { kAlive, kDead, kUnknown };
// Returns kUnknown for processes of other hosts.
Life life_of(const Process& process);

// Returns a time such as "2026-01-31T12:00:00Z".
std::string utc_now();

// Returns 16 random hexadecimal digits.
std::string random_name();

// Returns how many processes of this process's control group the kernel has killed for lack of
// memory; 0 if the kernel does not tell.
uint64_t out_of_memory_kills();

}  // namespace ferry::batch
