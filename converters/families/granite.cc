// Granite 3 (dense): Llama with multipliers of embeddings, attention scores, residuals and logits.
// Source: transformers, models/granite/modeling_granite.py.

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::granite {
namespace {

using namespace gguf_tables;

Status read(const JsonFields& fields, ModelConfig& config) {
  ScalarConfig& out = config.scalars;
  out.embedding = FERRY_TRY(fields.number_or("embedding_multiplier", kScaleRange, 1.0));
  out.scales_rows = true;
  out.residual = FERRY_TRY(fields.number_or("residual_multiplier", kScaleRange, 1.0));
  out.attention = FERRY_TRY(fields.number_or("attention_multiplier", kScaleRange, 1.0));
  out.logits = 1.0 / FERRY_TRY(fields.number_or("logits_scaling", kScaleRange, 1.0));
  return {};
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "granite",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 2048})",
               .attention_bias = true,
               .mlp_bias = true,
               .read = read}},
    .components = {{.rules = llama_rules, .build = build_llama}},
    .gguf = {{.name = "granite",
              .tokenizer_keys = {.sentence_piece = true, .llama = true},
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
              .multipliers = true,
              .keys = granite_keys(),
              .rope_factors = true,
              .equal_heads = true}}};

}  // namespace ferry::converters::families::granite
