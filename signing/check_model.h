// Checks a model (a folder or one file) against its signature (OpenSSF Model Signing 1.0).
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
  bool ignore_unsigned_files = false;  // accept files that the signature does not list
  // Takes (done, total) bytes; may be empty.
  std::function<void(uint64_t, uint64_t)> progress = {};
};

enum class FileStatus {
  kOk,
  kChanged,
  kMissing,   // listed, but there is no such regular file
  kExtra,     // there, but not listed
  kUnsigned,  // there, but not listed, with ignore_unsigned_files
  kIgnored,   // the signer left out the file, or a directory with all files below it
};
std::string_view name_of(FileStatus status);

struct CheckedFile {
  std::string name;  // relative to the model
  FileStatus status = FileStatus::kOk;
  std::string what = {};  // describes a difference
};

struct ModelCheck {
  std::string path, signature;         // as the caller gave them
  std::optional<Rejection> rejection;  // absent if verified
  // The next member is set for a bundle with a good signature.
  std::optional<Signer> signer = {};
  // The other members are set for a statement about a model.
  std::string model;      // the signer's name of the model
  std::string root;       // SHA-256 over the digests of all files; hexadecimal digits
  std::string method;     // "files" or "shards"
  std::string hash_type;  // "sha256" or "blake2b"
  std::vector<std::string> ignore_paths = {};
  std::vector<CheckedFile> files = {};  // in ascending order of names
  uint64_t hashed_files = 0, hashed_bytes = 0;

  bool verified() const { return !rejection; }
  uint64_t count(FileStatus status) const;
};

// Checks the signature, then the statement, then all files; lists every difference. An error says
// that no result is possible: those of verify_envelope(); kUnsupported also for digests by BLAKE3
// and for signers that followed symbolic links; kIo if the model cannot be read.
Result<ModelCheck> check_model(const std::string& path, const std::string& signature,
                               const Trust& trust, const CheckOptions& options, ThreadPool& pool);

}  // namespace ferry::signing
