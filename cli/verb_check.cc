// ferry check finds damage of bundles and other files, and checks signatures of folders and files.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/attest.h"
#include "cli/envelope.h"
#include "cli/trust.h"
#include "cli/verbs.h"
#include "core/json_writer.h"
#include "core/result.h"
#include "core/text.h"
#include "listing/file_check.h"
#include "packer/bundle_reader.h"
#include "signing/check_model.h"
#include "signing/sign_model.h"

namespace ferry::cli {
namespace {

namespace fs = std::filesystem;
using signing::CheckedFile;
using signing::FileStatus;

struct CheckLine {
  std::string path, signature, attestation;
  TrustLine trust;
  bool ignore_unsigned = false;

  bool wants_signature() const { return !signature.empty() || trust.is_given() || ignore_unsigned; }
};

// -- the report of a signature

constexpr FileStatus kStatuses[] = {FileStatus::kOk,       FileStatus::kChanged,
                                    FileStatus::kMissing,  FileStatus::kExtra,
                                    FileStatus::kUnsigned, FileStatus::kIgnored};

// Writes the members "signature" and "files" of the open object.
void write_signature_check(JsonWriter& json, const signing::ModelCheck& check) {
  json.key("signature").begin_object();
  json.member("path", check.signature).member("ok", check.verified());
  json.member("stage", check.rejection ? name_of(check.rejection->stage) : "");
  json.member("message", check.rejection ? check.rejection->message : "");
  write_signer(json, check.signer);
  json.member("model", check.model).member("sha256", check.root);
  json.member("method", check.method).member("hash_type", check.hash_type);
  json.key("ignore_paths").begin_array();
  for (const std::string& path : check.ignore_paths) json.value(path);
  json.end_array().key("counts").begin_object();
  for (const FileStatus status : kStatuses) json.member(name_of(status), check.count(status));
  json.end_object().end_object();
  json.key("files").begin_array();
  for (const CheckedFile& file : check.files) {
    json.begin_object().member("name", file.name).member("status", name_of(file.status));
    json.member("message", file.what).end_object();
  }
  json.end_array();
}

// Describes a signature that verified: who signed, and which files the signature does not cover.
std::string describe_signature(const signing::ModelCheck& check) {
  const std::string signer =
      check.signer->subject.empty() ? "key " + check.signer->key : check.signer->subject;
  std::string text = fmt::format("{}: verified: {} files, {}, signed by {} ({})\n",
                                 printable(check.path), check.count(FileStatus::kOk),
                                 human_bytes(check.hashed_bytes), signer, check.signer->curve);
  for (const CheckedFile& file : check.files) {
    if (file.status != FileStatus::kIgnored && file.status != FileStatus::kUnsigned) continue;
    text += fmt::format("  {}  {}\n", name_of(file.status), printable(file.name));
  }
  return text;
}

// -- the verb

void write_problems(JsonWriter& json, const packer::CheckReport& report) {
  json.key("problems").begin_array();
  for (const packer::CheckProblem& problem : report.problems) {
    json.begin_object();
    json.member("path", problem.file).member("file", problem.file);
    json.member("message", problem.message);
    json.member("code", code_name(problem.code));
    write_position(json, place_of({problem.code, problem.message}));
    json.end_object();
  }
  json.end_array();
}

void write_checked_bundle(JsonWriter& json, const packer::CheckReport& report) {
  json.begin_object().member("kind", "bundle");
  json.member("path", report.directory).member("bundle", report.directory);
  json.member("files", report.files).member("bytes", report.bytes);
  write_problems(json, report);
  json.end_object();
}

// Writes the result for a checkpoint, a program or a data file.
void write_checked_file(JsonWriter& json, const listing::FileCheck& check) {
  json.begin_object().member("kind", check.kind).member("path", check.report.directory);
  json.key("bundle").null();
  json.member("files", check.report.files).member("bytes", check.report.bytes);
  if (check.kind != "program") json.member("tensors", check.tensors);
  write_problems(json, check.report);
  json.end_object();
}

void print_bundle(Context& context, const packer::CheckReport& report) {
  if (report.ok() && !context.quiet) {
    context.print(fmt::format("{}: intact: {} files, {}\n", report.directory, report.files,
                              human_bytes(report.bytes)));
  }
  for (const packer::CheckProblem& problem : report.problems) {
    print_error({problem.code, problem.message}, /*with_details=*/false);
  }
}

void print_file(Context& context, const listing::FileCheck& check) {
  const packer::CheckReport& report = check.report;
  if (report.ok() && !context.quiet) {
    std::string size = human_bytes(report.bytes);
    if (report.files > 1) size = fmt::format("{} files, {}", report.files, size);
    if (check.kind != "program") size = fmt::format("{} tensors, {}", check.tensors, size);
    context.print(fmt::format("{}: {}: every value read: {}\n", printable(report.directory),
                              check.kind, size));
  }
  for (const packer::CheckProblem& problem : report.problems) {
    print_error({problem.code, problem.message}, /*with_details=*/false);
  }
}

Result<int> check_unsigned(Context& context, const std::string& path) {
  const listing::FileCheck check =
      FERRY_TRY(listing::check_path(path, context.pool(), context.progress("checking")));
  const bool bundle = check.kind == "bundle";
  const int code = check.report.ok() ? 0 : 1;
  if (context.json) {
    JsonWriter json;
    bundle ? write_checked_bundle(json, check.report) : write_checked_file(json, check);
    context.print_result(json.take(), code);
  } else {
    bundle ? print_bundle(context, check.report) : print_file(context, check);
  }
  return code;
}

// Returns whether a signed directory is also a bundle.
bool is_bundle(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(fs::path(path) / "manifest.json", error)) return false;
  for (auto entry = fs::directory_iterator(path, error); !error && entry != fs::end(entry);
       entry.increment(error)) {
    if (entry->path().extension() == ".pte") return true;
  }
  return false;
}

// Options that name a key ask for a signature. So a model without a signature does not verify.
Result<signing::ModelCheck> check_signature(Context& context, const CheckLine& options) {
  const signing::Trust trust = FERRY_TRY(trust_of(options.trust));
  const std::string signature =
      options.signature.empty() ? signing::default_signature_path(options.path) : options.signature;
  std::error_code error;
  if (!fs::exists(options.path, error)) {
    return fail(ErrorCode::kIo, fmt::format("{}: cannot open: {}", printable(options.path),
                                            error ? error.message() : "no such file or directory"));
  }
  if (options.signature.empty() && !fs::exists(fs::symlink_status(signature, error))) {
    signing::ModelCheck unsigned_model;
    unsigned_model.path = options.path;
    unsigned_model.signature = signature;
    unsigned_model.rejection = signing::Rejection{
        signing::Stage::kBundle, fmt::format("{}: not signed: there is no {}",
                                             printable(options.path), printable(signature))};
    return unsigned_model;
  }
  const signing::CheckOptions how{options.ignore_unsigned, context.progress("hashing")};
  return signing::check_model(options.path, signature, trust, how, context.pool());
}

Result<int> check_signed(Context& context, const CheckLine& options) {
  const auto check = FERRY_TRY(check_signature(context, options));
  std::optional<packer::CheckReport> bundle;
  if (is_bundle(options.path)) {
    bundle = FERRY_TRY(
        packer::check_bundle(options.path, context.pool(), context.progress("checking digests")));
  }
  const bool ok = check.verified() && (!bundle || bundle->ok());
  const int code = ok ? 0 : 1;
  if (context.json) {
    JsonWriter json;
    json.begin_object().member("path", options.path);
    write_signature_check(json, check);
    json.key("bundle");
    bundle ? write_checked_bundle(json, *bundle) : void(json.null());
    json.end_object();
    context.print_result(json.take(), code);
    return code;
  }
  if (!check.verified()) {
    print_error(signature_error(check), /*with_details=*/!context.quiet);
  } else if (!context.quiet) {
    context.print(describe_signature(check));
  }
  if (bundle) print_bundle(context, *bundle);
  return code;
}

// Checks the bundle as well as the attestation, which both depend on the bundle's files.
Result<int> check_attested(Context& context, const CheckLine& options) {
  if (!options.signature.empty() || options.ignore_unsigned) {
    return fail(ErrorCode::kUsage,
                "--attestation and --signature are two checks: give one of them");
  }
  const signing::Trust trust = FERRY_TRY(trust_of(options.trust));
  const packer::CheckReport bundle = FERRY_TRY(
      packer::check_bundle(options.path, context.pool(), context.progress("checking digests")));
  const auto check = FERRY_TRY(proof::check_attestation(
      options.path, options.attestation, trust, context.pool(), context.progress("hashing")));
  const int code = check.holds() && bundle.ok() ? 0 : 1;
  if (context.json) {
    JsonWriter json;
    json.begin_object().member("path", options.path);
    write_attestation_check(json, options.attestation, check);
    json.key("bundle");
    write_checked_bundle(json, bundle);
    context.print_result(json.end_object().take(), code);
    return code;
  }
  if (!check.holds()) {
    print_error(attestation_error(options.path, options.attestation, check),
                /*with_details=*/!context.quiet);
  } else if (!context.quiet) {
    context.print(describe_attestation(options.path, check));
  }
  print_bundle(context, bundle);
  return code;
}

Result<int> check_one(Context& context, const CheckLine& options) {
  if (!options.attestation.empty()) return check_attested(context, options);
  return options.wants_signature() ? check_signed(context, options)
                                   : check_unsigned(context, options.path);
}

}  // namespace

void add_check(CommandLine& line) {
  auto options = std::make_shared<CheckLine>();
  line.verb("check", "Re-hash a bundle, read every value of a checkpoint, check a signature")
      .positional("PATH", options->path,
                  "Bundle, checkpoint, program or data file; with a signature any folder or file")
      .finds_models()
      .option("--signature FILE", options->signature,
              "Signature; default: PATH/model.sig of a folder, PATH.sig of a file")
      .option("--attestation FILE", options->attestation,
              "Statement of parity that verify --attest wrote: must be about this bundle")
      .option("--public-key FILE", options->trust.public_key, "Key that must have signed, PEM")
      .option("--trust-anchor FILE", options->trust.anchors,
              "Root certificate that the signer's must lead to, PEM; may be repeated")
      .option("--at TIME", options->trust.at,
              "Time at which certificates must be valid (2026-03-01T12:00:00Z); default: now")
      .flag("--ignore-unsigned-files", options->ignore_unsigned,
            "Allow files that the signature does not list")
      .example("ferry check bundle/", "Hashes every byte and validates all structure.")
      .example("ferry check checkpoint/",
               "Reads every value: wrong CRCs and broken chunks are found, nothing is written.")
      .example("ferry check bundle/ --public-key release.pub.pem",
               "The same, and the bundle must be signed with this key.")
      .example("ferry check bundle/ --attestation parity.json --public-key release.pub",
               "The same, and it computes what its checkpoint computes (docs/attestation.md).")
      .exit_codes({{"0", "nothing is damaged, and the signature or attestation verified"},
                   {"1", "damaged, or not verified"},
                   {"3", "nothing that can be checked, or no signature"},
                   {"4", "a format or a method of signing that is not supported"}})
      .action([options](Context& context) { return check_one(context, *options); });
}

}  // namespace ferry::cli
