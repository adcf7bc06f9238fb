// Cohere's Command R and R+. Source: transformers, models/cohere/modeling_cohere.py.

#include "converters/blocks/cohere.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::cohere {
namespace {

using namespace gguf_tables;
using enum GgufKey;

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "cohere",
               .defaults = R"({"vocab_size": 256000, "hidden_size": 8192,
                               "intermediate_size": 22528, "logit_scale": 0.0625,
                               "num_hidden_layers": 40, "num_attention_heads": 64,
                               "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
                               "rope_theta": 500000.0, "tie_word_embeddings": true})",
               .names = {{"rms_norm_eps", {"layer_norm_eps"}}},
               .flags = {{"use_qk_norm", kCohereQkNorm}},
               .attention_bias = true,
               .read = read_cohere}},
    .components = {{.rules = cohere_rules, .build = build_cohere}},
    .gguf = {{.name = "command-r",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kMlp},
              .layer_norm = true,
              .logit_scale = true,
              .flags = {{"blk.{i}.attn_q_norm.weight", "use_qk_norm"}},
              .keys = standard_keys({kLogitScale, kRopeScaling}),
              .unread = {kOutputBias},
              .tied_head = true,
              .qk_norm_layers = 64}}};

}  // namespace ferry::converters::families::cohere
