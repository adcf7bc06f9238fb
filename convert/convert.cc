#include "convert/convert.h"

#include <memory>

#include "checkpoint/checkpoint.h"
#include "converters/assemble.h"
#include "proof/calibration.h"
#include "proof/reference_check.h"

namespace ferry::convert {
namespace {

Status check_reference_file(const std::string& path, const plan::Conversion& conversion) {
  proof::ReferenceShapes shapes{.buffers = {},
                                .experts = conversion.config.moe.experts,
                                .experts_per_token = conversion.config.moe.per_token};
  for (const plan::PlannedBuffer& buffer : conversion.buffers) {
    shapes.buffers[buffer.name] = buffer.shape;
  }
  const std::unique_ptr<TensorSource> source = FERRY_TRY(checkpoint::open_tensors(path));
  return proof::check_reference(FERRY_TRY(proof::Reference::open(*source)),
                                conversion.plan->manifest(), shapes);
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
  if (!conversion.problems.empty()) {
    return Failure(converters::problems_error(conversion.problems, *conversion.source));
  }
  return conversion.plan->write(target, pool, {});
}

}  // namespace ferry::convert
