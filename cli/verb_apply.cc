// ferry apply makes the new bundle of the old one and a patch of ferry diff.

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/trust.h"
#include "cli/verbs.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "patch/apply_patch.h"
#include "signing/model_digest.h"

namespace ferry::cli {
namespace {

struct ApplyLine {
  std::string old_folder, patch, output;
  bool in_place = false, overwrite = false;
  TrustLine trust;

  const std::string& target() const { return in_place ? old_folder : output; }
};

Status check_usage(const ApplyLine& options) {
  if (options.output.empty() == !options.in_place) {
    return fail(ErrorCode::kUsage, "-o NEW or --in-place is required, one of both");
  }
  if (options.in_place && options.overwrite) {
    return fail(ErrorCode::kUsage, "--overwrite belongs to -o");
  }
  return {};
}

// Messages name the folder as it will be and not where it is made.
std::string with_name(std::string text, const std::string& made, const std::string& name) {
  for (size_t at = text.find(made); at != std::string::npos; at = text.find(made, at)) {
    text.replace(at, made.size(), name);
    at += name.size();
  }
  return text;
}

Result<signing::Signer> check_signature(const std::string& directory, const ApplyLine& options,
                                        const signing::Trust& trust, Context& context) {
  const std::string signature = fmt::format("{}/{}", directory, signing::kSignatureName);
  if (!std::filesystem::exists(signature)) {
    return bad_input(fmt::format("{}: not signed: the patch makes no {}",
                                 printable(options.target()), signing::kSignatureName));
  }
  const auto check = FERRY_TRY(signing::check_model(
      directory, signature, trust, {false, context.progress("hashing")}, context.pool()));
  if (check.verified()) return *check.signer;
  Error error = signature_error(check);
  error.message = with_name(error.message, printable(directory), printable(options.target()));
  return Failure(std::move(error));
}

std::string apply_json(const ApplyLine& options, const patch::AppliedPatch& applied,
                       const std::optional<signing::Signer>& signer) {
  JsonWriter json;
  json.begin_object().member("old", options.old_folder).member("patch", options.patch);
  json.member("new", options.target()).member("in_place", options.in_place);
  json.member("already_there", applied.was_there);
  json.member("files", applied.files).member("bytes", applied.bytes);
  json.member("linked", applied.linked);
  write_signer(json, signer);
  json.end_object();
  return json.take();
}

std::string apply_text(const ApplyLine& options, const patch::AppliedPatch& applied,
                       const std::optional<signing::Signer>& signer) {
  std::string text = fmt::format("{}: {}: {} files, {}", printable(options.target()),
                                 applied.was_there ? "is the new one already" : "made",
                                 applied.files, human_bytes(applied.bytes));
  if (applied.linked > 0) text += fmt::format(", {} of them kept as they were", applied.linked);
  if (signer) {
    text += fmt::format(", signed by {} ({})",
                        signer->subject.empty() ? "key " + signer->key : signer->subject,
                        signer->curve);
  }
  return text + '\n';
}

Result<int> apply(const ApplyLine& options, Context& context) {
  FERRY_RETURN_IF_ERROR(check_usage(options));
  std::optional<signing::Trust> trust;
  if (options.trust.is_given()) trust = FERRY_TRY(trust_of(options.trust));
  std::optional<signing::Signer> signer;
  patch::ApplyOptions how;
  how.output = options.output;
  how.overwrite = options.overwrite;
  how.in_place = options.in_place;
  how.progress = context.progress("updating");
  if (trust) {
    how.check = [&](const std::string& directory) -> Status {
      signer = FERRY_TRY(check_signature(directory, options, *trust, context));
      return {};
    };
  }
  const auto applied =
      FERRY_TRY(patch::apply_patch(options.old_folder, options.patch, how, context.pool()));
  if (context.json) {
    context.print_result(apply_json(options, applied, signer), 0);
  } else if (!context.quiet) {
    context.print(apply_text(options, applied, signer));
  }
  return 0;
}

}  // namespace

void add_apply(CommandLine& line) {
  auto options = std::make_shared<ApplyLine>();
  line.verb("apply", "Make the new bundle of the old one and a patch of `ferry diff`")
      .positional("OLD", options->old_folder, "Bundle that the patch was made for")
      .positional("PATCH", options->patch, "Patch")
      .option("-o,--out DIR", options->output, "New bundle to make")
      .flag("--in-place", options->in_place, "Replace OLD by the new bundle, in one step")
      .flag("--overwrite", options->overwrite, "Replace an existing bundle at --out")
      .option("--public-key FILE", options->trust.public_key,
              "Key that must have signed the new bundle, PEM")
      .option("--trust-anchor FILE", options->trust.anchors,
              "Root certificate that the signer's must lead to, PEM; may be repeated")
      .option("--at TIME", options->trust.at,
              "Time at which certificates must be valid (2026-03-01T12:00:00Z); default: now")
      .description(
          "The digests of the patch, of the files of OLD that it reads, and of every new file are "
          "compared, and the signature where a key is given, before the new bundle has its name. "
          "A stop at any moment leaves what was there, or the whole new bundle.")
      .example("ferry apply v1/ v2.patch -o v2/", "Makes v2/ beside v1/.")
      .example("ferry apply model/ v2.patch --in-place --public-key release.pub.pem",
               "Replaces model/ by the new bundle if this key has signed it.")
      .exit_codes({{"0", "made, or there already"},
                   {"3", "a damaged patch, another OLD, or a signature that does not verify"},
                   {"4", "a patch of a later version"},
                   {"6", "the new bundle exists already, or is being written"}})
      .action([options](Context& context) { return apply(*options, context); });
}

}  // namespace ferry::cli
