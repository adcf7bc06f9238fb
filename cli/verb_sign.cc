// ferry sign signs a model, which is a folder or one file (OpenSSF Model Signing 1.0).

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/verbs.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "signing/sign_model.h"

namespace ferry::cli {
namespace {

struct SignLine {
  std::string path, output;
  signing::SigningKey key;
  std::vector<std::string> ignore_paths;
  std::optional<int64_t> shard_size;
};

std::string sign_json(const std::string& path, const signing::SignedModel& model) {
  const signing::ModelDigest& digest = model.digest;
  JsonWriter json;
  json.begin_object().member("path", path).member("signature", model.signature);
  json.key("signer").begin_object();
  json.member("curve", model.signer.curve).member("key_sha256", model.signer.key);
  json.member("subject", model.signer.subject).end_object();
  json.member("model", digest.name).member("sha256", digest.root);
  json.member("files", digest.files).member("bytes", digest.bytes);
  json.key("resources").begin_array();
  for (const signing::DigestedPart& part : digest.parts) {
    json.begin_object().member("name", part.name).member("bytes", part.bytes);
    json.member("sha256", part.sha256).end_object();
  }
  json.end_array().key("ignored").begin_array();
  for (const std::string& name : digest.ignored) json.value(name);
  json.end_array().key("ignore_paths").begin_array();
  for (const std::string& name : digest.ignore_paths) json.value(name);
  json.end_array().end_object();
  return json.take();
}

std::string sign_text(const std::string& path, const signing::SignedModel& model) {
  return fmt::format("{}: signed: {} files, {}\n  signature  {}\n  key        {} ({}){}\n",
                     printable(path), model.digest.files, human_bytes(model.digest.bytes),
                     printable(model.signature), model.signer.key, model.signer.curve,
                     model.signer.subject.empty() ? "" : "\n  subject    " + model.signer.subject);
}

Result<int> sign(const SignLine& options, Context& context) {
  if (options.key.private_key.empty()) return fail(ErrorCode::kUsage, "--key FILE is required");
  if (options.shard_size && *options.shard_size <= 0) {
    return fail(ErrorCode::kUsage, "--shard-size: must be positive");
  }
  const signing::DigestOptions digest{
      .ignore_paths = options.ignore_paths,
      .shard_size = static_cast<uint64_t>(options.shard_size.value_or(0)),
      .progress = context.progress("hashing")};
  const std::string output =
      options.output.empty() ? signing::default_signature_path(options.path) : options.output;
  const auto model =
      FERRY_TRY(signing::sign_model(options.path, options.key, output, digest, context.pool()));
  for (const std::string& name : model.digest.ignored) {
    context.note(fmt::format("{}: not signed", quoted(name)));
  }
  if (context.json) {
    context.print_result(sign_json(options.path, model), 0);
  } else if (!context.quiet) {
    context.print(sign_text(options.path, model));
  }
  return 0;
}

}  // namespace

void add_sign(CommandLine& line) {
  auto options = std::make_shared<SignLine>();
  line.verb("sign", "Sign a folder or a file (OpenSSF Model Signing)")
      .positional("PATH", options->path, "Bundle, any other folder, or file")
      .option("--key FILE", options->key.private_key, "Private key, PEM: P-256, P-384 or P-521")
      .option("--passphrase-file FILE", options->key.passphrase_file,
              "File whose first line decrypts the key")
      .option("--certificate FILE", options->key.certificate, "Certificate of the key, PEM")
      .option("--chain FILE", options->key.chain,
              "Certificates of its issuers, PEM; may be repeated")
      .option("-o,--out FILE", options->output,
              "Signature to write; default: PATH/model.sig of a folder, PATH.sig of a file")
      .option("--ignore-paths NAME", options->ignore_paths,
              "File or folder, relative to PATH, to leave out; may be repeated")
      .option("--shard-size SIZE", options->shard_size,
              "Sign parts of this many bytes, which are hashed in parallel, not whole files")
      .example("ferry sign bundle/ --key release.pem",
               "Writes bundle/model.sig; `ferry check bundle/ --public-key` verifies it.")
      .exit_codes({{"0", "signed"},
                   {"3", "no private key, one that others may read, or links in the folder"},
                   {"4", "a kind of key that is not supported"}})
      .action([options](Context& context) { return sign(*options, context); });
}

}  // namespace ferry::cli
