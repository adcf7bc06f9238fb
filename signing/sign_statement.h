// Signs an in-toto statement as a Sigstore bundle v0.3 with a DSSE envelope (OpenSSF Model Signing
// 1.0). verify_envelope.h is the counterpart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::signing {

// Names of PEM files. The files of the private key and of its passphrase must be accessible to
// their owner alone (mode 0600 or less).
struct SigningKey {
  std::string private_key;  // PKCS #8 or SEC 1
  std::string passphrase_file =
      {};  // the first line decrypts the key; empty if the key is not encrypted
  std::string certificate =
      {};  // certificate of the key; if empty, the bundle names the public key
  std::vector<std::string> chain = {};  // certificates of the issuers, one or several per file
};

// The signer of a statement.
struct Signer {
  std::string curve;         // "P-256", "P-384" or "P-521"
  std::string key;           // SHA-256 of the public key as PEM, in hexadecimal digits
  std::string subject = {};  // subject of the certificate (RFC 2253); empty if there is none
};

// The payloadType of the envelope of every in-toto statement.
inline constexpr std::string_view kStatementType = "application/vnd.in-toto+json";

// Returns the pre-authentication encoding of DSSE, which are the bytes that are signed.
std::string pre_authentication_encoding(std::string_view payload_type, std::string_view payload);

// Returns the signer that the files of `key` describe. Errors are those of sign_statement().
Result<Signer> signer_of(const SigningKey& key);

// Returns the text of the bundle, without a line end, that signs `statement`, a JSON document. kIo
// if a file cannot be read; kUnsupported for keys other than P-256, P-384 and P-521; kBadInput for
// a file that is not a key, a key that others may read, a wrong passphrase, and a certificate that
// does not belong to the key or is not for signing.
Result<std::string> sign_statement(std::string_view statement, const SigningKey& key);

}  // namespace ferry::signing
