// What tests of signatures share.
#pragma once

#include <string>

#include "signing/check_model.h"
#include "tests/formats/temp_dir.h"

namespace ferry::signing {

std::string read_file(const std::string& path);
// A file of testdata/signing_keys.
std::string key_file(const std::string& name);
// A copy of such a file that only we may read, as private keys must be.
std::string private_copy(const TempDir& dir, const std::string& name);

// A moment at which all certificates of testdata are valid that are meant to be: 2027-01-01.
inline constexpr int64_t kThen = 1798761600;

// "accept", "reject STAGE", "unsupported" or "error CODE", with a message behind it but for
// "accept".
std::string verdict_of(const Result<ModelCheck>& check);

}  // namespace ferry::signing
