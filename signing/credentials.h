// Keys and certificates of signers: they are read from PEM files, and the path of certificates from
// the leaf of a bundle to a root that the user trusts is verified. Private to signing/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "signing/openssl_handles.h"

namespace ferry::signing {

inline constexpr uint64_t kMaxPemBytes = uint64_t{1} << 20;

// A curve of the specification, and the hash that belongs to it.
struct Curve {
  std::string_view name;    // the name that NIST gives it
  std::string_view group;   // the name of the group in OpenSSL
  std::string_view digest;  // the name of the hash in OpenSSL
};

// kUnsupported for any other key, and for a curve that is not given by its name.
Result<const Curve*> curve_of(EVP_PKEY* key, const std::string& name);

// Returns the public key in SubjectPublicKeyInfo form, as the PEM that `openssl pkey -pubout`
// prints. It has the named curve and the uncompressed point, however the key was stored.
Result<std::string> public_key_pem(EVP_PKEY* key, const std::string& name);
// Returns the SHA-256 of the result of public_key_pem(), in lower-case hexadecimal digits.
Result<std::string> key_hint(EVP_PKEY* key, const std::string& name);

// Reads a file of exactly one public key. kBadInput for any other file.
Result<Owned<EVP_PKEY>> read_public_key(const std::string& path);
// Reads a file that only its owner may read. `passphrase_file` may be empty.
Result<Owned<EVP_PKEY>> read_private_key(const std::string& path,
                                         const std::string& passphrase_file);

// -- certificates

// Returns all certificates of a file; there must be at least one.
Result<Certificates> read_certificates(const std::string& path);

// Verifies that a path leads from the first of `certificates` (DER), over the others as needed, to
// one of `anchors`, that all certificates of the path are valid at `at` (seconds since 1970; now if
// absent), and that the first certificate may sign. Returns the first certificate. kBadInput if
// this is not so. `name` begins the messages.
Result<Owned<X509>> verify_certificate_path(const std::vector<std::string>& certificates,
                                            const Certificates& anchors, std::optional<int64_t> at,
                                            const std::string& name);

// Returns whether the key usage of a certificate allows signatures: digitalSignature, or
// codeSigning as an extended key usage.
bool may_sign(X509* certificate);

// Returns the subject of a certificate in the form of RFC 2253.
std::string subject_of(X509* certificate);

}  // namespace ferry::signing
