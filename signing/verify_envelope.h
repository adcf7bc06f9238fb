// Verifies the signature of a Sigstore bundle that sign_statement() or another signer of OpenSSF
// Model Signing 1.0 wrote, and returns the signed payload. The payload is not examined.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "signing/sign_statement.h"

namespace ferry::signing {

// The user trusts either a public key or anchors. Nothing in a bundle is ever trusted.
struct Trust {
  std::string public_key = {};            // PEM file
  std::vector<std::string> anchors = {};  // PEM files of root certificates, one or several per file
  // The time at which certificates must be valid, in seconds since 1970; now if absent.
  std::optional<int64_t> at = {};
};

// The check at which a bundle fails, in the order of the checks.
enum class Stage { kBundle, kCertificate, kSignature, kStatement, kManifest };
std::string_view name_of(Stage stage);

struct Rejection {
  Stage stage = Stage::kBundle;
  std::string message;  // one line that begins with the name of the bundle
};

// The payload that a trusted signer signed, or the reason why it is rejected.
struct Verdict {
  std::optional<Rejection> rejection = {};  // if set, the other members are empty
  std::string payload = {};                 // the signed bytes
  Signer signer = {};
};

// Larger files are refused without being read.
inline constexpr uint64_t kMaxSignatureBytes = uint64_t{16} << 20;

// `text` is the text of a bundle; `name`, its file, begins the messages. An error says that no
// verdict is possible: kBadInput for a text that is not a signature bundle (or a file of `trust`
// that is not a key or certificate), kUnsupported for keyless bundles and other kinds of keys, kIo.
Result<Verdict> verify_envelope(std::string_view text, const std::string& name, const Trust& trust);

// Returns the payload of a bundle, whoever signed it. It serves to tell files from each other and
// must not be trusted. A text that is not a bundle gives the error of verify_envelope().
Result<std::string> unverified_payload(std::string_view text, const std::string& name);

}  // namespace ferry::signing
