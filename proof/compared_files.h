// Describes the files that a bundle was compared with, for reports and attestations: the files of a
// checkpoint and the file of a reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json_writer.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/manifest.h"
#include "plan/conversion.h"

namespace ferry::proof {

// Reads and hashes every tensor that the conversion reads. The result has the form of the
// manifest's source files. Needs the memory of one block per thread.
Result<std::vector<packer::ManifestSourceFile>> digest_sources(const plan::Conversion& conversion,
                                                               ThreadPool& pool);

// Whether both lists have equal files, in any order.
bool same_files(std::vector<packer::ManifestSourceFile> a,
                std::vector<packer::ManifestSourceFile> b);

// Writes the member `files` of an open object.
void write_source_files(JsonWriter& json, const std::vector<packer::ManifestSourceFile>& files);

// The file of a reference.
struct ReferenceFile {
  std::string name;       // file name without directories
  bool embedded = false;  // the file is inside a bundle
  uint64_t bytes = 0;
  std::string sha256;  // SHA-256 of the whole file
  size_t prompts = 0;
};

// A file that is hashed before it is used, and must not change afterwards.
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
