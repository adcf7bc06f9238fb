// The inside of a BundlePlan, shared by the planner and the writer. Private to packer/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "formats/ptd/ptd.h"
#include "packer/bundle_writer.h"

namespace ferry::packer {

// A run of bytes of a planned file. What no extent covers is zero.
struct Extent {
  enum class Kind {
    kHead,     // FilePlan::head
    kLiteral,  // FilePlan::literals[index], made by us
    kBlob,     // FilePlan::blobs[index], of a delegate
    kWeight,   // an output of Impl::weights[index], from the checkpoint
    kCopy,     // Impl::copied[index], a file as it is
  } kind;
  size_t index = 0;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
  size_t output = 0;  // of kWeight
};

struct FilePlan {
  std::string name;
  uint64_t bytes = 0;
  bool segmented = false;  // a data file: a head and weights
  std::vector<std::byte> head;
  std::vector<const graph::Literal*> literals;
  std::vector<std::span<const std::byte>> blobs;
  std::vector<Extent> extents;  // ascending, disjoint; outputs of a weight follow each other
};

struct BundlePlan::Impl {
  BundleInput input;
  std::vector<const BundleInput::Part*> parts;  // of all components, in order
  const TensorSource* source = nullptr;
  std::vector<FilePlan> files;                // in the order of manifest.files
  std::vector<const graph::Recipe*> weights;  // distinct recipes, each stored once
  std::vector<size_t> first_segment;  // of each weight: the number of its first output among all
  size_t segments = 0;                // outputs of all weights
  std::vector<std::shared_ptr<const InputFile>> copied;  // in the order of input.copied
  Manifest manifest;                                     // with zeros for digests
  // For manifest.tensors[i]: its index into `weights`, the number of its output among all, and the
  // source entries of its sources.
  std::vector<size_t> tensor_weight;
  std::vector<size_t> tensor_segment;
  std::vector<std::vector<size_t>> tensor_entries;
  std::vector<PlannedFile> listing;  // with the manifest
  uint64_t total_bytes = 0;
};

// Where the weights of all parts go. Plain data, made by place_weights().
struct WeightPlacement {
  struct Stored {
    const graph::Recipe* recipe = nullptr;
    std::vector<const graph::Weight*> keys;  // names that stand for it, in order of first use
  };
  struct DataFile {
    size_t part = 0;
    std::vector<size_t> stored;  // segments hold their outputs, one after the other
    std::vector<ptd::NamedTensor> tensors;
    std::vector<uint64_t> sizes;  // of segments
    ptd::Layout layout;
  };
  std::vector<Stored> stored;
  std::vector<DataFile> files;                  // by part
  std::vector<std::vector<size_t>> part_files;  // files that each part loads, ascending
};

// `max_file_bytes` 0 is unlimited. kUsage if a tensor does not fit a file of its own.
Result<WeightPlacement> place_weights(std::span<const BundleInput::Part* const> parts,
                                      uint64_t max_file_bytes);

}  // namespace ferry::packer
