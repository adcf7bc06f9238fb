// Reads elliptic-curve keys from PEM files. Private to signing/.
#pragma once

#include <string>
#include <string_view>

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
// Returns all certificates of a file; there must be at least one.
Result<Certificates> read_certificates(const std::string& path);

}  // namespace ferry::signing
