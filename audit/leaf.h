// Leaf: a range of bytes of a file, and what it is for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"

namespace ferry::audit {

enum class LeafKind {
  kWeight,
  kConstant,    // inside of a program, or of the blob of a delegate
  kBufferInit,  // what a mutable buffer holds before the first call
  kProgram,     // methods, values and instructions
  kDelegate,    // the blob of a delegate, without its constants
  kHeader,      // of a container of tensors: names, shapes, places
  kPadding,
  kManifest,
  kTokenizer,
  kReference,
  kMetadata,  // config files, key/value pairs
  kOther,
  kUnaccounted
};
inline constexpr size_t kLeafKinds = 13;
std::string_view name_of(LeafKind kind);
std::optional<LeafKind> kind_from_name(std::string_view name);

// Leaf::use of tensors that are no values of the model themselves.
inline constexpr std::string_view kScales = "scales";

struct Leaf {
  uint32_t file = 0;  // index into Audit::files
  uint64_t offset = 0, bytes = 0;
  LeafKind kind = LeafKind::kOther;
  std::string name = {};       // untrusted
  std::string component = {};  // as component_of() has it
  std::optional<int64_t> layer = {};
  std::string dtype = {};     // of a tensor's values; empty for anything else
  std::string encoding = {};  // how the file stores them, where that is another form
  Shape shape = {};
  // Values of the model: 0 for scales of codes, and for parts of a tensor after the first one.
  uint64_t elements = 0;
  std::string rule = {};  // of the manifest
  // For a constant: the operators that read it. "scales" of what scales codes.
  std::string use = {};
  std::vector<std::string> tied = {};  // further names of the same bytes
  uint32_t part = 0;                   // counts the ranges of one tensor
  bool unused = false;                 // nothing refers to these bytes
  // What the values are known to be: "zero" (all bytes), "constant" (one value), "bf16" or "f16"
  // (f32 that those dtypes hold without loss); else empty.
  std::string content = {};
  std::string sha256 = {};  // of the bytes, where it is known

  bool is_tensor() const { return !dtype.empty(); }
};

// tile() cuts a file into leaves without gaps and overlaps, from ranges that may
// overlap, nest or leave gaps.

struct Claim {
  Leaf leaf;      // offset, bytes and what they are
  int level = 0;  // where claims overlap, the bytes belong to the one of the highest level
};

// Describes the bytes between claims; tile() sets offset and bytes.
using GapRule = std::function<Leaf(uint64_t offset, uint64_t bytes)>;
// Padding where the gap is shorter than the alignment of what follows it or ends the file within
// 128 bytes, else unaccounted.
GapRule padding_rule(uint64_t file_bytes);

// Ascending leaves whose sizes add up to `file_bytes`. Claims of one level that have the same range
// become one leaf, the others its tied names, and so do claims that are nowhere on top, but for
// those of unused bytes. A claim
// that is cut into several ranges becomes several leaves, numbered by Leaf::part. Claims without
// bytes stay as they are. What leaves the file is ignored.
std::vector<Leaf> tile(uint32_t file, uint64_t file_bytes, std::vector<Claim> claims,
                       const GapRule& gap);

}  // namespace ferry::audit
