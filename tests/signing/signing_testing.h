// Files and texts for tests of signatures.
#pragma once

#include <string>
#include <string_view>

#include "signing/check_model.h"
#include "tests/formats/temp_dir.h"

namespace ferry::signing {

std::string read_file(const std::string& path);
// Returns the path of a file in testdata/signing_keys.
std::string key_file(const std::string& name);
// Copies such a file so that only its owner may read it, as private keys require.
std::string private_copy(const TempDir& dir, const std::string& name);

// 2027-01-01, a time at which all certificates of testdata are valid that should be.
inline constexpr int64_t kThen = 1798761600;

// Returns "accept", "reject STAGE", "unsupported" or "error CODE". All but "accept" are followed by
// a message.
std::string verdict_of(const Result<ModelCheck>& check);

// Encode and decode Base64 with OpenSSL, for comparison with our implementation. The text must be
// valid and have no line breaks.
std::string encode(std::string_view bytes);
std::string decode(std::string_view text);

}  // namespace ferry::signing
