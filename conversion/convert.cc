#include "conversion/convert.h"

#include <fmt/format.h>
#include <memory>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "converters/assemble.h"
#include "core/text.h"
#include "kernels/block_linear.h"
#include "plan/conversion.h"
#include "proof/calibration.h"
#include "proof/reference_check.h"
#include "runner/memory.h"

namespace ferry::conversion {
namespace {

Status check_reference_file(const std::string& path, const plan::Conversion& conversion) {
  proof::ReferenceShapes shapes{.buffers = {},
                                .experts = conversion.mapped.config.moe.experts,
                                .experts_per_token = conversion.mapped.config.moe.per_token};
  for (const plan::PlannedBuffer& buffer : conversion.buffers) {
    shapes.buffers[buffer.name] = buffer.shape;
  }
  const std::unique_ptr<TensorSource> source = FERRY_TRY(checkpoint::open_tensors(path));
  return proof::check_reference(FERRY_TRY(proof::Reference::open(*source)),
                                conversion.plan->manifest(), shapes);
}

Status check_room(const std::string& checkpoint, uint64_t bytes) {
  const uint64_t available = runner::available_bytes();
  if (bytes <= available) return {};
  return fail(ErrorCode::kIo,
              fmt::format("{}: its bundle takes {} of memory, and {} are available; a bundle on a "
                          "disk (ferry convert) takes less",
                          printable(checkpoint), human_bytes(bytes), human_bytes(available)));
}

}  // namespace

Result<plan::Conversion> prepare(const plan::ConvertOptions& options, ThreadPool* pool) {
  plan::Conversion conversion = FERRY_TRY(plan::plan_conversion(options, pool));
  if (conversion.plan && !options.reference.empty()) {
    FERRY_RETURN_IF_ERROR(check_reference_file(options.reference, conversion));
  }
  return conversion;
}

Result<packer::WrittenBundle> convert(const plan::ConvertOptions& options,
                                      const std::string& directory, bool overwrite,
                                      ThreadPool& pool) {
  return convert(options, {.directory = directory, .overwrite = overwrite, .resume = false}, pool);
}

Result<packer::WrittenBundle> convert(const plan::ConvertOptions& options,
                                      const packer::BundleTarget& target, ThreadPool& pool) {
  plan::ConvertOptions calibrated = options;
  if (proof::needs_calibration(options)) {
    FERRY_RETURN_IF_ERROR(proof::calibrate(calibrated, {}, pool));
  }
  const plan::Conversion conversion = FERRY_TRY(prepare(calibrated, &pool));
  if (!conversion.mapped.problems.empty()) {
    return Failure(
        converters::problems_error(conversion.mapped.problems, *conversion.mapped.source));
  }
  return conversion.plan->write(target, pool, {});
}

Result<packer::Bundle> bundle_in_memory(const GgufModel& model, GgufMatrices matrices,
                                        ThreadPool& pool, bool all_logits) {
  plan::ConvertOptions options;
  options.source = model.path;
  options.config = model.config;
  options.mmproj = model.mmproj;
  options.all_logits = all_logits;
  if (matrices == GgufMatrices::kBlocks) {
    options.keeps_blocks = [](std::string_view encoding) {
      return kernels::find_block_layout(encoding) != nullptr;
    };
  }
  const plan::Conversion conversion = FERRY_TRY(plan::plan_conversion(options, &pool));
  if (!conversion.mapped.problems.empty()) {
    return Failure(
        converters::problems_error(conversion.mapped.problems, *conversion.mapped.source));
  }
  FERRY_RETURN_IF_ERROR(check_room(model.path, conversion.plan->total_bytes()));
  MemoryFolder files = FERRY_TRY(conversion.plan->write_to_memory(pool, {}));
  return packer::Bundle::open(std::move(files), model.path, pool);
}

}  // namespace ferry::conversion
