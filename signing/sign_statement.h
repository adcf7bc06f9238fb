// Signs an in-toto statement as a Sigstore bundle, v0.3, with a DSSE envelope (OpenSSF Model
// Signing 1.0).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::signing {

// PEM files.
struct SigningKey {
  std::string private_key;
  std::string certificate = {};         // of the key; empty: the bundle names the public key
  std::vector<std::string> chain = {};  // certificates of the issuers, files of one or several each
};

// The pre-authentication encoding of DSSE: what is signed.
std::string pre_authentication_encoding(std::string_view payload_type, std::string_view payload);

// The text of the bundle that `statement`, a JSON document, is signed with. kIo where a file cannot
// be read; kUnsupported for other keys than P-256, P-384 and P-521; kBadInput where the key does
// not belong to the certificate.
Result<std::string> sign_statement(std::string_view statement, const SigningKey& key);

}  // namespace ferry::signing
