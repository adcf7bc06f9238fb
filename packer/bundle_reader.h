// Bundle is a validated bundle directory, mapped and ready to be executed or inspected;
// check_bundle() finds everything that is wrong with a bundle. The reader is a library of its own,
// so that the runner does not link the graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/memory_folder.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/reader.h"
#include "packer/manifest.h"

namespace ferry::packer {

struct BundleProgram {
  MappedFile file;
  pte::LoadedProgram loaded;
};
struct BundleData {
  MappedFile file;
  ptd::DataFile content;
};

struct BundleContents;  // packer/bundle_examination.h
struct LoosePrograms;   // packer/loose_programs.h
enum class DigestKind;

// Handle of an open bundle. Copies share the mapped files, whose addresses are valid as long as any
// copy lives.
class Bundle {
 public:
  // Reads the manifest, maps the files and validates all structure: the list of files and their
  // sizes, programs, data files, dtype and shape of every external tensor, and that probes, inputs,
  // outputs and buffers agree with the manifest. With `check_digests` every byte is hashed as well;
  // `progress` counts these bytes.
  static Result<Bundle> open(const std::string& directory, bool check_digests, ThreadPool& pool,
                             const ShowProgress& progress = {});
  // Opens a bundle in order to execute it. Every byte is hashed, by XXH3 if the manifest has these
  // digests (version 7), otherwise by SHA-256.
  static Result<Bundle> open_to_execute(const std::string& directory, ThreadPool& pool,
                                        const ShowProgress& progress = {});

  // Opens a bundle that has just been written to memory. Structure is validated, bytes are not
  // hashed. `path` is the name of the bundle in messages.
  static Result<Bundle> open(MemoryFolder files, const std::string& path, ThreadPool& pool);

  // Returns the path of the directory or, for programs without a manifest, of the text decoder's
  // file.
  const std::string& path() const { return parts_->path; }
  // Returns the path of one of the bundle's programs or data files.
  std::string path_of(const std::string& file) const {
    return parts_->is_loose ? file : parts_->path + "/" + file;
  }
  // Returns the directory of the files that text() reads.
  const std::string& text_directory() const { return parts_->text_directory; }
  const Manifest& manifest() const { return parts_->manifest; }
  // Returns the programs of all components, in the order of manifest().programs().
  const std::vector<BundleProgram>& programs() const { return parts_->programs; }
  // Returns the manifest's entry of programs()[index].
  const ManifestProgram& entry(size_t index) const { return *parts_->manifest.programs()[index]; }
  // Returns the indices into programs() of one component, in order of execution; empty if the
  // bundle does not have the component.
  std::vector<size_t> programs_of(std::string_view role) const;
  const std::map<std::string, BundleData>& data() const { return parts_->data; }  // by file name
  // Whether the manifest lists this other file, such as tokenizer.json. These files stay open, so
  // that text() reads the bytes that were checked.
  bool has_text(const std::string& name) const { return parts_->other_files.contains(name); }
  // Returns the content of a file. kIo if the file is not listed or has changed since it was
  // opened.
  Result<std::string> text(const std::string& name, uint64_t limit) const;
  // Returns the data files of programs()[index], in manifest order, with that of the chosen adapter
  // in the place of Manifest::no_adapter.
  std::vector<const BundleData*> data_of(size_t index) const;

  // Returns the same bundle with another adapter chosen, or with none if `name` is empty. kUsage,
  // with the names of the adapters, if there is none of this name.
  Result<Bundle> with_adapter(std::string_view name) const;
  // Returns the name of the chosen adapter; empty for none.
  std::string adapter() const { return adapter_ == nullptr ? std::string() : adapter_->name; }

 private:
  struct Parts {
    std::shared_ptr<const MemoryFolder> memory =
        {};  // where the files are if they are not in a directory
    std::string path;
    Manifest manifest;
    std::vector<BundleProgram> programs;
    std::map<std::string, BundleData> data;
    std::map<std::string, InputFile> other_files;
    std::string text_directory;
    bool is_loose = false;  // the programs have no manifest, and files are named by their paths
  };
  friend Result<Bundle> open_loose_programs(const LoosePrograms& files);
  static Result<Bundle> open(const std::string& directory, DigestKind digests, ThreadPool& pool,
                             const ShowProgress& progress);
  explicit Bundle(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  static Bundle of(BundleContents contents, const std::string& path,
                   std::shared_ptr<const MemoryFolder> memory);

  std::shared_ptr<const Parts> parts_;
  const ManifestAdapter* adapter_ = nullptr;  // the chosen one; it belongs to parts_
};

struct CheckProblem {
  ErrorCode code = ErrorCode::kBadInput;
  std::string file;     // name in the bundle; empty for the directory itself
  std::string message;  // one line that begins with the path
};

struct CheckReport {
  std::string directory;
  uint64_t files = 0;  // number of files in the manifest, plus one for the manifest
  uint64_t bytes = 0;  // bytes of those files that exist
  std::vector<CheckProblem> problems = {};
  bool ok() const { return problems.empty(); }
};

// Hashes every byte and validates all structure. Damage inside the directory is reported as
// problems. kIo or kBadInput if `directory` is not a directory that can be listed; kBadInput if it
// contains no file of a bundle. `progress` counts the bytes that are hashed.
Result<CheckReport> check_bundle(const std::string& directory, ThreadPool& pool,
                                 const ShowProgress& progress = {});

}  // namespace ferry::packer
