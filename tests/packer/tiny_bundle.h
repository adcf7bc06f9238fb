// A checkpoint in memory, and small programs with everything that a bundle can hold: external
// weights, constants, mutable buffers with and without contents, probes, and tensors that pass from
// shard to shard.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/tensor_source.h"
#include "packer/bundle_plan.h"
#include "packer/bundle_reader.h"
#include "tests/formats/temp_dir.h"

namespace ferry::packer {

std::vector<std::string> names_in(const std::string& directory);  // sorted
std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& bytes);
// Returns name -> contents of every file of a directory.
std::map<std::string, std::string> read_directory(const std::string& path);
std::string hex_digest(const std::string& bytes);

// Returns the tensor of this name, which `manifest` must have.
template <class M>
auto& tensor_named(M& manifest, const std::string& name) {
  return *std::ranges::find(manifest.tensors, name, &ManifestTensor::name);
}

class MemorySource : public TensorSource {
 public:
  // Adds a tensor of pseudo-random bytes, which depend on the order of calls alone.
  size_t add(const std::string& name, DType dtype, Shape shape, uint32_t file = 0);
  const std::string& bytes_of(size_t entry) const { return bytes_[entry]; }

  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status check_unchanged() const override;

  // Sets f32 element `index` of an entry to this value.
  void set(size_t entry, size_t index, float value) {
    std::memcpy(bytes_[entry].data() + index * sizeof value, &value, sizeof value);
  }
  // Makes reads of this entry fail.
  void fail_at(size_t entry) { failing_ = entry; }
  void pretend_change() { changed_ = true; }
  size_t reads_of(size_t entry) const { return read_[entry]; }

 private:
  std::string path_ = "checkpoint";
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<std::string> bytes_;
  mutable std::vector<size_t> read_;
  size_t failing_ = SIZE_MAX;
  bool changed_ = false;
};

// Makes a program with a method `forward` and a constant method. Every weight has the shape of its
// output in `weights`, and is an operand of a linear of its own. Inputs and outputs are f32 [1,4].
graph::LoweredProgram tiny_program(const graph::StateDict& weights,
                                   const std::vector<std::string>& names, const std::string& input,
                                   const std::string& output);

// Two shards over a checkpoint of six tensors: tied embeddings that both shards use, a cast, a row
// permutation, a stack of two tensors, and one tensor that is dropped.
struct TinyModel {
  TinyModel();
  BundleInput input() const;
  BundleInput one_shard() const;    // has two of the weights
  BundleInput two_methods() const;  // is input() with a method `decode` in each program

  MemorySource source;
  graph::StateDict weights;
  std::vector<CopiedFile> copied;
};

CopiedFile copied_file(const std::string& name, const std::string& path);

// Plans `model` and writes it to `directory`. Any error fails the test.
Manifest write_tiny_bundle(const TinyModel& model, const std::string& directory, size_t threads = 2,
                           uint64_t max_file_bytes = 0);

}  // namespace ferry::packer
