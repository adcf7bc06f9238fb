// ferry verify proves the parity of a bundle with a reference or its checkpoint.

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cli/attest.h"
#include "cli/context.h"
#include "cli/option_values.h"
#include "cli/parity_document.h"
#include "cli/report_file.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "cli/verify_comparisons.h"
#include "cli/verify_report.h"
#include "cli/verify_sections.h"
#include "conversion/convert.h"
#include "conversion/gguf_proof.h"
#include "core/atomic_file.h"
#include "core/json_writer.h"
#include "core/result.h"
#include "core/text.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"
#include "proof/bundle_proof.h"
#include "proof/bundled_program_proof.h"
#include "report/html_page.h"

namespace ferry::cli {
namespace {

// -- a GGUF file

std::string gguf_json(const conversion::GgufProof& proof, const std::string& file) {
  JsonWriter json;
  json.begin_object();
  json.member("path", file).member("parity", proof.parity());
  json.member("file_type", proof.file_type);
  json.key("tensors").begin_object();
  json.member("compared", proof.tensors).member("bytes", proof.bytes);
  json.member("different", proof.different_tensors);
  json.end_object();
  json.key("keys").begin_object();
  json.member("compared", proof.keys).member("different", proof.different_keys);
  json.end_object();
  json.member("notes", proof.notes);
  json.end_object();
  return json.take();
}

std::string gguf_text(const conversion::GgufProof& proof) {
  return fmt::format(
      "{}: {} tensors ({}, {} different), {} keys ({} different)\n{}\n", proof.file_type,
      proof.tensors, human_bytes(proof.bytes), proof.different_tensors.size(), proof.keys,
      proof.different_keys.size(),
      proof.parity() ? "every tensor and every key is what the checkpoint gives" : "no parity");
}

// Returns the exit code: 0, or 1 if tensors or keys differ, which are printed to stderr.
Result<int> verify_gguf(Context& context, const std::string& file,
                        conversion::GgufProofOptions options) {
  options.progress = context.progress("comparing tensors");
  const conversion::GgufProof proof =
      FERRY_TRY(conversion::prove_gguf(file, options, context.pool()));
  const int exit = proof.parity() ? 0 : 1;
  if (context.json) {
    context.print_result(gguf_json(proof, file), exit);
  } else if (!context.quiet) {
    context.print(gguf_text(proof));
  }
  for (const std::string& note : proof.notes) context.note(note);
  if (exit == 0) return 0;
  context.flush();
  for (const auto* lines : {&proof.different_tensors, &proof.different_keys}) {
    for (const std::string& line : *lines) {
      fmt::print(stderr, "ferry: no parity: {}: {}\n", printable(file), line);
    }
  }
  return 1;
}

// -- a bundle

struct VerifyLine {
  std::string bundle;  // or the text decoder of `loose`
  LooseOptions loose;
  proof::BundleProofOptions verify;
  std::string mode;
  std::string adapter;
  std::string imatrix;
  std::optional<int64_t> memory;
  std::string perplexity;  // path of a file with token ids or text
  bool text = false;
  std::optional<int64_t> window, stride;
  proof::QualityLimits limits;
  std::string report;  // path of the report to write
  AttestOptions attest;
};

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
    if (!options.text && !options.window && !options.stride) return {};
    return fail(ErrorCode::kUsage, "--text, --window and --stride belong to --perplexity");
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

std::string report_text(const ReportInput& input, ReportForm form) {
  if (form == ReportForm::kMarkdown) return parity_markdown(input);
  std::string document = parity_document(input);
  if (form == ReportForm::kJson) return document;
  return report::html_page(report::PageKind::kParity, "Parity of " + bundle_name(input.bundle),
                           document);
}

// Writes the report, if `form` is set.
Status write_report(Context& context, const VerifyLine& options, std::optional<ReportForm> form,
                    const ReportInput& input) {
  if (!form) return {};
  FERRY_RETURN_IF_ERROR(
      write_atomically(options.report, report_text(input, *form), IfExists::kReplace));
  context.note(fmt::format("report: {}", printable(options.report)));
  return {};
}

// Writes the report, and the attestation if there is parity. Without parity no attestation is
// written, so that nobody can mistake it for a statement of parity.
Status write_files(Context& context, const VerifyLine& options, std::optional<ReportForm> form,
                   const ReportInput& input) {
  FERRY_RETURN_IF_ERROR(write_report(context, options, form, input));
  if (options.attest.file.empty()) return {};
  if (!input.verification->parity()) {
    context.note(fmt::format("{}: not written: no parity", printable(options.attest.file)));
    return {};
  }
  FERRY_RETURN_IF_ERROR(write_attestation_file(options.attest, input.bundle, input.options,
                                               *input.verification, context.pool()));
  context.note(fmt::format("attestation: {}", printable(options.attest.file)));
  return {};
}

Result<int> measure(Context& context, const packer::Bundle& bundle, const VerifyLine& options,
                    const proof::BundleProofOptions& verify, std::optional<ReportForm> form) {
  const proof::PerplexityOptions given = {
      .file = options.perplexity,
      .text = options.text,
      .window = options.window,
      .stride = options.stride,
      .limits = options.limits,
      .progress = context.progress("predicting", ProgressUnit::kItems)};
  const proof::PerplexityReport report =
      FERRY_TRY(proof::measure_perplexity(bundle, given, verify, context.pool()));
  FERRY_RETURN_IF_ERROR(write_report(context, options, form,
                                     {.bundle = bundle, .options = verify, .perplexity = &report}));
  const int code = report.within_limits() ? 0 : 1;
  if (context.json) {
    context.print_result(to_json(report, options.bundle), code);
  } else {
    context.print(to_text(report));
  }
  context.flush();
  for (const std::string& line : broken_limits(report)) {
    fmt::print(stderr, "ferry: limit not kept: {}: {}\n", options.bundle, line);
  }
  return code;
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

std::string bundled_json(const proof::BundledProof& proof, const std::string& path) {
  JsonWriter json;
  json.begin_object().member("path", path).member("parity", proof.parity());
  json.key("test_cases").begin_array();
  for (const proof::BundledCase& test : proof.cases) {
    json.begin_object().member("method", test.method).member("case", test.index);
    json.member("max_abs", test.max_abs).member("parity", test.within).end_object();
  }
  json.end_array().member("test_tolerance", proof.tolerance).end_object();
  return json.take();
}

Result<int> verify_bundled(Context& context, const VerifyLine& options) {
  FERRY_RETURN_IF_ERROR(check_options(options.verify, /*is_gguf=*/false));
  FERRY_RETURN_IF_ERROR(check_bundled(options));
  FERRY_RETURN_IF_ERROR(check_companions(options));
  const std::optional<uint64_t> memory = FERRY_TRY(memory_limit(options.memory));
  const proof::BundledProof proof = FERRY_TRY(
      proof::prove_bundled(options.bundle, options.verify.tolerance, memory, context.pool()));
  const int code = proof.parity() ? 0 : 1;
  if (context.json) {
    context.print_result(bundled_json(proof, options.bundle), code);
    return code;
  }
  std::string text;
  for (const proof::BundledCase& test : proof.cases) {
    text += fmt::format("{} case {}: max abs {:.3g}{}\n", quoted(test.method), test.index,
                        test.max_abs, test.within ? "" : ", beyond the tolerance");
  }
  text += fmt::format("{}: {} test cases, tolerance {:g}\n", code == 0 ? "parity" : "no parity",
                      proof.cases.size(), proof.tolerance);
  if (!context.quiet) context.print(text);
  return code;
}

// Programs without a bundle do not state of which model they are; what they are compared with does.
Result<packer::KnownModel> known_model(Context& context, const VerifyLine& options) {
  const proof::BundleProofOptions& verify = options.verify;
  if (!verify.against.empty()) {
    const packer::Bundle other =
        FERRY_TRY(packer::Bundle::open(verify.against, /*check_digests=*/false, context.pool()));
    const packer::Manifest& manifest = other.manifest();
    return packer::KnownModel{manifest.model_type, manifest.num_layers, manifest.hidden_size};
  }
  if (verify.checkpoint.empty()) return packer::KnownModel();
  plan::ConvertOptions source;
  source.source = verify.checkpoint;
  source.config = verify.config;
  source.lora = verify.lora;
  const plan::Conversion planned = FERRY_TRY(plan::plan_conversion(source, &context.pool()));
  const auto& config = planned.mapped.config;
  return packer::KnownModel{config.model_type, config.num_layers, config.hidden_size};
}

Status check_loose(const VerifyLine& options) {
  if (!options.loose.any()) return {};
  if (!options.attest.file.empty()) {
    return fail(ErrorCode::kUsage, "--attest is for bundles, whose files have digests");
  }
  return {};
}

// Opens a bundle or programs without one, or turns a GGUF file into a bundle in memory.
Result<packer::Bundle> open_bundle(Context& context, const VerifyLine& options, bool is_gguf) {
  const std::string& path = options.bundle;
  if (options.loose.any()) {
    const BundleChoice choice = {
        .directory = {}, .needs_eos = false, .model = FERRY_TRY(known_model(context, options))};
    return open_bundle(choice, options.loose, context.pool());
  }
  if (is_gguf) {
    return conversion::bundle_in_memory(path, options.verify.config,
                                        conversion::GgufMatrices::kFloats, context.pool());
  }
  return packer::Bundle::open(path, /*check_digests=*/true, context.pool(),
                              context.progress("checking digests"));
}

int exit_code(proof::Verdict verdict) {
  if (verdict == proof::Verdict::kProved) return 0;
  return verdict == proof::Verdict::kNotProved ? kNotProvedExit : 1;
}

constexpr const char* kImatrixOfGguf = "--imatrix is for a GGUF file with --checkpoint";

Result<int> verify_bundle(Context& context, const VerifyLine& options) {
  if (!options.imatrix.empty()) return fail(ErrorCode::kUsage, kImatrixOfGguf);
  FERRY_RETURN_IF_ERROR(check_loose(options));
  if (!options.loose.any() && proof::is_bundled_file(options.bundle)) {
    return verify_bundled(context, options);
  }
  proof::BundleProofOptions verify = options.verify;
  const bool is_gguf = conversion::is_gguf_file(options.bundle);
  FERRY_RETURN_IF_ERROR(check_options(verify, is_gguf));
  FERRY_RETURN_IF_ERROR(check_companions(options));
  if (!options.mode.empty()) verify.mode = FERRY_TRY(parse_mode(options.mode));
  verify.memory = FERRY_TRY(memory_limit(options.memory));
  std::optional<ReportForm> form;
  if (!options.report.empty()) {
    form = FERRY_TRY(check_report_file(options.report, options.bundle));
  }
  verify.progress = [&context](const char* label, ProgressUnit unit) {
    return context.progress(label, unit);
  };
  verify.details = form.has_value() || !options.attest.file.empty();
  const packer::Bundle opened = FERRY_TRY(open_bundle(context, options, is_gguf));
  const packer::Bundle bundle = FERRY_TRY(opened.with_adapter(options.adapter));
  if (!options.perplexity.empty()) return measure(context, bundle, options, verify, form);
  const proof::Verification verification =
      FERRY_TRY(proof::prove_bundle(bundle, verify, context.pool()));
  const Status written = write_files(
      context, options, form, {.bundle = bundle, .options = verify, .verification = &verification});
  if (context.json && written) {
    context.print_result(to_json(verification, options.bundle), exit_code(verification.verdict()));
  } else if (!context.json && !context.quiet) {
    // The comparison is printed even if its report could not be written.
    context.print(to_text(verification));
  }
  FERRY_RETURN_IF_ERROR(written);
  if (verification.parity()) return 0;
  context.flush();
  for (const std::string& reason : reasons(verification)) {
    fmt::print(stderr, "ferry: {}: {}: {}\n", verdict_name(verification.verdict()), options.bundle,
               reason);
  }
  return exit_code(verification.verdict());
}

// The text decoder names programs without a bundle.
Status take_loose(VerifyLine& options) {
  if (!options.bundle.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a bundle has its programs: give it or --text-decoder",
                            printable(options.bundle)));
  }
  if (options.loose.text_decoder.empty()) {
    return fail(ErrorCode::kUsage, "--text-decoder is required");
  }
  options.bundle = options.loose.text_decoder;
  return {};
}

// Verifies a GGUF file: its bytes against a checkpoint, or its outputs against a reference.
Result<int> verify_file(Context& context, const VerifyLine& options) {
  const proof::BundleProofOptions& verify = options.verify;
  const bool other = !verify.against.empty() || !verify.calibrate.empty() ||
                     !options.mode.empty() || !verify.calibrate_prefill.empty() ||
                     !verify.calibrate_weights.empty() || !verify.images.empty() ||
                     !options.perplexity.empty() || !options.attest.file.empty();
  const bool bytes = !verify.checkpoint.empty();
  if (other || bytes == !verify.reference.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a GGUF file is verified with --checkpoint or with --reference, "
                            "and with nothing else that is compared",
                            printable(options.bundle)));
  }
  if (bytes) {
    FERRY_RETURN_IF_ERROR(check_companions(options));
    if (verify.tolerance || options.memory || !options.report.empty()) {
      return fail(ErrorCode::kUsage,
                  "--tolerance, --memory and --report: bytes of a GGUF file are compared, and "
                  "nothing is executed");
    }
    return verify_gguf(context, options.bundle,
                       {.checkpoint = verify.checkpoint,
                        .config = verify.config,
                        .lora = verify.lora,
                        .imatrix = options.imatrix});
  }
  return verify_bundle(context, options);
}

}  // namespace

void add_verify(CommandLine& line) {
  auto options = std::make_shared<VerifyLine>();
  Verb verb = line.verb("verify", "Compare what a bundle or a program computes with a reference");
  verb.optional_positional("BUNDLE", options->bundle,
                           "Bundle directory, GGUF file, or a bundled program (.bpte)")
      .finds_models();
  add_loose_options(verb, "to verify", options->loose);
  verb.option("--reference FILE", options->verify.reference,
              "Expected outputs (safetensors or HDF5); default: the reference in the bundle")
      .option("--against BUNDLE", options->verify.against,
              "Another bundle of the same model, of any style: compares what both compute for the "
              "prompts of the reference, or for fixed ones without a reference")
      .option(
          "--mode MODE", options->mode,
          "How a static bundle decodes: kv, hybrid or lookahead; default: as run does, and then "
          "every mode against kv")
      .option("--checkpoint SRC", options->verify.checkpoint,
              "The checkpoint that the bundle was made of: derives weights and programs again, and "
              "compares with the checkpoint in f32; with --reference, that with the reference")
      .finds_models()
      .option(
          "--adapter NAME", options->adapter,
          "The bundle with one of its adapters; with --checkpoint the checkpoint in f32 with it "
          "too. The reference is that of the adapted model")
      .option("--image PROMPT=FILE", options->verify.images,
              "Image files of prompts of the reference, PROMPT=FILE each: their pixel values are "
              "compared too")
      .option("--config FILE", options->verify.config,
              "With --checkpoint, or of a GGUF file: as for convert")
      .option("--lora DIR", options->verify.lora,
              "With --checkpoint: the adapter that was merged, as for convert")
      .finds_models()
      .option("--imatrix FILE", options->imatrix,
              "With --checkpoint, of a GGUF file: the importance matrix that it was made with")
      .option("--calibrate FILE", options->verify.calibrate,
              "With --checkpoint: the prompts that the bundle was calibrated with, as for convert")
      .option("--calibrate-prefill FILE", options->verify.calibrate_prefill,
              "With --checkpoint: the prompts for the caches of prefill_forward, as for convert")
      .option("--calibrate-weights FILE", options->verify.calibrate_weights,
              "With --checkpoint: the text that the weights were calibrated with, unless it is the "
              "default one")
      .option("--perplexity FILE", options->perplexity,
              "Measures the perplexity of token ids (a sequence a line, as for convert "
              "--calibrate), alone or beside --against or --checkpoint")
      .flag("--text", options->text,
            "With --perplexity: the file is text for the bundle's tokenizer")
      .option("--window", options->window,
              "With --perplexity: tokens of a window; default: the longest sequence")
      .option("--stride", options->stride,
              "With --perplexity: tokens from window to window; default: half of the window")
      .option("--max-kl", options->limits.kl_mean,
              "With --perplexity beside another model: the largest mean KL divergence in nats; if "
              "this or another limit is not kept, the exit code is 1")
      .option("--max-kl-p999", options->limits.kl_tail,
              "With --perplexity: the largest KL divergence that 99.9 % of the tokens may reach")
      .option("--min-top1", options->limits.top1,
              "With --perplexity: the least share of tokens with the same likeliest token, such as "
              "0.9")
      .option("--min-top5", options->limits.top5,
              "With --perplexity: the least share of common tokens among the 5 likeliest")
      .option("--max-flips", options->limits.flips,
              "With --perplexity: the largest share of tokens that only one of the models predicts")
      .option("--tolerance", options->verify.tolerance,
              "Largest absolute logit error instead of the bounds of docs/verifying.md")
      .option("--report FILE", options->report,
              "File for a report of what was compared: .html, .json or .md; a report of this name "
              "is replaced")
      .option("--attest FILE", options->attest.file,
              "At parity: file for a signed statement of what was proved (docs/attestation.md)")
      .option("--key FILE", options->attest.key.private_key,
              "With --attest: private key, PEM: P-256, P-384 or P-521")
      .option("--passphrase-file FILE", options->attest.key.passphrase_file,
              "With --attest: file whose first line decrypts the key")
      .option("--certificate FILE", options->attest.key.certificate,
              "With --attest: certificate of the key, PEM")
      .option("--chain FILE", options->attest.key.chain,
              "With --attest: certificates of its issuers, PEM; may be repeated")
      .option("--memory SIZE", options->memory,
              "Bytes that planned memory may have, such as 4GB; default: what the system has "
              "available")
      .example("ferry verify bundle/ --checkpoint checkpoint/ --reference golden.safetensors",
               "The whole proof: the bundle against the checkpoint, the checkpoint against what "
               "its own implementation computes.")
      .example("ferry verify --text-decoder decoder.pte --checkpoint checkpoint/",
               "A program of another tool, such as the official exporter.")
      .example("ferry verify bundle/", "Against the reference in the bundle.")
      .example(
          "ferry verify bundle/ --checkpoint checkpoint/ --report r.html --attest parity.json "
          "--key k.pem",
          "With a page of what was compared, and at parity a signed statement of it.")
      .example("ferry verify model.gguf --checkpoint checkpoint/",
               "Whether every tensor and key of a GGUF file is what the checkpoint gives.")
      .exit_codes({{"0", "parity"},
                   {"1", "no parity, or a limit of --perplexity is not kept; stderr says why"},
                   {"6", "a file of the name of the report or the attestation, which is none"},
                   {"7",
                    "not proved: nothing disagrees, but codes hide what a wrong bundle would "
                    "do; --checkpoint decides"}})
      .action([options](Context& context) -> Result<int> {
        if (options->loose.any()) {
          FERRY_RETURN_IF_ERROR(take_loose(*options));
        } else if (options->bundle.empty()) {
          return fail(ErrorCode::kUsage, "BUNDLE or --text-decoder is required");
        }
        return conversion::is_gguf_file(options->bundle) ? verify_file(context, *options)
                                                         : verify_bundle(context, *options);
      });
}

}  // namespace ferry::cli
