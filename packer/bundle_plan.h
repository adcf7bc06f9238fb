// BundlePlan plans every file of a bundle to the byte, and writes them. Only here do weight
// bytes move. See docs/bundle_format.md.
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

// A file taken into the bundle as it is, or one whose contents are given.
struct CopiedFile {
  std::string name;                            // in the bundle
  std::shared_ptr<const InputFile> file = {};  // nullptr where there is a text
  std::optional<std::string> text = std::nullopt;
};

struct BundleInput {
  // Everything about the model; components, tensors, files and digests are filled in by the writer.
  Manifest manifest;
  // One program.
  struct Part {
    graph::LoweredProgram lowered;
    const graph::StateDict* weights = nullptr;  // has every key in lowered.weights and .named
    int32_t first_layer = 0, layer_count = 0;
  };
  struct Component {
    std::string role;
    std::vector<Part> parts;        // one per shard, in order
    std::string weight_dtype = {};  // as ManifestComponent::weight_dtype
    std::string quantization = {};  // as ManifestComponent::quantization
  };
  std::vector<Component> components;
  std::vector<CopiedFile> copied;
};

// Where a bundle is written to.
struct BundleTarget {
  std::string directory;
  bool overwrite = false;  // an existing bundle is replaced
  // What is done stays when the run is stopped or killed, and the next one with the same plan goes
  // on with it (docs/crash_consistency.md).
  bool resume = false;
  // Whether it is on the disk before write() returns. Where it is not, a power failure may leave a
  // part of it; the end of the process still leaves all or nothing. kUsage with `resume` or `parts`
  // unless true.
  bool synced = true;
  // A directory with parts of the bundle, which are moved into it: all data files are in one of
  // them. Everything is checked as with `resume`. Empty: none.
  std::string parts = {};
};

// The data files of a bundle that one of several hosts writes.
struct BundlePart {
  size_t number = 1, count = 1;  // number: from 1
};

struct WrittenPart {
  std::vector<PlannedFile> files;
  uint64_t bytes = 0;
  uint64_t resumed_bytes = 0;  // of weights that an earlier run had written
};

struct WrittenBundle {
  Manifest manifest;                        // as written
  std::vector<NonFiniteWeight> non_finite;  // in the order of the manifest
  uint64_t resumed_bytes = 0;               // of weights that an earlier run had written
};

// The plan: exact sizes of every file but the manifest's digests, which have fixed length too.
class BundlePlan {
 public:
  struct Impl;
  // `max_file_bytes` 0 is unlimited; kUsage if a single tensor does not fit.
  static Result<BundlePlan> make(BundleInput input, const TensorSource& source,
                                 uint64_t max_file_bytes);
  const std::vector<PlannedFile>& files() const;
  uint64_t total_bytes() const;
  // As it will be written, with zeros for digests.
  const Manifest& manifest() const;

  // manifest().programs()[index]: the program, the contents of its constants, and bytes [offset,
  // offset + out.size()) of its file, which has the size that files() states.
  const pte::Program& program(size_t index) const;
  const std::vector<graph::Literal>& constants(size_t index) const;
  void read_program(size_t index, uint64_t offset, std::span<std::byte> out) const;

  // `progress(done, total)` counts payload bytes; may be empty. Writes into a temporary sibling of
  // `directory`, syncs, and renames: afterwards the directory is complete or untouched. An existing
  // directory is an error unless `overwrite`. kUnsupported, with every tensor, where the cast to a
  // smaller dtype made infinities of finite values, and where NaN or infinity would have to be
  // quantised; kIo, before anything is written, where there is no room for it. kInterrupted:
  // core/interrupt.h.
  Result<WrittenBundle> write(const BundleTarget& target, ThreadPool& pool,
                              const std::function<void(uint64_t, uint64_t)>& progress) const;
  Result<WrittenBundle> write(const std::string& directory, bool overwrite, ThreadPool& pool,
                              const std::function<void(uint64_t, uint64_t)>& progress) const {
    return write({.directory = directory, .overwrite = overwrite, .resume = false}, pool, progress);
  }

  // Writes the files to memory, to be opened by Bundle::open().
  Result<MemoryFolder> write_to_memory(ThreadPool& pool, const ShowProgress& progress) const;

  // Writes the data files of a part and the record of their digests to a directory of its own, in
  // one step, as write() with `resume`. Every data file belongs to one part, by its size. kUsage
  // where a part would have none.
  Result<WrittenPart> write_part(const BundleTarget& target, const BundlePart& part,
                                 ThreadPool& pool, const ShowProgress& progress) const;

  // Why a bundle of this manifest is not what the plan would make of the checkpoint as it is now;
  // empty: it is. Reads and hashes what the plan refers to, and nothing of the bundle; `progress`
  // tells the bytes.
  Result<std::string> difference(const Manifest& existing, ThreadPool& pool,
                                 const ShowProgress& progress = {}) const;

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace ferry::packer
