// Bundle: a validated bundle directory, mapped and ready to execute or to inspect. A library of its
// own, so that the runner never links the graph.
#pragma once

#include <cstddef>
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

// A handle: copies share the same mapped files, which stay where they are as long as any copy
// lives.
class Bundle {
 public:
  // Reads the manifest, maps the files, validates all structure: file list and sizes, programs,
  // data files, that every external tensor is found with equal dtype and shape, that probes, ports
  // and buffers are what the manifest says. With `check_digests` every byte is hashed as well,
  // of which `progress` tells the bytes.
  static Result<Bundle> open(const std::string& directory, bool check_digests, ThreadPool& pool,
                             const ShowProgress& progress = {});
  // Opens a bundle in order to execute it: every byte is hashed by XXH3 where the manifest has
  // these digests (version 7), and by SHA-256 where it has not.
  static Result<Bundle> open_to_execute(const std::string& directory, ThreadPool& pool,
                                        const ShowProgress& progress = {});

  // One that has just been written to memory: structure is validated, bytes are not hashed. `path`
  // is what it is called.
  static Result<Bundle> open(MemoryFolder files, const std::string& path, ThreadPool& pool);

  // The directory; of programs without a manifest, the file of the text decoder.
  const std::string& path() const { return parts_->path; }
  // The path of one of its programs or data files.
  std::string path_of(const std::string& file) const {
    return parts_->is_loose ? file : parts_->path + "/" + file;
  }
  // Where the files of text() are.
  const std::string& text_directory() const { return parts_->text_directory; }
  const Manifest& manifest() const { return parts_->manifest; }
  // The programs of all components, in the order of manifest().programs().
  const std::vector<BundleProgram>& programs() const { return parts_->programs; }
  // What the manifest says of programs()[index].
  const ManifestProgram& entry(size_t index) const { return *parts_->manifest.programs()[index]; }
  // Indices into programs() of one component's, in order of execution; empty if there is none.
  std::vector<size_t> programs_of(std::string_view role) const;
  const std::map<std::string, BundleData>& data() const { return parts_->data; }  // by file name
  // The other files that the manifest lists, such as tokenizer.json: they stay open, so that these
  // are the bytes that were checked.
  bool has_text(const std::string& name) const { return parts_->other_files.contains(name); }
  // kIo where there is none of this name, or it has changed since.
  Result<std::string> text(const std::string& name, uint64_t limit) const;
  // Data files of programs()[index], in manifest order.
  std::vector<const BundleData*> data_of(size_t index) const;

 private:
  struct Parts {
    std::shared_ptr<const MemoryFolder> memory =
        {};  // where the files are, if it is not a directory
    std::string path;
    Manifest manifest;
    std::vector<BundleProgram> programs;
    std::map<std::string, BundleData> data;
    std::map<std::string, InputFile> other_files;
    std::string text_directory;
    bool is_loose = false;  // without a manifest: files are named by their paths
  };
  friend Result<Bundle> open_loose_programs(const LoosePrograms& files);
  static Result<Bundle> open(const std::string& directory, DigestKind digests, ThreadPool& pool,
                             const ShowProgress& progress);
  explicit Bundle(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  static Bundle of(BundleContents contents, const std::string& path,
                   std::shared_ptr<const MemoryFolder> memory);

  std::shared_ptr<const Parts> parts_;
};

}  // namespace ferry::packer
