// Checks a model, a folder or one file, against its signature (OpenSSF Model Signing 1.0).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "signing/verify_envelope.h"

namespace ferry::signing {

struct CheckOptions {
  bool ignore_unsigned_files = false;  // files that the signature does not list are in order
  // Takes (done, total) bytes; may be empty.
  std::function<void(uint64_t, uint64_t)> progress = {};
};

enum class FileStatus {
  kOk,
  kChanged,
  kMissing,   // listed, and not there as a regular file
  kExtra,     // there, and not listed
  kUnsigned,  // the same, with ignore_unsigned_files
  kIgnored,   // the signer left it out; a directory with all that is below it
};
std::string_view name_of(FileStatus status);

struct CheckedFile {
  std::string name;  // relative to the model
  FileStatus status = FileStatus::kOk;
  std::string what = {};  // of a difference, in words
};

struct ModelCheck {
  std::string path, signature;         // as they were given
  std::optional<Rejection> rejection;  // absent: verified
  // Set for a bundle with a good signature:
  std::optional<Signer> signer = {};
  // Set for a statement about a model:
  std::string model;      // what the signer calls it
  std::string root;       // SHA-256 over the digests of all files; hexadecimal digits
  std::string method;     // "files" or "shards"
  std::string hash_type;  // "sha256" or "blake2b"
  std::vector<std::string> ignore_paths = {};
  std::vector<CheckedFile> files = {};  // in ascending order of names
  uint64_t hashed_files = 0, hashed_bytes = 0;

  bool verified() const { return !rejection; }
  uint64_t count(FileStatus status) const;
};

// First the signature, then the statement, then all files: every difference is listed. An error
// where there is no answer: those of verify_envelope(); kUnsupported also for digests by blake3 and
// for signers that followed symbolic links; kIo where the model cannot be read.
Result<ModelCheck> check_model(const std::string& path, const std::string& signature,
                               const Trust& trust, const CheckOptions& options, ThreadPool& pool);

}  // namespace ferry::signing
