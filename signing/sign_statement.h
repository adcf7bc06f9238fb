// Signs an in-toto statement as a Sigstore bundle, v0.3, with a DSSE envelope (OpenSSF Model
// Signing 1.0). verify_envelope.h is the counterpart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::signing {

// Names of PEM files. The files of the private key and of its passphrase must belong to their owner
// alone (mode 0600 or less).
struct SigningKey {
  std::string private_key;              // PKCS #8 or SEC 1
  std::string passphrase_file = {};     // its first line decrypts the key; empty: the key is plain
  std::string certificate = {};         // of the key; empty: the bundle names the public key
  std::vector<std::string> chain = {};  // certificates of the issuers, files of one or several each
};

// Who signs.
struct Signer {
  std::string curve;         // "P-256", "P-384" or "P-521"
  std::string key;           // SHA-256 of the public key as PEM, in hexadecimal digits
  std::string subject = {};  // of its certificate (RFC 2253); empty where there is none
};

// payloadType of the envelope of every in-toto statement.
inline constexpr std::string_view kStatementType = "application/vnd.in-toto+json";

// The pre-authentication encoding of DSSE: what is signed.
std::string pre_authentication_encoding(std::string_view payload_type, std::string_view payload);

// The signer that the files of `key` make. Errors are those of sign_statement().
Result<Signer> signer_of(const SigningKey& key);

// The text of the bundle that `statement`, a JSON document, is signed with, without a line end. kIo
// where a file cannot be read; kUnsupported for other keys than P-256, P-384 and P-521; kBadInput
// for what is no key, for a key that others may read, for a wrong passphrase, and for a certificate
// that is not the key's or not for signing.
Result<std::string> sign_statement(std::string_view statement, const SigningKey& key);

}  // namespace ferry::signing
