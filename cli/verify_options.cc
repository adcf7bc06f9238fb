#include "cli/verify_options.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/text.h"

namespace ferry::cli {
namespace {

constexpr const char* kPerplexityAlone =
    "--perplexity measures, and takes no --reference, --image, --tolerance, --calibrate, "
    "--calibrate-prefill, --calibrate-weights or --attest";

constexpr const char* kLimitsCompare =
    "--max-kl, --max-kl-p999, --min-top1, --min-top5 and --max-flips limit what --perplexity "
    "measures beside --against or --checkpoint";

Status check_limits(const proof::QualityLimits& limits) {
  constexpr double kNone = std::numeric_limits<double>::max();
  const auto check = [](const char* name, const std::optional<double>& limit,
                        double largest) -> Status {
    if (!limit || (*limit >= 0 && *limit <= largest)) return {};
    return fail(ErrorCode::kUsage,
                fmt::format("{} {}: must be {}", name, *limit,
                            largest == 1 ? "a share from 0 to 1" : "finite and not negative"));
  };
  FERRY_RETURN_IF_ERROR(check("--max-kl", limits.kl_mean, kNone));
  FERRY_RETURN_IF_ERROR(check("--max-kl-p999", limits.kl_tail, kNone));
  FERRY_RETURN_IF_ERROR(check("--min-top1", limits.top1, 1));
  FERRY_RETURN_IF_ERROR(check("--min-top5", limits.top5, 1));
  return check("--max-flips", limits.flips, 1);
}

// Returns kUsage for options that exclude --perplexity, and for options that need --perplexity if
// it is absent.
Status check_perplexity(const VerifyLine& options) {
  const proof::BundleProofOptions& verify = options.verify;
  if (options.perplexity.empty()) {
    if (options.limits.any()) return fail(ErrorCode::kUsage, kLimitsCompare);
    if (!options.text && !options.window && !options.stride && options.kv_bits.empty()) return {};
    return fail(ErrorCode::kUsage,
                "--text, --window, --stride and --kv-bits belong to --perplexity");
  }
  if (options.limits.any() && verify.against.empty() && verify.checkpoint.empty()) {
    return fail(ErrorCode::kUsage, kLimitsCompare);
  }
  FERRY_RETURN_IF_ERROR(check_limits(options.limits));
  const bool proves = !verify.reference.empty() || !verify.images.empty() || verify.tolerance ||
                      !verify.calibrate.empty() || !verify.calibrate_prefill.empty() ||
                      !verify.calibrate_weights.empty() || !options.attest.file.empty();
  return proves ? Status(fail(ErrorCode::kUsage, kPerplexityAlone)) : Status();
}

Status check_options(const proof::BundleProofOptions& options, bool is_gguf) {
  if (options.tolerance && !(*options.tolerance >= 0 && std::isfinite(*options.tolerance))) {
    return fail(ErrorCode::kUsage, "--tolerance must be a finite number that is not negative");
  }
  if (options.checkpoint.empty() && !options.config.empty() && !is_gguf) {
    return fail(ErrorCode::kUsage, "--config belongs to --checkpoint, or to a GGUF file");
  }
  if (options.checkpoint.empty() && !options.mmproj.empty() && !is_gguf) {
    return fail(ErrorCode::kUsage, "--mmproj belongs to --checkpoint, or to a GGUF file");
  }
  if (options.checkpoint.empty() && !options.lora.empty()) {
    return fail(ErrorCode::kUsage, "--lora belongs to --checkpoint");
  }
  if (options.checkpoint.empty() && !options.calibrate.empty()) {
    return fail(ErrorCode::kUsage, "--calibrate belongs to --checkpoint");
  }
  if (options.checkpoint.empty() && !options.calibrate_prefill.empty()) {
    return fail(ErrorCode::kUsage, "--calibrate-prefill belongs to --checkpoint");
  }
  if (options.checkpoint.empty() && !options.calibrate_weights.empty()) {
    return fail(ErrorCode::kUsage, "--calibrate-weights belongs to --checkpoint");
  }
  if (!options.checkpoint.empty() && !options.against.empty()) {
    return fail(ErrorCode::kUsage, "--against and --checkpoint are two proofs: give one of them");
  }
  return {};
}

// Returns kUsage for options that need --perplexity or --attest if those are absent.
Status check_companions(const VerifyLine& options) {
  FERRY_RETURN_IF_ERROR(check_perplexity(options));
  return check_attest_options(options.attest, options.bundle);
}

// A bundled program is compared with the test cases in its own file, so other comparisons are
// refused.
Status check_bundled(const VerifyLine& options) {
  const proof::BundleProofOptions& verify = options.verify;
  const bool others = !verify.reference.empty() || !verify.checkpoint.empty() ||
                      !verify.against.empty() || !verify.images.empty() || !options.mode.empty() ||
                      !options.perplexity.empty() || !options.report.empty() ||
                      !options.attest.file.empty();
  if (!others) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: a bundled program is compared with its own test cases: only "
                          "--tolerance and --memory are for it",
                          printable(options.bundle)));
}

}  // namespace

Status check_verify_line(const VerifyLine& line, VerifySubject subject) {
  if (!line.imatrix.empty()) {
    return fail(ErrorCode::kUsage, "--imatrix is for a GGUF file with --checkpoint");
  }
  if (subject == VerifySubject::kLoosePrograms && !line.attest.file.empty()) {
    return fail(ErrorCode::kUsage, "--attest is for bundles, whose files have digests");
  }
  FERRY_RETURN_IF_ERROR(check_options(line.verify, subject == VerifySubject::kGguf));
  if (subject == VerifySubject::kBundledProgram) FERRY_RETURN_IF_ERROR(check_bundled(line));
  return check_companions(line);
}

Status check_gguf_line(const VerifyLine& line) {
  const proof::BundleProofOptions& verify = line.verify;
  const bool other = !verify.against.empty() || !verify.calibrate.empty() || !line.mode.empty() ||
                     !verify.calibrate_prefill.empty() || !verify.calibrate_weights.empty() ||
                     !verify.images.empty() || !line.perplexity.empty() ||
                     !line.attest.file.empty();
  const bool bytes = !verify.checkpoint.empty();
  if (other || bytes == !verify.reference.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a GGUF file is verified with --checkpoint or with --reference, "
                            "and with nothing else that is compared",
                            printable(line.bundle)));
  }
  if (!bytes) return {};
  if (!verify.mmproj.empty()) {
    return fail(ErrorCode::kUsage,
                "--mmproj: the bytes of one GGUF file are compared; give the projector itself");
  }
  FERRY_RETURN_IF_ERROR(check_companions(line));
  if (verify.tolerance || line.memory || !line.report.empty()) {
    return fail(ErrorCode::kUsage,
                "--tolerance, --memory and --report: bytes of a GGUF file are compared, and "
                "nothing is executed");
  }
  return {};
}

void add_verify_options(Verb& verb, VerifyLine& line) {
  verb.optional_positional("BUNDLE", line.bundle,
                           "Bundle directory, GGUF file, or a bundled program (.bpte)")
      .finds_models();
  add_loose_options(verb, "to verify", line.loose);
  verb.option("--reference FILE", line.verify.reference,
              "Expected outputs (safetensors or HDF5); default: the reference in the bundle")
      .option("--against BUNDLE", line.verify.against,
              "Another bundle of the same model, of any style: compares what both compute for the "
              "prompts of the reference, or for fixed ones without a reference")
      .option(
          "--mode MODE", line.mode,
          "How a static bundle decodes: kv, hybrid or lookahead; default: as run does, and then "
          "every mode against kv")
      .option("--checkpoint SRC", line.verify.checkpoint,
              "The checkpoint that the bundle was made of: derives weights and programs again, and "
              "compares with the checkpoint in f32; with --reference, that with the reference")
      .finds_models()
      .option(
          "--adapter NAME", line.adapter,
          "The bundle with one of its adapters; with --checkpoint the checkpoint in f32 with it "
          "too. The reference is that of the adapted model")
      .option("--image PROMPT=FILE", line.verify.images,
              "Image files of prompts of the reference, PROMPT=FILE each: their pixel values are "
              "compared too")
      .option("--config FILE", line.verify.config,
              "With --checkpoint, or of a GGUF file: as for convert")
      .option(
          "--mmproj FILE", line.verify.mmproj,
          "With --checkpoint, or of a GGUF file: the projector of the GGUF file, as for convert")
      .option("--lora DIR", line.verify.lora,
              "With --checkpoint: the adapter that was merged, as for convert")
      .finds_models()
      .option("--imatrix FILE", line.imatrix,
              "With --checkpoint, of a GGUF file: the importance matrix that it was made with")
      .option("--calibrate FILE", line.verify.calibrate,
              "With --checkpoint: the prompts that the bundle was calibrated with, as for convert")
      .option("--calibrate-prefill FILE", line.verify.calibrate_prefill,
              "With --checkpoint: the prompts for the caches of prefill_forward, as for convert")
      .option("--calibrate-weights FILE", line.verify.calibrate_weights,
              "With --checkpoint: the text that the weights were calibrated with, unless it is the "
              "default one")
      .option("--perplexity FILE", line.perplexity,
              "Measures the perplexity of token ids (a sequence a line, as for convert "
              "--calibrate), alone or beside --against or --checkpoint")
      .flag("--text", line.text, "With --perplexity: the file is text for the bundle's tokenizer")
      .option("--window", line.window,
              "With --perplexity: tokens of a window; default: the longest sequence")
      .option("--stride", line.stride,
              "With --perplexity: tokens from window to window; default: half of the window")
      .option("--kv-bits N", line.kv_bits,
              "With --perplexity: the bits of keys and values, as in run; --against the bundle "
              "itself tells what they lose")
      .option("--max-kl", line.limits.kl_mean,
              "With --perplexity beside another model: the largest mean KL divergence in nats; if "
              "this or another limit is not kept, the exit code is 1")
      .option("--max-kl-p999", line.limits.kl_tail,
              "With --perplexity: the largest KL divergence that 99.9 % of the tokens may reach")
      .option("--min-top1", line.limits.top1,
              "With --perplexity: the least share of tokens with the same likeliest token, such as "
              "0.9")
      .option("--min-top5", line.limits.top5,
              "With --perplexity: the least share of common tokens among the 5 likeliest")
      .option("--max-flips", line.limits.flips,
              "With --perplexity: the largest share of tokens that only one of the models predicts")
      .option("--tolerance", line.verify.tolerance,
              "Largest absolute logit error instead of the bounds of docs/verifying.md")
      .option("--report FILE", line.report,
              "File for a report of what was compared: .html, .json or .md; a report of this name "
              "is replaced")
      .option("--attest FILE", line.attest.file,
              "At parity: file for a signed statement of what was proved (docs/attestation.md)")
      .option("--key FILE", line.attest.key.private_key,
              "With --attest: private key, PEM: P-256, P-384 or P-521")
      .option("--passphrase-file FILE", line.attest.key.passphrase_file,
              "With --attest: file whose first line decrypts the key")
      .option("--certificate FILE", line.attest.key.certificate,
              "With --attest: certificate of the key, PEM")
      .option("--chain FILE", line.attest.key.chain,
              "With --attest: certificates of its issuers, PEM; may be repeated")
      .option("--memory SIZE", line.memory,
              "Bytes that planned memory may have, such as 4GB; default: what the system has "
              "available");
}

}  // namespace ferry::cli
