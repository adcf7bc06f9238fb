#include <ferry/sign.h>

#include <utility>

#include "library/internal.h"
#include "signing/check_model.h"
#include "signing/sign_model.h"

namespace ferry {
inline namespace v0 {

Result<Signature> sign(const SignOptions& options, const Engine& engine,
                       const OnProgress& progress) {
  return library::run(engine, options.path, [&](ThreadPool& pool) -> Result<Signature> {
    if (options.path.empty()) return library::wrong("path", "must not be empty");
    if (options.private_key.empty()) return library::wrong("private_key", "must not be empty");
    const signing::SigningKey key{options.private_key, options.passphrase_file, options.certificate,
                                  options.chain};
    const signing::DigestOptions digest{.ignore_paths = options.ignore_paths,
                                        .shard_size = options.shard_bytes,
                                        .progress = library::show(progress, "hashing")};
    const std::string output = options.signature.empty()
                                   ? signing::default_signature_path(options.path)
                                   : options.signature;
    signing::SignedModel model =
        FERRY_TRY(signing::sign_model(options.path, key, output, digest, pool));
    return Signature{.file = std::move(model.signature),
                     .key_sha256 = std::move(model.signer.key),
                     .subject = std::move(model.signer.subject),
                     .root_sha256 = std::move(model.digest.root),
                     .files = model.digest.files,
                     .bytes = model.digest.bytes,
                     .ignored = std::move(model.digest.ignored)};
  });
}

Result<SignatureCheck> check_signature(const SignatureCheckOptions& options, const Engine& engine,
                                       const OnProgress& progress) {
  return library::run(engine, options.path, [&](ThreadPool& pool) -> Result<SignatureCheck> {
    if (options.path.empty()) return library::wrong("path", "must not be empty");
    if (options.public_key.empty() == options.root_certificates.empty()) {
      return library::wrong("public_key",
                            "must be given, or root_certificates instead, and not both");
    }
    const signing::Trust trust{options.public_key, options.root_certificates, options.at};
    const signing::CheckOptions how{options.ignore_unsigned_files,
                                    library::show(progress, "hashing")};
    const std::string signature = options.signature.empty()
                                      ? signing::default_signature_path(options.path)
                                      : options.signature;
    const signing::ModelCheck model =
        FERRY_TRY(signing::check_model(options.path, signature, trust, how, pool));
    SignatureCheck check;
    check.verified = model.verified();
    if (model.rejection) {
      check.stage = signing::name_of(model.rejection->stage);
      check.message = model.rejection->message;
    }
    for (const signing::CheckedFile& file : model.files) {
      const bool differs = file.status == signing::FileStatus::kChanged ||
                           file.status == signing::FileStatus::kMissing ||
                           file.status == signing::FileStatus::kExtra;
      if (!differs) continue;
      check.differences.push_back(
          file.name + ": " +
          (file.what.empty() ? std::string(signing::name_of(file.status)) : file.what));
    }
    if (model.signer) {
      check.key_sha256 = model.signer->key;
      check.subject = model.signer->subject;
    }
    check.hashed_files = model.hashed_files;
    check.hashed_bytes = model.hashed_bytes;
    return check;
  });
}

}  // namespace v0
}  // namespace ferry
