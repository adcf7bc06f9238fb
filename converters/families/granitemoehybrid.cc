// Granite 4 (dense: Micro, 1B, 350M): Granite whose MLP has gate and up in one tensor and the names
// of a shared expert. Source: transformers,
// models/granitemoehybrid/modeling_granitemoehybrid.py.

#include "converters/blocks/llama_like.h"
#include "converters/config/ranges.h"
#include "converters/families/families.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

Status read(const JsonFields& fields, ModelConfig& config) {
  if (FERRY_TRY(fields.required("num_local_experts", kExpertRange)) != 0) {
    return fields.error(ErrorCode::kUnsupported, "num_local_experts", "is not 0: not supported");
  }
  if (FERRY_TRY(fields.text("position_embedding_type")).value_or("") != "rope") {
    return fields.error(ErrorCode::kUnsupported, "position_embedding_type",
                        "is not rope: not supported");
  }
  if (fields.find("layer_types") == nullptr) {
    return fields.error(ErrorCode::kUnsupported, "layer_types",
                        "is missing: Mamba layers are not supported");
  }
  return kGranite.types.front().read(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string mlp = prefix + "layers.{i}.shared_mlp.";
  return concat(
      {standard_matrix_rules(prefix), standard_norm_rules(prefix),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false),
       packed_gate_up_rules(mlp + "input_linear", /*bias=*/false, PackedLayout::kConcatenated),
       rename_rules(mlp, {{"output_linear.weight", "layers.{i}.feed_forward.w2.weight"}})});
}

}  // namespace

const FamilySpec kGraniteMoeHybrid = {
    .types = {{.name = "granitemoehybrid",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 1024,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 2048, "num_local_experts": 8})",
               .names = {{"intermediate_size", {"shared_intermediate_size"}},
                         {"layer_types", {"layers_block_type", "layer_types"}}},
               .lists_layers = true,
               .attention_bias = true,
               .read = read}},
    .components = {{.rules = rules, .build = build_llama}}};

}  // namespace ferry::converters::families
