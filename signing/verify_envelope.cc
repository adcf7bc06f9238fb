#include "signing/verify_envelope.h"

#include <fmt/format.h>
#include <openssl/err.h>

#include <utility>

#include "core/base64.h"
#include "core/text.h"
#include "signing/credentials.h"
#include "signing/envelope.h"
#include "signing/sign_statement.h"

namespace ferry::signing {
namespace {

// The key that must have signed a bundle, and its owner.
struct TrustedKey {
  Owned<EVP_PKEY> key;
  Signer signer;
};

// The contents of the files of Trust: either a key or anchors.
struct TrustedFiles {
  Owned<EVP_PKEY> key;
  Certificates anchors = {};
};

Result<TrustedFiles> read_trust(const Trust& trust) {
  if (trust.public_key.empty() == trust.anchors.empty()) {
    return fail(ErrorCode::kUsage, "a public key or trust anchors are needed, one of both");
  }
  TrustedFiles files;
  if (!trust.public_key.empty()) files.key = FERRY_TRY(read_public_key(trust.public_key));
  for (const std::string& path : trust.anchors) {
    for (auto& anchor : FERRY_TRY(read_certificates(path))) {
      files.anchors.push_back(std::move(anchor));
    }
  }
  return files;
}

Result<TrustedKey> key_of_leaf(const Envelope& envelope, const TrustedFiles& files,
                               const Trust& trust, const std::string& name) {
  const Owned<X509> leaf =
      FERRY_TRY(verify_certificate_path(envelope.certificates, files.anchors, trust.at, name));
  TrustedKey trusted{Owned<EVP_PKEY>(X509_get_pubkey(leaf.get())), {}};
  if (!trusted.key) {
    return bad_input(
        fmt::format("{}: its certificate has no usable key: {}", name, take_openssl_error()));
  }
  const auto curve = curve_of(trusted.key.get(), fmt::format("{}: its certificate", name));
  // The certificate is invalid, and not merely unsupported, because no signer may use such a key.
  if (!curve) return bad_input(curve.error().message);
  trusted.signer.curve = (*curve)->name;
  trusted.signer.key = FERRY_TRY(key_hint(trusted.key.get(), name));
  trusted.signer.subject = subject_of(leaf.get());
  return trusted;
}

Result<TrustedKey> key_of_user(TrustedFiles& files, const Trust& trust) {
  TrustedKey trusted{std::move(files.key), {}};
  const std::string name = printable(trust.public_key);
  trusted.signer.curve = FERRY_TRY(curve_of(trusted.key.get(), name))->name;
  trusted.signer.key = FERRY_TRY(key_hint(trusted.key.get(), name));
  return trusted;
}

// Returns whether `signature` is a signature of `bytes` with the hash of the key's curve.
bool verifies(EVP_PKEY* key, const Curve& curve, std::string_view bytes,
              std::string_view signature) {
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  const std::string digest(curve.digest);
  const bool ok =
      context &&
      EVP_DigestVerifyInit_ex(context.get(), nullptr, digest.c_str(), nullptr, nullptr, key,
                              nullptr) == 1 &&
      EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                       signature.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                       bytes.size()) == 1;
  ERR_clear_error();
  return ok;
}

// Returns an empty text if the signature is good, otherwise the reason why it is not.
Result<std::string> signature_problem(const Envelope& envelope, const TrustedKey& trusted,
                                      const std::string& name) {
  if (envelope.hint && *envelope.hint != trusted.signer.key) {
    return fmt::format("signed with another key: the hint of the bundle is {}, that of the key {}",
                       quoted(*envelope.hint), trusted.signer.key);
  }
  const auto signature = from_base64(envelope.signature);
  if (!signature) return "the signature is not base64";
  const Curve* curve = FERRY_TRY(curve_of(trusted.key.get(), name));
  const std::string signed_bytes =
      pre_authentication_encoding(envelope.payload_type, envelope.payload);
  if (verifies(trusted.key.get(), *curve, signed_bytes, *signature)) return "";
  return "the signature is not one of this payload with this key";
}

Verdict rejected(Stage stage, std::string message) {
  return {.rejection = Rejection{stage, std::move(message)}};
}

}  // namespace

std::string_view name_of(Stage stage) {
  switch (stage) {
    case Stage::kBundle:
      return "bundle";
    case Stage::kCertificate:
      return "certificate";
    case Stage::kSignature:
      return "signature";
    case Stage::kStatement:
      return "statement";
    case Stage::kManifest:
      return "manifest";
  }
  return "bundle";
}

Result<Verdict> verify_envelope(std::string_view text, const std::string& file,
                                const Trust& trust) {
  const std::string name = printable(file);
  TrustedFiles files = FERRY_TRY(read_trust(trust));
  Envelope envelope = FERRY_TRY(read_envelope(text, name));
  if (envelope.has_certificates != (files.key == nullptr)) {
    return rejected(Stage::kBundle,
                    fmt::format("{}: {}", name,
                                envelope.has_certificates
                                    ? "signed with a certificate, but a public key is given"
                                    : "signed with a key, but trust anchors are given"));
  }
  auto trusted = envelope.has_certificates ? key_of_leaf(envelope, files, trust, name)
                                           : key_of_user(files, trust);
  if (!trusted && envelope.has_certificates && trusted.error().code == ErrorCode::kBadInput) {
    return rejected(Stage::kCertificate, trusted.error().message);
  }
  if (!trusted) return trusted.pass();
  const std::string problem = FERRY_TRY(signature_problem(envelope, *trusted, name));
  if (!problem.empty()) return rejected(Stage::kSignature, fmt::format("{}: {}", name, problem));
  if (envelope.payload_type != kStatementType) {
    return rejected(Stage::kStatement, fmt::format("{}: the payload is of type {}, not {}", name,
                                                   quoted(envelope.payload_type), kStatementType));
  }
  return Verdict{.payload = std::move(envelope.payload), .signer = std::move(trusted->signer)};
}

Result<std::string> unverified_payload(std::string_view text, const std::string& name) {
  return FERRY_TRY(read_envelope(text, name)).payload;
}

}  // namespace ferry::signing
