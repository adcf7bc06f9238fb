#include "convert/memory_bundle.h"

#include <fmt/format.h>

#include <utility>

#include "converters/assemble.h"
#include "core/text.h"
#include "plan/conversion.h"
#include "runner/memory.h"

namespace ferry::convert {
namespace {

Status check_room(const std::string& checkpoint, uint64_t bytes) {
  const uint64_t available = runner::available_bytes();
  if (bytes <= available) return {};
  return fail(ErrorCode::kIo,
              fmt::format("{}: its bundle takes {} of memory, and {} are available; a bundle on a "
                          "disk (ferry convert) takes less",
                          printable(checkpoint), human_bytes(bytes), human_bytes(available)));
}

}  // namespace

Result<packer::Bundle> bundle_in_memory(const std::string& checkpoint, const std::string& config,
                                        ThreadPool& pool) {
  plan::ConvertOptions options;
  options.source = checkpoint;
  options.config = config;
  const plan::Conversion conversion = FERRY_TRY(plan::plan_conversion(options, &pool));
  if (!conversion.problems.empty()) {
    return Failure(converters::problems_error(conversion.problems, *conversion.source));
  }
  FERRY_RETURN_IF_ERROR(check_room(checkpoint, conversion.plan->total_bytes()));
  MemoryFolder files = FERRY_TRY(conversion.plan->write_to_memory(pool, {}));
  return packer::Bundle::open(std::move(files), checkpoint, pool);
}

}  // namespace ferry::convert
