// Leaf: a range of bytes of a file, and what it is for.
#pragma once

#include <cstdint>
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
  // Of a constant: the operators that read it. "scales" of what scales codes.
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

}  // namespace ferry::audit
