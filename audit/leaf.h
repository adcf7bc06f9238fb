// A Leaf is a range of bytes of a file with its purpose. tile() cuts a file into leaves.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace ferry::audit {

enum class LeafKind {
  kWeight,
  kConstant,    // a constant inside a program or a delegate's blob
  kBufferInit,  // contents of a mutable buffer before the first call
  kProgram,     // methods, values and instructions
  kDelegate,    // the blob of a delegate, without its constants
  kHeader,      // names, shapes and offsets in a tensor file
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

// Leaf::use of scales and zero points, whose elements do not count as parameters of the model.
inline constexpr std::string_view kScales = "scales";

struct Leaf {
  uint32_t file = 0;  // index into Audit::files
  uint64_t offset = 0, bytes = 0;
  LeafKind kind = LeafKind::kOther;
  std::string name = {};       // untrusted text
  std::string component = {};  // Component::name of a tensor, or "program", "files", "padding"
  std::optional<int64_t> layer = {};
  std::string dtype = {};     // dtype of the tensor's values; empty if the leaf is no tensor
  std::string encoding = {};  // block encoding and filters; empty if values are stored plainly
  Shape shape = {};
  // Number of parameters; 0 for scales and zero points, and for all parts of a tensor but the
  // first.
  uint64_t elements = 0;
  std::string rule = {};  // ManifestTensor::rule
  // The operators or backend that read a constant; kScales for scales and zero points.
  std::string use = {};
  std::vector<std::string> tied = {};  // further names of the same bytes
  uint32_t part = 0;                   // index among the ranges of one tensor
  bool unused = false;                 // nothing refers to these bytes
  // Property of all values: "zero" (all bytes are 0), "constant" (all are equal), "bf16" or "f16"
  // (f32 values that this dtype holds without loss), or empty.
  std::string content = {};
  std::string sha256 = {};  // hex digest of the bytes; empty if not known

  bool is_tensor() const { return !dtype.empty(); }
};

// A range that a file's structure describes. Claims may overlap, nest and leave gaps.
struct Claim {
  Leaf leaf;
  int level = 0;  // bytes that several claims cover belong to the claim with the highest level
};

// Describes a range that no claim covers. tile() sets Leaf::offset and Leaf::bytes of the result.
using GapRule = std::function<Leaf(uint64_t offset, uint64_t bytes)>;
// A gap is padding if it is shorter than the alignment of the offset where it ends (at most 64
// KiB), or, at the end of the file, shorter than 128 bytes. Other gaps are unaccounted.
GapRule padding_rule(uint64_t file_bytes);

// Returns ascending leaves whose sizes add up to `file_bytes`. Claims of one level with equal
// ranges become one leaf with tied names. The name of a claim that higher levels cover completely
// becomes a tied name too, unless the claim is of unused bytes. A claim that is cut into several
// ranges becomes several leaves, numbered by Leaf::part. A claim of 0 bytes becomes a leaf of 0
// bytes. A claim that exceeds the file is ignored.
std::vector<Leaf> tile(uint32_t file, uint64_t file_bytes, std::vector<Claim> claims,
                       const GapRule& gap);

}  // namespace ferry::audit
