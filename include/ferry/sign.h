// Signatures of models, as OpenSSF Model Signing 1.0 says.
#pragma once

#include <ferry/engine.h>
#include <ferry/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ferry {
inline namespace v0 {

struct SignOptions {
  std::string path = {};                       // a bundle, any other directory, or a file
  std::string private_key = {};                // PEM: P-256, P-384 or P-521
  std::string passphrase_file = {};            // its first line decrypts the key; may be empty
  std::string certificate = {};                // of the key, PEM; may be empty
  std::vector<std::string> chain = {};         // certificates of its issuers, PEM
  std::string signature = {};                  // to write; empty: PATH/model.sig or PATH.sig
  std::vector<std::string> ignore_paths = {};  // relative to `path`: what is not signed
  uint64_t shard_bytes = 0;                    // sign parts of this size; 0: whole files
};

struct Signature {
  std::string file;         // that was written
  std::string key_sha256;   // of the public key as PEM
  std::string subject;      // of the certificate; empty where there is none
  std::string root_sha256;  // stands for the contents of all files
  uint64_t files = 0, bytes = 0;
  std::vector<std::string> ignored;  // what is there and was left out
};

Result<Signature> sign(const SignOptions& options, const Engine& engine,
                       const OnProgress& progress = {});

// What is trusted: a public key, or certificates. Nothing in a signature is.
struct SignatureCheckOptions {
  std::string path = {};
  std::string signature = {};                       // empty: where sign() writes it
  std::string public_key = {};                      // PEM
  std::vector<std::string> root_certificates = {};  // PEM
  std::optional<int64_t> at = {};  // when certificates must be valid, seconds since 1970; none: now
  bool ignore_unsigned_files = false;
};

struct SignatureCheck {
  bool verified = false;
  std::string stage;    // where it failed: "signature", "manifest"; empty if verified
  std::string message;  // why it failed, one line; empty if verified
  std::vector<std::string> differences;  // files that are not what was signed, a line each
  std::string key_sha256, subject;       // of the signer, where the signature is good
  uint64_t hashed_files = 0, hashed_bytes = 0;
};

// A model that is not what was signed is not an error: `verified` is false.
Result<SignatureCheck> check_signature(const SignatureCheckOptions& options, const Engine& engine,
                                       const OnProgress& progress = {});

}  // namespace v0
}  // namespace ferry
