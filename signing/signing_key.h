// Keys of elliptic curves in PEM files. Private to signing/.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "signing/openssl_handles.h"

namespace ferry::signing {

inline constexpr uint64_t kMaxPemBytes = uint64_t{1} << 20;

// A curve of the specification, and the hash that belongs to it.
struct Curve {
  std::string_view name;    // of NIST
  std::string_view group;   // of OpenSSL
  std::string_view digest;  // of OpenSSL
};

// kUnsupported for any other key, and where the curve is not given by its name.
Result<const Curve*> curve_of(EVP_PKEY* key, const std::string& name);

// The public part in SubjectPublicKeyInfo form: PEM as `openssl pkey -pubout` prints it, with the
// named curve and the uncompressed point, however it was stored.
Result<std::string> public_key_pem(EVP_PKEY* key, const std::string& name);
// SHA-256 of that PEM, in lower-case hexadecimal digits.
Result<std::string> key_hint(EVP_PKEY* key, const std::string& name);

// A file of exactly one public key. kBadInput where it is something else.
Result<Owned<EVP_PKEY>> read_public_key(const std::string& path);
// A file that only its owner may read. `passphrase_file` may be empty.
Result<Owned<EVP_PKEY>> read_private_key(const std::string& path,
                                         const std::string& passphrase_file);
// All certificates of a file, at least one.
Result<Certificates> read_certificates(const std::string& path);

}  // namespace ferry::signing
