// FileSet describes files that are planned to the byte and not yet written. It is the input of the
// file writer. Private to packer/.
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

// A range of bytes of a planned file. Bytes that no extent covers are zero.
struct Extent {
  enum class Kind {
    kHead,     // from FilePlan::head
    kLiteral,  // from FilePlan::literals[index], which Ferry makes
    kBlob,     // from FilePlan::blobs[index], which are known bytes
    kWeight,   // an output of FileSet::weights[index], made from the checkpoint
    kCopy,     // from FileSet::copied[index], a file that is copied
  } kind;
  size_t index = 0;
  uint64_t offset = 0;  // position in the file
  uint64_t bytes = 0;
  size_t output = 0;  // number of the output, for kWeight
};

struct FilePlan {
  std::string name;
  uint64_t bytes = 0;
  bool has_weights = false;  // such a file has only a head and blobs beside weights
  // For a file with weights: the digest is taken over all bytes, which are read again for it, and
  // not over the digests of the segments.
  bool plain_digest = false;
  // For a file with weights in which some bytes depend on the CRC-32 of each weight: receives the
  // CRCs in the order of the extents, and returns bytes that are written last, over the others.
  std::function<std::vector<FileBytes>(std::span<const uint32_t>)> finishing = nullptr;
  std::vector<std::byte> head;
  std::vector<const graph::Literal*> literals;
  std::vector<std::span<const std::byte>> blobs;
  std::vector<Extent> extents;  // ascending and disjoint; outputs of a weight are consecutive
};

struct FileSet {
  const TensorSource* source = nullptr;
  std::vector<FilePlan> files;
  std::vector<const graph::Recipe*> weights;  // each is stored once
  // For each weight, the number of its first output among all outputs.
  std::vector<size_t> first_segment;
  size_t segments = 0;  // number of outputs of all weights
  std::vector<std::shared_ptr<const InputFile>> copied;
  bool source_digests = true;  // compute digests of the source tensors that are read
  bool fast_digests = true;    // compute XXH3 digests of files beside SHA-256
};

}  // namespace ferry::packer
