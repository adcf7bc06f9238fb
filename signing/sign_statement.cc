#include "signing/sign_statement.h"

#include <fmt/format.h>
#include <openssl/err.h>

#include <utility>

#include "core/base64.h"
#include "core/text.h"
#include "signing/credentials.h"
#include "signing/envelope.h"

namespace ferry::signing {
namespace {

Result<std::string> sign(EVP_PKEY* key, const Curve& curve, std::string_view bytes,
                         const std::string& name) {
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const std::string digest(curve.digest);
  size_t size = 0;
  std::string signature;
  bool ok = context &&
            EVP_DigestSignInit_ex(context.get(), nullptr, digest.c_str(), nullptr, nullptr, key,
                                  nullptr) == 1 &&
            EVP_DigestSign(context.get(), nullptr, &size, data, bytes.size()) == 1;
  if (ok) {
    signature.resize(size);
    ok = EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                        data, bytes.size()) == 1;
  }
  if (!ok) {
    return bad_input(fmt::format("{}: cannot sign with this key: {}", name, take_openssl_error()));
  }
  signature.resize(size);
  return signature;
}

std::string der_of(X509* certificate) {
  unsigned char* data = nullptr;
  const int size = i2d_X509(certificate, &data);
  if (size < 0) return {};
  std::string der(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
  OPENSSL_free(data);
  return der;
}

// The contents of the files of a SigningKey.
struct LoadedKey {
  Owned<EVP_PKEY> key;
  const Curve* curve = nullptr;
  Certificates certificates = {};  // the certificate of the key first
};

// Loads the certificate of the key and those of its issuers.
Result<Certificates> load_certificates(const SigningKey& files, EVP_PKEY* key) {
  Certificates certificates = FERRY_TRY(read_certificates(files.certificate));
  const std::string name = printable(files.certificate);
  const bool belongs = X509_check_private_key(certificates[0].get(), key) == 1;
  ERR_clear_error();
  if (!belongs) {
    return bad_input(fmt::format("{}: the key does not belong to the certificate {}",
                                 printable(files.private_key), quoted(files.certificate)));
  }
  if (!may_sign(certificates[0].get())) {
    return bad_input(
        fmt::format("{}: a certificate neither for digital signatures nor for code signing", name));
  }
  for (const std::string& path : files.chain) {
    for (auto& certificate : FERRY_TRY(read_certificates(path))) {
      certificates.push_back(std::move(certificate));
    }
  }
  return certificates;
}

Result<LoadedKey> load(const SigningKey& files) {
  if (files.certificate.empty() && !files.chain.empty()) {
    return fail(ErrorCode::kUsage, "a chain of certificates needs the certificate of the key");
  }
  LoadedKey loaded{FERRY_TRY(read_private_key(files.private_key, files.passphrase_file))};
  loaded.curve = FERRY_TRY(curve_of(loaded.key.get(), printable(files.private_key)));
  if (!files.certificate.empty()) {
    loaded.certificates = FERRY_TRY(load_certificates(files, loaded.key.get()));
  }
  return loaded;
}

}  // namespace

Result<Signer> signer_of(const SigningKey& files) {
  const LoadedKey loaded = FERRY_TRY(load(files));
  Signer signer;
  signer.curve = loaded.curve->name;
  signer.key = FERRY_TRY(key_hint(loaded.key.get(), printable(files.private_key)));
  if (!loaded.certificates.empty()) signer.subject = subject_of(loaded.certificates[0].get());
  return signer;
}

Result<std::string> sign_statement(std::string_view statement, const SigningKey& files) {
  const std::string name = printable(files.private_key);
  const LoadedKey loaded = FERRY_TRY(load(files));
  Envelope envelope;
  envelope.payload_type = kStatementType;
  envelope.payload = statement;
  envelope.has_certificates = !loaded.certificates.empty();
  if (!envelope.has_certificates) envelope.hint = FERRY_TRY(key_hint(loaded.key.get(), name));
  for (const auto& certificate : loaded.certificates) {
    envelope.certificates.push_back(der_of(certificate.get()));
  }
  const std::string encoding = pre_authentication_encoding(kStatementType, statement);
  envelope.signature = to_base64(FERRY_TRY(sign(loaded.key.get(), *loaded.curve, encoding, name)));
  return write_envelope(envelope);
}

std::string pre_authentication_encoding(std::string_view payload_type, std::string_view payload) {
  return fmt::format("DSSEv1 {} {} {} {}", payload_type.size(), payload_type, payload.size(),
                     payload);
}

}  // namespace ferry::signing
