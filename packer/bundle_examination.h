// Opening and checking a bundle share one walk over everything that can be wrong. Private to
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
#include "formats/pte/reader.h"
#include "packer/bundle_reader.h"
#include "packer/manifest.h"

namespace ferry::packer {

// The name of the signature that a bundle may contain. The signature is made after the bundle, so
// no manifest lists it. `ferry check` with a key verifies it (docs/signing.md).
inline constexpr std::string_view kSignatureName = "model.sig";

// Collects problems of the files of one bundle. Files without a directory are named by their paths.
class ProblemList {
 public:
  explicit ProblemList(std::string directory) : directory_(std::move(directory)) {}

  // Adds a problem; the message is the path of `file` followed by `what`.
  void add(const std::string& file, const std::string& what, ErrorCode code = ErrorCode::kBadInput);
  // Adds an error whose message already begins with a path.
  void add(const std::string& file, const Error& error);

  bool empty() const { return problems_.empty(); }
  size_t size() const { return problems_.size(); }
  std::string path_of(const std::string& file) const {
    return directory_.empty() ? file : directory_ + "/" + file;
  }
  // Returns the path of `file` for the beginning of messages.
  std::string name_of(const std::string& file) const;
  std::vector<CheckProblem> take() { return std::move(problems_); }

 private:
  std::string directory_;
  std::vector<CheckProblem> problems_;
};

// The usable files of the manifest, by name.
using OpenFilesByName = std::map<std::string, InputFile>;
struct OpenBundleFiles {
  const OpenFilesByName& open;
  const std::map<std::string, MappedFile>& mapped;  // the mapped files among them
};

// The contents are complete only if there are no problems.
struct BundleContents {
  Manifest manifest;
  OpenFilesByName open_files;
  std::vector<BundleProgram> programs;
  std::map<std::string, BundleData> data;
  uint64_t files = 0, bytes = 0;
};

enum class DigestKind {
  kNone,
  // XXH3 if the manifest states it; SHA-256 of damaged files, which finds the tensor
  kFast,
  kSha256,  // SHA-256, and XXH3 if the manifest states it
};

// Returns an error only if the directory cannot be listed. All other problems are added to
// `problems`.
Result<BundleContents> examine_bundle(const std::string& directory, DigestKind digests,
                                      ThreadPool& pool, const ShowProgress& progress,
                                      ProblemList& problems);

// The dtype and shape of a tensor in data files and programs, where two codes of i4 are one u8.
struct StoredType {
  DType dtype = DType::kF32;
  Shape shape = {};
  bool operator==(const StoredType&) const = default;
};
StoredType stored_type(DType dtype, const Shape& shape);

// Returns the backends that a runtime needs for the delegates of a program: each once, in order of
// first use.
std::vector<std::string> backends_of(const pte::Program& program);

// Formats a type, such as "f32 [1, 4]".
std::string describe_type(DType dtype, const Shape& shape);

// Checks the manifest alone (packer/manifest_structure.cc): unique names, references between its
// lists, methods of a component that fit together.
void check_manifest(const Manifest& manifest, ProblemList& problems);
// Checks the tensors of one data file against the manifest.
void check_data_file(const Manifest& manifest, const std::string& file,
                     const ptd::DataFile& content, ProblemList& problems);
// Checks the tensors of an adapter against those of Manifest::no_adapter: equal names, in equal
// order, of equal types.
void check_adapter_file(const ptd::DataFile& without, const std::string& file,
                        const ptd::DataFile& content, ProblemList& problems);
// Checks the sizes of the model against the inputs and outputs that the manifest states for the
// programs (packer/model_structure.cc), and against the metadata methods of one program.
void check_model(const Manifest& manifest, ProblemList& problems);
void check_model_of_program(const Manifest& manifest, const ManifestProgram& entry,
                            const pte::Program& program, ProblemList& problems);
// The part of check_model() for the inputs of the vision encoder (packer/picture_structure.cc).
void check_pictures(const Manifest& manifest, ProblemList& problems);
// Hashes every byte of the files in parallel (packer/digest_check.cc). Files whose digests differ
// from the manifest are removed from the usable files. Requires check_manifest(). `only`, unless it
// is null, names the files that are hashed.
void check_digests(const Manifest& manifest, const std::set<std::string>* only,
                   OpenFilesByName& files, ThreadPool& pool, const ShowProgress& progress,
                   ProblemList& problems);
// Returns the open files that cannot be read or whose XXH3 digests differ from the manifest
// (packer/digest_check.cc). The manifest must have these digests.
std::set<std::string> find_damage(const Manifest& manifest, const OpenBundleFiles& files,
                                  ThreadPool& pool, const ShowProgress& progress);
// Checks one program against its entry, and its external tensors against the data files that it
// loads.
void check_program(const ManifestProgram& entry, const pte::Program& program,
                   const std::map<std::string, BundleData>& data, ProblemList& problems);

// Returns the keys that delegates of XnnpackBackend need and the program file does not have: each
// once, in order of first use. `name` of the program begins the messages.
Result<std::vector<std::string>> keys_of_delegates(const pte::LoadedProgram& loaded,
                                                   const std::string& name);

// Checks the calls of XnnpackBackend in a program against the graphs of its blobs, and the size of
// each key's data in the data files that the program loads. With `contents` it also checks that
// scales are positive and normal. Data files that are not in `data` have been reported before.
void check_delegates(const ManifestProgram& entry, const pte::LoadedProgram& loaded,
                     const std::map<std::string, BundleData>& data, bool contents,
                     ProblemList& problems);

}  // namespace ferry::packer
