// LFM2: gated short convolutions in most layers, attention with normed q and k in the others.
// Source: transformers, models/lfm2/modeling_lfm2.py.

#include <fmt/format.h>

#include "converters/blocks/lfm2.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::lfm2 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr FloatRange kMultiplierRange = {1e-3, 1e3};

// The MLP has two thirds of the stated size, times a multiplier, rounded up to a multiple.
Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_lfm2(fields, config));
  if (!FERRY_TRY(fields.flag_or("block_auto_adjust_ff_dim", true))) return {};
  int64_t& size = config.intermediate_size;
  size = 2 * size / 3;
  if (const auto multiplier =
          FERRY_TRY(fields.number("block_ffn_dim_multiplier", kMultiplierRange))) {
    const int64_t multiple = FERRY_TRY(fields.required("block_multiple_of", kSizeRange));
    const auto scaled = static_cast<int64_t>(*multiplier * static_cast<double>(size));
    size = multiple * ((scaled + multiple - 1) / multiple);
  }
  if (size >= kSizeRange.min && size <= kSizeRange.max) return {};
  return fields.bad("intermediate_size", fmt::format("becomes {} by the block_ settings", size));
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "lfm2",
               .defaults = R"({"vocab_size": 65536, "hidden_size": 2560, "intermediate_size": 12288,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "num_key_value_heads": 8, "max_position_embeddings": 128000,
                               "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
                               "tie_word_embeddings": true, "block_auto_adjust_ff_dim": true,
                               "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0,
                               "conv_L_cache": 3})",
               .names = {{"rms_norm_eps", {"norm_eps"}},
                         {"intermediate_size", {"block_ff_dim", "intermediate_size"}},
                         {"tie_word_embeddings", {"tie_embedding", "tie_word_embeddings"}}},
               .activation_key = "",
               .lists_layers = true,
               .convs = true,
               .read = read}},
    .components = {{.rules = lfm2_rules, .build = build_lfm2}},
    .gguf = {{.name = "lfm2",
              .tables = {kLfm2},
              .without_heads = "conv",
              .own_keys = GgufOwnKeys::kShortConvs,
              .keys = standard_keys({kVocabulary, kShortConv}),
              .equal_heads = true}}};

}  // namespace ferry::converters::families::lfm2
