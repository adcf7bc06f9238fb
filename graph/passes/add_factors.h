// add_factors adds the low-rank factors of adapters (LoRA, arXiv 2106.09685) to linear and
// embedding nodes. The factors are external tensors, so one program serves any number of adapters.
//
//   linear      x W^T + ((x A^T) B^T) * scale   A [rank,in], B [out,rank], scale [1]
//   embedding   W[id] + (A[id] B^T) * scale     A [entries,rank], B [out,rank], scale [1]
//
// Magnitudes (DoRA, arXiv 2402.09353) multiply the sum by a gain [out], before any bias.
//
// A and B are stored in one dtype for all, and computed with in f32; the others are f32. As codes
// of 8 bits (i8) a row of them has one scale: of A of a linear layer [rank], of a table [entries],
// of B [out].
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "graph/graph.h"

namespace ferry::graph {

// A weight that takes factors.
struct FactorSlot {
  std::string weight;     // runtime name, such as "layers.0.attention.wq.weight"
  bool is_table = false;  // of embedding nodes, not of linear ones
  int64_t rank = 0;       // adapters of smaller ranks are padded with zeros
  bool has_gain = false;  // one of the adapters has magnitudes
  bool operator==(const FactorSlot&) const = default;
};
struct FactorSlots {
  std::vector<FactorSlot> slots = {};
  DType dtype = DType::kF32;  // of A and B: f32, f16, bf16 or i8
  // The contents of all factors by name, for programs that are executed in memory; the bytes must
  // outlive the graphs. Empty: those that change nothing.
  std::map<std::string, std::span<const std::byte>, std::less<>> contents = {};
};

// The names of the external tensors of a slot, such as "layers.0.attention.wq.lora_a.weight": those
// of ExecuTorch's LoRALinear (examples/models/llama/lora.py), to which scale and gain are
// added. Only slots with has_gain have a gain, and only factors of i8 have scales of their codes.
struct FactorNames {
  std::string a, b, scale, gain, a_scales, b_scales;
};
FactorNames factor_names(const FactorSlot& slot);
// Returns the slot whose scale has this name, without rank and gain; nullopt for other names.
std::optional<FactorSlot> slot_of_scale(std::string_view name);

// The value of `scale` without an adapter, where A and B are zeros. Products are then -0, and the
// sum with -0 is the other number, also where that is -0; the sum with 0 is not.
inline constexpr float kNoScale = -0.0F;
inline constexpr float kNoGain = 1.0F;

// Adds the factors of the slots whose weights the model has. The model must be bound and neither
// quantised nor cast. kUnsupported, with the weight, if something else than linear (or embedding)
// nodes use it.
Result<Model> add_factors(Model model, const FactorSlots& slots);

}  // namespace ferry::graph
