// BundlePlan plans every byte of every file of a bundle, and writes the files. Weight bytes are
// moved only here. See docs/bundle_format.md.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/memory_folder.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "graph/lower.h"
#include "graph/recipe.h"
#include "packer/manifest.h"
#include "packer/weight_files.h"

namespace ferry::packer {

// A file that is copied into the bundle, or one whose contents are given as text.
struct CopiedFile {
  std::string name;                            // name in the bundle
  std::shared_ptr<const InputFile> file = {};  // nullptr if there is a text
  std::optional<std::string> text = std::nullopt;
};

// An adapter that becomes a data file of the bundle.
struct AdapterInput {
  std::string name;
  graph::StateDict factors = {};          // has every name of LoweredProgram::factors
  std::vector<size_t> source_files = {};  // indices of its files in TensorSource::files()
};

struct BundleInput {
  // Description of the model. The writer fills in components, tensors, files and digests.
  Manifest manifest;
  // The methods of one component in one program.
  struct Part {
    std::shared_ptr<graph::LoweredProgram> lowered;  // with `one_program`, that of all parts
    // Has every key that lowered->weights and lowered->named contain.
    const graph::StateDict* weights = nullptr;
    int32_t first_layer = 0, layer_count = 0;
    std::vector<std::string> methods = {};  // names in the program; empty: all methods
  };
  struct Component {
    std::string role;
    std::vector<Part> parts;        // one per shard, in order
    std::string weight_dtype = {};  // see ManifestComponent::weight_dtype
    std::string quantization = {};  // see ManifestComponent::quantization
  };
  std::vector<Component> components;
  // Whether components share one program, model.pte. Each of them has one part. The program's
  // method `forward` of a component has the name of the component's role, if there are several
  // components.
  bool one_program = false;
  std::vector<AdapterInput> adapters = {};  // by name
  std::vector<CopiedFile> copied;
};

// The destination of a bundle.
struct BundleTarget {
  std::string directory;
  bool overwrite = false;  // an existing bundle is replaced
  // Keeps finished work when the run is stopped or killed. The next run with the same plan
  // continues from it (docs/crash_consistency.md).
  bool resume = false;
  // Whether write() returns only when the bundle is on the disk. If false, a power failure may
  // leave a part of the bundle; if the process ends early, the result is still all or nothing. If
  // false, kUsage with `resume` or `parts`.
  bool synced = true;
  // A directory with parts of the bundle, which together contain all data files. They are moved
  // into the bundle and checked as with `resume`. Empty: none.
  std::string parts = {};
  // If set, called with the directory in which the bundle is complete, before it gets its name. The
  // function may add the signature of the bundle; an error leaves the target as it was.
  std::function<Status(const std::string& directory)> finish = {};
};

// Selects the data files that one of several hosts writes.
struct BundlePart {
  size_t number = 1, count = 1;  // `number` counts from 1
};

struct WrittenPart {
  std::vector<PlannedFile> files;
  uint64_t bytes = 0;
  uint64_t resumed_bytes = 0;  // bytes of weights that an earlier run had written
};

struct WrittenBundle {
  Manifest manifest;                        // as written
  std::vector<NonFiniteWeight> non_finite;  // in the order of the manifest
  uint64_t resumed_bytes = 0;               // bytes of weights that an earlier run had written
};

// The plan of a bundle. It knows the exact size of every file, because digests have a fixed length.
class BundlePlan {
 public:
  struct Impl;
  // `max_file_bytes` 0 means unlimited. kUsage if a single tensor does not fit a file.
  static Result<BundlePlan> make(BundleInput input, const TensorSource& source,
                                 uint64_t max_file_bytes);
  const std::vector<PlannedFile>& files() const;
  uint64_t total_bytes() const;
  // Returns the manifest as it will be written, except that digests are zeros.
  const Manifest& manifest() const;

  // `index` is an index into manifest().programs(). program() returns the program, and further
  // functions return the contents of its constants and the bytes [offset, offset + out.size()) of
  // its file, whose size is in files().
  const pte::Program& program(size_t index) const;
  const std::vector<graph::Literal>& constants(size_t index) const;
  void read_program(size_t index, uint64_t offset, std::span<std::byte> out) const;

  // Writes the bundle into a temporary sibling of `directory`, syncs it, and renames it. Afterwards
  // the directory is complete, or as it was before. `progress(done, total)` counts payload bytes;
  // it may be empty. kExists for an existing directory unless `overwrite`. kUnsupported, with every
  // tensor, if the cast to a smaller dtype turned finite values into infinities, or if NaN or
  // infinity would have to be quantised. kIo, before anything is written, if the disk has too
  // little space. kInterrupted: see core/interrupt.h.
  Result<WrittenBundle> write(const BundleTarget& target, ThreadPool& pool,
                              const std::function<void(uint64_t, uint64_t)>& progress) const;
  Result<WrittenBundle> write(const std::string& directory, bool overwrite, ThreadPool& pool,
                              const std::function<void(uint64_t, uint64_t)>& progress) const {
    return write({.directory = directory, .overwrite = overwrite, .resume = false}, pool, progress);
  }

  // Writes the files to memory, for Bundle::open().
  Result<MemoryFolder> write_to_memory(ThreadPool& pool, const ShowProgress& progress) const;

  // Writes the data files of a part and the record of their digests into a directory of its own,
  // which is complete or absent afterwards, as write() with `resume` does. The sizes of the data
  // files decide which part each of them belongs to. kUsage if a part would have no file.
  Result<WrittenPart> write_part(const BundleTarget& target, const BundlePart& part,
                                 ThreadPool& pool, const ShowProgress& progress) const;

  // Returns why a bundle with the manifest `existing` differs from what the plan would write now;
  // empty if it does not. Reads and hashes the sources of the plan, but no file of the bundle.
  // `progress` counts bytes.
  Result<std::string> difference(const Manifest& existing, ThreadPool& pool,
                                 const ShowProgress& progress = {}) const;

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace ferry::packer
