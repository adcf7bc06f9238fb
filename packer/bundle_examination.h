// What opening and checking a bundle share: one walk over everything that can be wrong. Private to
// packer/.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "packer/check.h"
#include "packer/manifest.h"

namespace ferry::packer {

// The name of the signature that a bundle may hold. It is made after the bundle, so no manifest
// lists it; `ferry check` with a key verifies it (docs/signing.md).
inline constexpr std::string_view kSignatureName = "model.sig";

// Collects problems of the files of one bundle; files of no directory are named by their paths.
class ProblemList {
 public:
  explicit ProblemList(std::string directory) : directory_(std::move(directory)) {}

  // `what` goes behind the path of `file`.
  void add(const std::string& file, const std::string& what, ErrorCode code = ErrorCode::kBadInput);
  // An error whose message already begins with a path.
  void add(const std::string& file, const Error& error);

  bool empty() const { return problems_.empty(); }
  size_t size() const { return problems_.size(); }
  std::string path_of(const std::string& file) const {
    return directory_.empty() ? file : directory_ + "/" + file;
  }
  // For the beginning of messages.
  std::string name_of(const std::string& file) const;
  std::vector<CheckProblem> take() { return std::move(problems_); }

 private:
  std::string directory_;
  std::vector<CheckProblem> problems_;
};

// Those of the manifest that can be used, by name.
using OpenFilesByName = std::map<std::string, InputFile>;
struct OpenBundleFiles {
  const OpenFilesByName& open;
  const std::map<std::string, MappedFile>& mapped;  // some of them
};

// Complete only if there are no problems.
struct BundleContents {
  Manifest manifest;
  OpenFilesByName open_files;
  std::vector<BundleProgram> programs;
  std::map<std::string, BundleData> data;
  uint64_t files = 0, bytes = 0;
};

enum class DigestKind {
  kNone,
  // XXH3, where the manifest states it; SHA-256 of files that are damaged, which finds the tensor.
  kFast,
  kSha256,  // and XXH3, where the manifest states it
};

// An error only where the directory cannot be listed; everything else goes to `problems`.
Result<BundleContents> examine_bundle(const std::string& directory, DigestKind digests,
                                      ThreadPool& pool, const ShowProgress& progress,
                                      ProblemList& problems);

// What a data file and a program have for a tensor of the manifest: two codes of i4 are one u8.
struct StoredType {
  DType dtype = DType::kF32;
  Shape shape = {};
  bool operator==(const StoredType&) const = default;
};
StoredType stored_type(DType dtype, const Shape& shape);

// What a runtime must have to execute the delegates of a program: each once, in order of first use.
std::vector<std::string> backends_of(const pte::Program& program);

// "f32 [1, 4]"
std::string describe_type(DType dtype, const Shape& shape);

// The manifest in itself (packer/manifest_structure.cc): unique names, references between its
// lists, methods of a component that fit together.
void check_manifest(const Manifest& manifest, ProblemList& problems);
// Tensors of one data file against those that the manifest states for it.
void check_data_file(const Manifest& manifest, const std::string& file,
                     const ptd::DataFile& content, ProblemList& problems);
// The sizes of the model against the interface that the manifest states for the programs
// (packer/model_structure.cc), and against what one program says of itself.
void check_model(const Manifest& manifest, ProblemList& problems);
void check_model_of_program(const Manifest& manifest, const ManifestProgram& entry,
                            const pte::Program& program, ProblemList& problems);
// Hashes every byte of the files, in parallel (packer/digest_check.cc), and takes those out that
// are not what the manifest states. check_manifest() has been called.
// `only`, unless it is null, names the files that are hashed.
void check_digests(const Manifest& manifest, const std::set<std::string>* only,
                   OpenFilesByName& files, ThreadPool& pool, const ShowProgress& progress,
                   ProblemList& problems);
// Those of the open files that are not what the manifest states by XXH3, or that cannot be read
// (packer/digest_check.cc). The manifest has these digests.
std::set<std::string> find_damage(const Manifest& manifest, const OpenBundleFiles& files,
                                  ThreadPool& pool, const ShowProgress& progress);
// One program against its entry, and its external tensors against the data files it loads.
void check_program(const ManifestProgram& entry, const pte::Program& program,
                   const std::map<std::string, BundleData>& data, ProblemList& problems);

}  // namespace ferry::packer
