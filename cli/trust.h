// Options that say whose signatures are trusted, for all verbs that check signatures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json_writer.h"
#include "core/result.h"
#include "signing/check_model.h"

namespace ferry::cli {

struct TrustLine {
  std::string public_key, at;
  std::vector<std::string> anchors;

  bool is_given() const { return !public_key.empty() || !anchors.empty() || !at.empty(); }
};

// Returns the key or the certificates that the options trust. kUsage for none or both, and for
// times that are not times.
Result<signing::Trust> trust_of(const TrustLine& options);

// Writes the member "signer" of the open object: null if there is none.
void write_signer(JsonWriter& json, const std::optional<signing::Signer>& signer);

// Returns the reason why a signature did not verify, with the files that differ as details.
Error signature_error(const signing::ModelCheck& check);

}  // namespace ferry::cli
