// What file a reference was: for reports and attestations.
#pragma once

#include <cstdint>
#include <string>

#include "core/file.h"
#include "core/result.h"

namespace ferry::proof {

struct ReferenceFile {
  std::string name;       // without directories
  bool embedded = false;  // in a bundle
  uint64_t bytes = 0;
  std::string sha256;  // of the whole file
  size_t prompts = 0;
};

// A file that is hashed before it is used, and must be the same afterwards.
class HashedFile {
 public:
  static Result<HashedFile> open(const std::string& path);
  // kIo if the file has changed since it was opened.
  Result<ReferenceFile> reference(bool embedded) const;

 private:
  HashedFile(InputFile file, std::string digest)
      : file_(std::move(file)), sha256_(std::move(digest)) {}
  InputFile file_;
  std::string sha256_;
};

}  // namespace ferry::proof
