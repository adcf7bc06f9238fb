// What the exit code of an attempt means for the next one.
#pragma once

namespace ferry::batch {

// EX_TEMPFAIL of sysexits.h: interrupted, or failed for a reason that may pass.
inline constexpr int kTransientExit = 75;

}  // namespace ferry::batch
