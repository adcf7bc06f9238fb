// Signs models by OpenSSF Model Signing 1.0, and checks such signatures.
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
  std::string path = {};         // a bundle, any other directory, or a file
  std::string private_key = {};  // path of a PEM file: P-256, P-384 or P-521
  // Path of a file whose first line decrypts the key; may be empty.
  std::string passphrase_file = {};
  std::string certificate = {};         // path of a PEM file for the key; may be empty
  std::vector<std::string> chain = {};  // paths of PEM files of the issuers
  std::string signature = {};           // path to write; if empty, PATH/model.sig or PATH.sig
  std::vector<std::string> ignore_paths = {};  // paths relative to `path` that are not signed
  uint64_t shard_bytes = 0;                    // signs shards of this size; 0: whole files
};

struct Signature {
  std::string file;         // path of the signature
  std::string key_sha256;   // SHA-256 of the public key as PEM
  std::string subject;      // subject of the certificate; empty if there is none
  std::string root_sha256;  // SHA-256 over the digests of all files
  uint64_t files = 0, bytes = 0;
  std::vector<std::string> ignored;  // existing files that were not signed
};

Result<Signature> sign(const SignOptions& options, const Engine& engine,
                       const OnProgress& progress = {});

// Trust comes from the caller: a public key or root certificates. Nothing in a signature is
// trusted.
struct SignatureCheckOptions {
  std::string path = {};
  std::string signature = {};   // path of the signature; if empty, where sign() writes it
  std::string public_key = {};  // path of a PEM file
  std::vector<std::string> root_certificates = {};  // paths of PEM files
  // Time at which certificates must be valid, in seconds since 1970; none: now.
  std::optional<int64_t> at = {};
  bool ignore_unsigned_files = false;
};

struct SignatureCheck {
  bool verified = false;
  std::string stage;    // step that failed: "signature" or "manifest"; empty if verified
  std::string message;  // reason in one line; empty if verified
  std::vector<std::string> differences;  // one line for each file that differs from the signed one
  // Key and certificate subject of the signer, if the signature is valid.
  std::string key_sha256, subject;
  uint64_t hashed_files = 0, hashed_bytes = 0;
};

// A model that differs from the signed one is not an error: `verified` is false.
Result<SignatureCheck> check_signature(const SignatureCheckOptions& options, const Engine& engine,
                                       const OnProgress& progress = {});

}  // namespace v0
}  // namespace ferry
