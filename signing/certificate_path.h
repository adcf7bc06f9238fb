// Verifies the path of certificates from the leaf of a bundle to a root that the user trusts.
// Private to signing/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "signing/openssl_handles.h"

namespace ferry::signing {

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
