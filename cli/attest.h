// `ferry verify --attest`: what was proved, signed; and `ferry check --attestation`.
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
  std::string file;  // empty: none is asked for
  signing::SigningKey key = {};
};

// Before the work: kUsage where the options do not belong together and within `bundle`, kExists
// where a file is there that is no attestation; errors of signing::signer_of() for the key.
Status check_attest_options(const AttestOptions& options, const std::string& bundle);

// `verification` is at parity and was made with VerifyOptions::details.
Status write_attestation_file(const AttestOptions& options, const packer::Bundle& bundle,
                              const proof::BundleProofOptions& verify,
                              const proof::Verification& verification, ThreadPool& pool);

// The result of `ferry check BUNDLE --attestation FILE`: members of an object that is open, and
// lines for people. `file` is the attestation.
void write_attestation_check(JsonWriter& json, const std::string& file,
                             const proof::AttestationCheck& check);
std::string describe_attestation(const std::string& bundle, const proof::AttestationCheck& check);
// Why it does not hold: one error, whose details are the files that differ.
Error attestation_error(const std::string& bundle, const std::string& file,
                        const proof::AttestationCheck& check);

}  // namespace ferry::cli
