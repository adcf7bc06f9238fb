// A small audit that is made by hand.
#pragma once

#include <string>

#include "audit/audit.h"

namespace ferry::audit {

// A weight of layer 0 in f32.
inline Leaf tensor_leaf(uint32_t file, uint64_t offset, uint64_t bytes, const std::string& name,
                        const std::string& sha256 = {}) {
  return Leaf{.file = file,
              .offset = offset,
              .bytes = bytes,
              .kind = LeafKind::kWeight,
              .name = name,
              .component = "attn.q",
              .layer = 0,
              .dtype = "f32",
              .shape = {static_cast<int64_t>(bytes / 4)},
              .elements = bytes / 4,
              .sha256 = sha256};
}

inline Leaf other_leaf(uint32_t file, uint64_t offset, uint64_t bytes, LeafKind kind) {
  return Leaf{.file = file, .offset = offset, .bytes = bytes, .kind = kind};
}

// Two files of a checkpoint, with a tensor each, and the memory of two methods.
inline Audit small_audit() {
  Audit audit{.name = "old", .type = "checkpoint"};
  audit.files = {{"a.safetensors", 100, "safetensors"}, {"b.safetensors", 60, "safetensors"}};
  audit.leaves = {other_leaf(0, 0, 20, LeafKind::kHeader), tensor_leaf(0, 20, 80, "x", "aa"),
                  other_leaf(1, 0, 20, LeafKind::kHeader), tensor_leaf(1, 20, 40, "y", "bb")};
  audit.leaves[1].tied = {"x_too"};
  audit.memory.emplace();
  audit.memory->methods = {{.file = 0, .name = "m", .activation_bytes = 7, .state_bytes = 5},
                           {.file = 0, .name = "n", .activation_bytes = 9, .state_bytes = 5}};
  return audit;
}

}  // namespace ferry::audit
