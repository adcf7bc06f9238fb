// Verifies the signature of a Sigstore bundle that sign_statement() or another signer of OpenSSF
// Model Signing 1.0 wrote, and returns what was signed. The payload is not looked into.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "signing/sign_statement.h"

namespace ferry::signing {

// What the user trusts: one of both. Nothing in a bundle is ever trusted.
struct Trust {
  std::string public_key = {};            // PEM file
  std::vector<std::string> anchors = {};  // PEM files of root certificates, one or several in each
  // For which time certificates must be valid, in seconds since 1970; absent: now.
  std::optional<int64_t> at = {};
};

// Where a bundle fails, in the order of the checks.
enum class Stage { kBundle, kCertificate, kSignature, kStatement, kManifest };
std::string_view name_of(Stage stage);

struct Rejection {
  Stage stage = Stage::kBundle;
  std::string message;  // one line that begins with the name of the bundle
};

// The payload, which was signed by whom the user trusts, or why not.
struct Verdict {
  std::optional<Rejection> rejection = {};  // if set, nothing else is
  std::string payload = {};                 // the signed bytes
  Signer signer = {};
};

// Larger files are refused unread.
inline constexpr uint64_t kMaxSignatureBytes = uint64_t{16} << 20;

// `text` is that of a bundle; `name`, its file, begins the messages. An error where there is no
// verdict: kBadInput for what is not a signature bundle (or not a key or certificate in the files
// of `trust`), kUnsupported for keyless bundles and for keys of other kinds, kIo.
Result<Verdict> verify_envelope(std::string_view text, const std::string& name, const Trust& trust);

// What a bundle says, whoever signed it: to tell files from each other, never to believe it. Errors
// are those of verify_envelope() for what is no bundle.
Result<std::string> unverified_payload(std::string_view text, const std::string& name);

}  // namespace ferry::signing
