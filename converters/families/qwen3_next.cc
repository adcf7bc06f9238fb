// Qwen3-Next, with experts or dense. The input projections of the linear layers are packed per key
// head: in_proj_qkvz as q, k, v, z and in_proj_ba as b, a.
// Source: transformers, models/qwen3_next/modeling_qwen3_next.py.

#include "converters/blocks/hybrid.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat({hybrid_rules("model.", config),
                 packed_delta_net_rules("model.", PackedLayout::kInterleaved),
                 {head_rule(),
                  drop_rule("mtp.*", "multi-token prediction: not part of the model's output")}});
}

}  // namespace

const FamilySpec kQwen3Next = {
    .model_types = {"qwen3_next"}, .rules = rules, .ties = standard_ties, .build = build_hybrid};

}  // namespace ferry::converters::families
