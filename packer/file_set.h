// Files that are planned to the byte and not yet written: the input of the file writer. Private to
// packer/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/tensor_source.h"
#include "graph/graph.h"
#include "graph/recipe.h"
#include "packer/weight_files.h"

namespace ferry::packer {

// A run of bytes of a planned file. What no extent covers is zero.
struct Extent {
  enum class Kind {
    kHead,     // FilePlan::head
    kLiteral,  // FilePlan::literals[index], made by us
    kBlob,     // FilePlan::blobs[index], known bytes
    kWeight,   // an output of FileSet::weights[index], from the checkpoint
    kCopy,     // FileSet::copied[index], a file as it is
  } kind;
  size_t index = 0;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
  size_t output = 0;  // of kWeight
};

struct FilePlan {
  std::string name;
  uint64_t bytes = 0;
  bool has_weights = false;  // then beside them a head and blobs at most
  // Of a file with weights: the digest is that of its bytes, which are read once more for it, and
  // not that of its segments.
  bool plain_digest = false;
  // Of a file with weights, where some bytes depend on the CRC-32 of each weight, which are given
  // in the order of the extents: what is written over the rest last.
  std::function<std::vector<FileBytes>(std::span<const uint32_t>)> finishing = nullptr;
  std::vector<std::byte> head;
  std::vector<const graph::Literal*> literals;
  std::vector<std::span<const std::byte>> blobs;
  std::vector<Extent> extents;  // ascending, disjoint; outputs of a weight follow each other
};

struct FileSet {
  const TensorSource* source = nullptr;
  std::vector<FilePlan> files;
  std::vector<const graph::Recipe*> weights;  // each stored once
  std::vector<size_t> first_segment;  // of each weight: the number of its first output among all
  size_t segments = 0;                // outputs of all weights
  std::vector<std::shared_ptr<const InputFile>> copied;
  bool source_digests = true;  // of tensors of the source that are read
  bool fast_digests = true;    // of files, beside SHA-256
};

}  // namespace ferry::packer
