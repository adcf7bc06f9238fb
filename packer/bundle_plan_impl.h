// The implementation of BundlePlan, which the planner and the writer share. Private to packer/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/ptd/ptd.h"
#include "packer/adapter_file.h"
#include "packer/bundle_plan.h"
#include "packer/file_set.h"

namespace ferry::packer {

// Files are in the order of manifest.files, copied ones in the order of input.copied.
struct BundlePlan::Impl : FileSet {
  BundleInput input;
  std::vector<const BundleInput::Part*> parts;  // parts of all components, in order
  Manifest manifest;                            // digests are zeros
  // For manifest.tensors[i]: the index into `weights`, the number of the output among all outputs,
  // and the source entries of its sources.
  std::vector<size_t> tensor_weight;
  std::vector<size_t> tensor_segment;
  std::vector<std::vector<size_t>> tensor_entries;
  AdapterWeights adapter_weights;
  std::vector<PlannedFile> listing;  // all files and the manifest
  uint64_t total_bytes = 0;
};

// The positions of the weights of all parts in data files. Plain data; place_weights() makes it.
struct WeightPlacement {
  struct Stored {
    const graph::Recipe* recipe = nullptr;
    std::vector<const graph::Weight*> keys;  // names of the weight, in order of first use
  };
  struct DataFile {
    size_t part = 0;
    std::vector<size_t> stored;  // stored weights; their outputs are consecutive segments
    std::vector<ptd::NamedTensor> tensors;
    std::vector<uint64_t> sizes;  // sizes of the segments
    ptd::Layout layout;
  };
  std::vector<Stored> stored;
  std::vector<DataFile> files;                  // by part
  std::vector<std::vector<size_t>> part_files;  // the files that each part loads, ascending
};

// `max_file_bytes` 0 means unlimited. kUsage if a tensor does not fit a file of its own.
Result<WeightPlacement> place_weights(std::span<const BundleInput::Part* const> parts,
                                      uint64_t max_file_bytes);

}  // namespace ferry::packer
