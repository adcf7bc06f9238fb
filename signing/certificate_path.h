// From the leaf of a bundle to a root that the user trusts. Private to signing/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "signing/openssl_handles.h"

namespace ferry::signing {

// Verifies that a path leads from the first of `certificates` (DER), over the others as needed, to
// one of `anchors`, that all of it is valid at `at` (seconds since 1970; absent: now) and that the
// first may sign. Returns the first. kBadInput where not. `name` begins the messages.
Result<Owned<X509>> verify_certificate_path(const std::vector<std::string>& certificates,
                                            const Certificates& anchors, std::optional<int64_t> at,
                                            const std::string& name);

// Whether its usage allows it: digitalSignature, or codeSigning as an extended one.
bool may_sign(X509* certificate);

// The subject, RFC 2253.
std::string subject_of(X509* certificate);

}  // namespace ferry::signing
