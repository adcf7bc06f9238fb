// Implements `ferry verify --attest`, which writes a signed statement of what was proved, and
// `ferry check --attestation`.
#pragma once

#include <string>

#include "cli/context.h"
#include "core/json_writer.h"
#include "core/result.h"
#include "packer/bundle_reader.h"
#include "proof/attestation.h"
#include "proof/bundle_proof.h"
#include "signing/sign_statement.h"

namespace ferry::cli {

struct AttestOptions {
  std::string file;  // path to write to; empty: write no attestation
  signing::SigningKey key = {};
};

// Call this before the verification. Returns kUsage for options that do not belong together and for
// a file inside `bundle`, kExists for an existing file that is no attestation, and the errors of
// signing::signer_of().
Status check_attest_options(const AttestOptions& options, const std::string& bundle);

// Requires that `verification` proves parity and was made with BundleProofOptions::details.
Status write_attestation_file(const AttestOptions& options, const packer::Bundle& bundle,
                              const proof::BundleProofOptions& verify,
                              const proof::Verification& verification, ThreadPool& pool);

// Write the result of `ferry check BUNDLE --attestation FILE` as members of the open JSON object,
// and as lines for people. `file` is the attestation.
void write_attestation_check(JsonWriter& json, const std::string& file,
                             const proof::AttestationCheck& check);
std::string describe_attestation(const std::string& bundle, const proof::AttestationCheck& check);
// Returns the reason why an attestation does not hold, with the files that differ as details.
Error attestation_error(const std::string& bundle, const std::string& file,
                        const proof::AttestationCheck& check);

}  // namespace ferry::cli
