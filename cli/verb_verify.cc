// ferry verify: parity of a bundle with a reference.

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>

#include "cli/checkpoint_proof.h"
#include "cli/verbs.h"
#include "cli/verify_report.h"
#include "formats/checkpoint.h"
#include "packer/bundle_reader.h"
#include "runner/decoder.h"
#include "runner/reference.h"
#include "runner/verify.h"

namespace ferry::cli {
namespace {

struct Options {
  std::string bundle;
  std::string reference;
  std::string checkpoint, config;
  std::optional<double> tolerance;
};

Status check_options(const Options& options) {
  if (options.tolerance && !(*options.tolerance >= 0 && std::isfinite(*options.tolerance))) {
    return fail(ErrorCode::kUsage, "--tolerance must be a finite number that is not negative");
  }
  if (options.checkpoint.empty() && !options.config.empty()) {
    return fail(ErrorCode::kUsage, "--config belongs to --checkpoint");
  }
  return {};
}

// The reference that was asked for, else the embedded one; null if a checkpoint serves instead.
Result<std::unique_ptr<TensorSource>> open_reference(const Options& options, const Bundle& bundle) {
  std::string path = options.reference;
  if (path.empty() && !bundle.manifest().reference.empty()) {
    path = bundle.path() + "/" + bundle.manifest().reference;
  }
  if (!path.empty()) return open_checkpoint(path);
  if (!options.checkpoint.empty()) return std::unique_ptr<TensorSource>();
  return fail(ErrorCode::kUsage,
              fmt::format("{}: the bundle has no embedded reference; give --reference FILE or "
                          "--checkpoint SRC",
                          options.bundle));
}

Result<Verification> compare(Context& context, const Options& options, const Bundle& bundle) {
  const std::unique_ptr<TensorSource> source = FERRY_TRY(open_reference(options, bundle));
  std::optional<Reference> reference;
  if (source) reference = FERRY_TRY(Reference::open(*source));
  Verification out;
  out.has_reference = reference.has_value();
  out.tolerance_given = options.tolerance.has_value();
  if (!options.checkpoint.empty()) {
    out.proof =
        FERRY_TRY(prove_from_checkpoint(context, bundle, options.checkpoint, options.config,
                                        reference ? &*reference : nullptr, options.tolerance));
    return out;
  }
  const ParityBounds bounds = bounds_of(bundle, options.tolerance);
  if (bounds.rounding) {
    out.rounding = FERRY_TRY(prove_rounding(bundle, *reference, bounds, context.pool()));
    return out;
  }
  Decoder decoder = FERRY_TRY(Decoder::load(bundle, context.pool(), {}));
  out.direct = FERRY_TRY(verify(decoder, bundle.manifest(), *reference, bounds));
  return out;
}

Result<int> verify_bundle(Context& context, const Options& options) {
  FERRY_CHECK(check_options(options));
  const Bundle bundle =
      FERRY_TRY(Bundle::open(options.bundle, /*check_digests=*/true, context.pool()));
  const Verification verification = FERRY_TRY(compare(context, options, bundle));
  if (context.json) {
    context.print(to_json(verification));
  } else if (!context.quiet) {
    context.print(to_text(verification));
  }
  if (verification.parity()) return 0;
  context.flush();
  for (const std::string& reason : reasons(verification)) {
    fmt::print(stderr, "ferry: no parity: {}: {}\n", options.bundle, reason);
  }
  return 1;
}

}  // namespace

void add_verify(CommandLine& line) {
  auto options = std::make_shared<Options>();
  line.verb("verify", "Compare what a bundle computes with a reference")
      .positional("BUNDLE", options->bundle, "Bundle directory")
      .option("--reference", options->reference,
              "Expected outputs (safetensors or HDF5); default: the reference in the bundle")
      .option("--checkpoint", options->checkpoint,
              "The checkpoint that the bundle was made of: derives weights and programs again, and "
              "compares with the checkpoint in f32; with --reference, that with the reference")
      .option("--config", options->config, "With --checkpoint: as for convert")
      .option("--tolerance", options->tolerance,
              "Largest absolute logit error instead of the bounds of docs/verifying.md")
      .action([options](Context& context) { return verify_bundle(context, *options); });
}

}  // namespace ferry::cli
