// Qwen3-Next in its dense form. The input projections of the linear layers are packed per key head:
// in_proj_qkvz as q, k, v, z and in_proj_ba as b, a.
// Source: transformers, models/qwen3_next/modeling_qwen3_next.py.

#include <algorithm>

#include "converters/families/families.h"
#include "converters/hybrid.h"
#include "converters/packed_keys.h"
#include "converters/standard_keys.h"

namespace ferry::families {
namespace {

// Experts are a block of their own; a model is dense when every layer is listed as such.
Status check(const ModelConfig& config) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool listed = std::ranges::count(config.mlp_only_layers, layer) > 0;
    if (!listed && config.num_experts > 0 && (layer + 1) % config.decoder_sparse_step == 0) {
      return fail(ErrorCode::kUnsupported,
                  "config.json: qwen3_next with experts is not supported (num_experts " +
                      std::to_string(config.num_experts) + ", layer " + std::to_string(layer) +
                      " is not in mlp_only_layers)");
    }
  }
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat({hybrid_rules("model.", config),
                 packed_delta_net_rules("model.", PackedLayout::kInterleaved),
                 {head_rule(),
                  drop_rule("mtp.*", "multi-token prediction: not part of the model's output")}});
}

}  // namespace

const FamilySpec kQwen3Next = {.model_types = {"qwen3_next"},
                               .check = check,
                               .rules = rules,
                               .ties = standard_ties,
                               .build = build_hybrid};

}  // namespace ferry::families
