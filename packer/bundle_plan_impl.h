// The inside of a BundlePlan, shared by the planner and the writer. Private to packer/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/ptd/ptd.h"
#include "packer/bundle_plan.h"
#include "packer/file_set.h"

namespace ferry::packer {

// Files in the order of manifest.files, copied ones in the order of input.copied.
struct BundlePlan::Impl : FileSet {
  BundleInput input;
  std::vector<const BundleInput::Part*> parts;  // of all components, in order
  Manifest manifest;                            // with zeros for digests
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
