#include "pipeline/verify.h"

#include <fmt/format.h>

#include <memory>

#include "core/text.h"
#include "formats/checkpoint.h"
#include "proof/reference.h"
#include "proof/verify.h"
#include "runner/decoder.h"

namespace ferry::pipeline {
namespace {

// The reference that was asked for, else the embedded one; null if a checkpoint serves instead.
Result<std::unique_ptr<TensorSource>> open_reference(const VerifyOptions& options,
                                                     const packer::Bundle& bundle) {
  std::string path = options.reference;
  if (path.empty() && !bundle.manifest().reference.empty()) {
    path = bundle.path() + "/" + bundle.manifest().reference;
  }
  if (!path.empty()) return formats::open_tensors(path);
  if (!options.checkpoint.empty()) return std::unique_ptr<TensorSource>();
  return fail(ErrorCode::kUsage,
              fmt::format("{}: the bundle has no embedded reference; give --reference FILE or "
                          "--checkpoint SRC",
                          printable(bundle.path())));
}

}  // namespace

Result<Verification> verify(const packer::Bundle& bundle, const VerifyOptions& options,
                            ThreadPool& pool) {
  const std::unique_ptr<TensorSource> source = FERRY_TRY(open_reference(options, bundle));
  std::optional<proof::Reference> reference;
  if (source) reference = FERRY_TRY(proof::Reference::open(*source));
  Verification out;
  out.has_reference = reference.has_value();
  out.tolerance_given = options.tolerance.has_value();
  if (!options.checkpoint.empty()) {
    out.proof = FERRY_TRY(prove_against_checkpoint(bundle, options.checkpoint, options.config,
                                                   reference ? &*reference : nullptr,
                                                   options.tolerance, options.memory, pool));
    return out;
  }
  const proof::ParityBounds bounds = proof::bounds_of(bundle, options.tolerance);
  // Ports that are not f32 cannot be widened: floors alone judge what they round.
  if (bounds.rounding && !bounds.rounded_ports) {
    out.rounding =
        FERRY_TRY(proof::prove_rounding(bundle, *reference, bounds, options.memory, pool));
    return out;
  }
  const std::unique_ptr<runner::Decoder> decoder =
      FERRY_TRY(runner::load_decoder(bundle, pool, {.memory = options.memory}));
  out.direct = FERRY_TRY(proof::verify(*decoder, bundle.manifest(), *reference, bounds));
  return out;
}

}  // namespace ferry::pipeline
