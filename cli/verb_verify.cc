// ferry verify proves the parity of a bundle with a reference or its checkpoint.

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/context.h"
#include "cli/option_values.h"
#include "cli/parity_document.h"
#include "cli/report_file.h"
#include "cli/verbs.h"
#include "cli/verify_comparisons.h"
#include "cli/verify_options.h"
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

// -- a bundle, or programs

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
      .kv_bits = FERRY_TRY(kv_bits(options.kv_bits)),
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
  FERRY_RETURN_IF_ERROR(check_verify_line(options, VerifySubject::kBundledProgram));
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
  source.mmproj = verify.mmproj;
  const plan::Conversion planned = FERRY_TRY(plan::plan_conversion(source, &context.pool()));
  const auto& config = planned.mapped.config;
  return packer::KnownModel{config.model_type, config.num_layers, config.hidden_size};
}

// Opens a bundle or programs without one, or turns a GGUF file into a bundle in memory.
Result<packer::Bundle> open_bundle(Context& context, const VerifyLine& options,
                                   VerifySubject subject) {
  const std::string& path = options.bundle;
  if (subject == VerifySubject::kLoosePrograms) {
    const BundleChoice choice = {
        .directory = {}, .needs_eos = false, .model = FERRY_TRY(known_model(context, options))};
    return open_bundle(choice, options.loose, context.pool());
  }
  if (subject == VerifySubject::kGguf) {
    return conversion::bundle_in_memory(
        {.path = path, .config = options.verify.config, .mmproj = options.verify.mmproj},
        conversion::GgufMatrices::kFloats, context.pool());
  }
  return packer::Bundle::open(path, /*check_digests=*/true, context.pool(),
                              context.progress("checking digests"));
}

int exit_code(proof::Verdict verdict) {
  if (verdict == proof::Verdict::kProved) return 0;
  return verdict == proof::Verdict::kNotProved ? kNotProvedExit : 1;
}

Result<int> verify_bundle(Context& context, const VerifyLine& options, VerifySubject subject) {
  FERRY_RETURN_IF_ERROR(check_verify_line(options, subject));
  proof::BundleProofOptions verify = options.verify;
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
  const packer::Bundle opened = FERRY_TRY(open_bundle(context, options, subject));
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

Result<int> verify_file(Context& context, const VerifyLine& options) {
  if (options.loose.any()) return verify_bundle(context, options, VerifySubject::kLoosePrograms);
  if (conversion::is_gguf_file(options.bundle)) {
    FERRY_RETURN_IF_ERROR(check_gguf_line(options));
    if (options.verify.checkpoint.empty()) {
      return verify_bundle(context, options, VerifySubject::kGguf);
    }
    return verify_gguf(context, options.bundle,
                       {.checkpoint = options.verify.checkpoint,
                        .config = options.verify.config,
                        .lora = options.verify.lora,
                        .imatrix = options.imatrix});
  }
  if (proof::is_bundled_file(options.bundle)) return verify_bundled(context, options);
  return verify_bundle(context, options, VerifySubject::kBundle);
}

}  // namespace

void add_verify(CommandLine& line) {
  auto options = std::make_shared<VerifyLine>();
  Verb verb = line.verb("verify", "Compare what a bundle or a program computes with a reference");
  add_verify_options(verb, *options);
  verb.example("ferry verify bundle/ --checkpoint checkpoint/ --reference golden.safetensors",
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
        return verify_file(context, *options);
      });
}

}  // namespace ferry::cli
