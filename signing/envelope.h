// The JSON of a Sigstore bundle v0.3 with a DSSE envelope, as OpenSSF Model Signing 1.0 uses it.
// Private to signing/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::signing {

struct Envelope {
  bool has_certificates = false;         // if false, the envelope names a public key
  std::optional<std::string> hint = {};  // names the public key; bundles before 1.1.0 have none
  std::vector<std::string> certificates = {};  // DER, leaf first; not empty if has_certificates
  std::string payload_type, payload;
  std::string signature;  // base64, not yet decoded
};

// kBadInput for a text that is not such a bundle, kUnsupported for the keyless method. `name`
// begins the messages.
Result<Envelope> read_envelope(std::string_view text, const std::string& name);

// Returns one line, without a line end. The members are in the order of the reference
// implementation. The signature of `envelope` is in base64.
std::string write_envelope(const Envelope& envelope);

}  // namespace ferry::signing
