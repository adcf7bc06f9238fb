// Who we are, for leases and records that other hosts read too.
#pragma once

#include <cstdint>
#include <string>

namespace ferry::batch {

struct Process {
  std::string host;  // letters, digits, "._-"
  // The kernel that runs now and the set of processes that we see: process numbers mean the same
  // only where both are equal.
  std::string boot;
  int64_t id = 0;
  uint64_t start = 0;  // clock ticks since the host booted: process numbers are used again
};

const Process& this_process();

enum class Life { kAlive, kDead, kUnknown };
// kUnknown for processes of other hosts.
Life life_of(const Process& process);

// "2026-01-31T12:00:00Z".
std::string utc_now();

// 16 hexadecimal digits that nobody else has.
std::string random_name();

// How many processes of our control group the system has killed for want of memory; 0 where it does
// not say.
uint64_t out_of_memory_kills();

}  // namespace ferry::batch
