#include "cli/batch_options.h"

#include <fmt/format.h>

namespace ferry::cli {

batch::State BatchPlace::state_folder() const {
  return batch::State(state.empty() ? plan + ".state" : state);
}

Result<std::chrono::seconds> BatchPlace::lease() const {
  constexpr int64_t kMost = int64_t{7} * 24 * 3600;
  return std::chrono::seconds(FERRY_TRY(in_range("--lease-seconds", lease_seconds, 1, kMost)));
}

void add_place(Verb& verb, BatchPlace& place) {
  verb.positional("PLAN", place.plan, "Plan, as `ferry batch plan` prints it")
      .option("--state DIR", place.state, "Folder of what has been done; default: PLAN.state")
      .option("--lease-seconds S", place.lease_seconds,
              "After how long without a sign of life a process is taken for dead");
}

Result<int64_t> in_range(const char* option, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return value;
  return fail(ErrorCode::kUsage,
              fmt::format("{} {}: not from {} to {}", option, value, least, most));
}

}  // namespace ferry::cli
