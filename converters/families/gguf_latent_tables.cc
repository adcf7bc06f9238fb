// The tensors of latent attention in GGUF files, where keys and values of heads are apart.
#include <vector>

#include "converters/families/gguf_tables.h"
#include "converters/keys/row_layouts.h"

namespace ferry::converters::gguf_tables {
namespace {

// kv_b_proj has the rows of each head's keys, then those of its values. Files have the keys
// transposed.
struct LatentHeads {
  explicit LatentHeads(const ModelConfig& c)
      : plain(c.number("qk_nope_head_dim")),
        value(c.number("v_head_dim")),
        rank(c.number("kv_lora_rank")) {}
  int64_t row() const { return plain + value; }
  int64_t plain, value, rank;
};

constexpr GgufForm kLatentKeys = {.written =
                                      [](const ModelConfig& c) {
                                        const LatentHeads s(c);
                                        StridedPiece elements;
                                        add_axis(elements, {c.num_heads, s.row() * s.rank});
                                        add_axis(elements, {s.rank, 1});
                                        add_axis(elements, {s.plain, s.rank});
                                        return std::vector<StridedPiece>{elements};
                                      },
                                  .written_shape =
                                      [](const ModelConfig& c) {
                                        const LatentHeads s(c);
                                        return std::vector{c.num_heads, s.rank, s.plain};
                                      }};
constexpr GgufForm kLatentValues = {.written =
                                        [](const ModelConfig& c) {
                                          const LatentHeads s(c);
                                          StridedPiece elements{.offset = s.plain * s.rank};
                                          add_axis(elements, {c.num_heads, s.row() * s.rank});
                                          add_axis(elements, {s.value * s.rank, 1});
                                          return std::vector<StridedPiece>{elements};
                                        },
                                    .written_shape =
                                        [](const ModelConfig& c) {
                                          const LatentHeads s(c);
                                          return std::vector{c.num_heads, s.value, s.rank};
                                        }};
constexpr GgufForm kUnsplit = {.read_only = true};

constexpr GgufName kLatentAttentionRows[] = {
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight"},
    {"blk.{i}.attn_q_a.weight", "model.layers.{i}.self_attn.q_a_proj.weight"},
    {"blk.{i}.attn_q_a.bias", "model.layers.{i}.self_attn.q_a_proj.bias"},
    {"blk.{i}.attn_q_a_norm.weight", "model.layers.{i}.self_attn.q_a_layernorm.weight"},
    {"blk.{i}.attn_q_b.weight", "model.layers.{i}.self_attn.q_b_proj.weight"},
    {"blk.{i}.attn_kv_a_mqa.weight", "model.layers.{i}.self_attn.kv_a_proj_with_mqa.weight"},
    {"blk.{i}.attn_kv_a_mqa.bias", "model.layers.{i}.self_attn.kv_a_proj_with_mqa.bias"},
    {"blk.{i}.attn_kv_a_norm.weight", "model.layers.{i}.self_attn.kv_a_layernorm.weight"},
    {"blk.{i}.attn_kv_b.weight", "model.layers.{i}.self_attn.kv_b_proj.weight", kUnsplit},
    {"blk.{i}.attn_k_b.weight", "model.layers.{i}.self_attn.k_b_proj.weight"},
    {"blk.{i}.attn_v_b.weight", "model.layers.{i}.self_attn.v_b_proj.weight"},
    {"blk.{i}.attn_k_b.weight", "model.layers.{i}.self_attn.kv_b_proj.weight", kLatentKeys},
    {"blk.{i}.attn_v_b.weight", "model.layers.{i}.self_attn.kv_b_proj.weight", kLatentValues},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight"},
    {"blk.{i}.attn_output.bias", "model.layers.{i}.self_attn.o_proj.bias"},
};

constexpr GgufName kWholeLatentAttentionRows[] = {
    {"blk.{i}.attn_q_a.weight", "model.layers.{i}.self_attn.q_a_proj.weight"},
    {"blk.{i}.attn_q_a_norm.weight", "model.layers.{i}.self_attn.q_a_layernorm.weight"},
    {"blk.{i}.attn_q_b.weight", "model.layers.{i}.self_attn.q_b_proj.weight"},
    {"blk.{i}.attn_kv_a_mqa.weight", "model.layers.{i}.self_attn.kv_a_proj_with_mqa.weight"},
    {"blk.{i}.attn_kv_a_norm.weight", "model.layers.{i}.self_attn.kv_a_layernorm.weight"},
    {"blk.{i}.attn_kv_b.weight", "model.layers.{i}.self_attn.kv_b_proj.weight"},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight"},
};

}  // namespace

constinit const GgufNames kWholeLatentAttention = kWholeLatentAttentionRows;
constinit const GgufNames kLatentAttention = kLatentAttentionRows;

}  // namespace ferry::converters::gguf_tables
