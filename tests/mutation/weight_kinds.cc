// Wrong conversions of matrices of attention, MLP, embedding and head, and of single values.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "tests/mutation/kinds.h"

namespace ferry::mutation {
namespace {

using Excluded = decltype(Kind::excluded);

// -- attention

void swap_k_v(Checkpoint& c, const Facts& f) {
  const int64_t i = f.attention.back();
  for (const char* leaf : {"weight", "bias"}) {
    const auto k = f.part(i, Part::kKey, leaf);
    if (k) swap_rows(c, *k, f.rows(i, Part::kValue, leaf));
  }
}

void swap_heads(Checkpoint& c, const Facts& f, std::initializer_list<Part> parts) {
  const int64_t i = f.attention.back();
  for (const Part part : parts) {
    for (const char* leaf : {"weight", "bias"}) {
      if (!f.part(i, part, leaf)) continue;
      swap_rows(c, f.head_rows(i, part, 0, leaf), f.head_rows(i, part, f.heads_of(part) - 1, leaf));
    }
  }
}

std::string one_kv_head(const Checkpoint&, const Facts& f) {
  if (f.kv_heads == 1) return "has one key head";
  return f.kv_heads == f.heads ? "has a key head for every query head: no order to keep but q's"
                               : "";
}

// Returns the order of the rotated rows of a head under the other RoPE convention.
std::vector<int64_t> other_convention(const Facts& f, int64_t width) {
  std::vector<int64_t> order;
  const int64_t half = f.rotary_dim / 2;
  for (int64_t i = 0; i < width; ++i) {
    const bool turned = i < f.rotary_dim;
    order.push_back(!turned         ? i
                    : f.paired_rope ? (i < half ? 2 * i : 2 * (i - half) + 1)
                                    : i / 2 + i % 2 * half);
  }
  return order;
}

std::string no_pairs(const Checkpoint&, const Facts& f) {
  return f.turned.empty() || f.rotary_dim < 4 ? "turns one pair only" : "";
}

void mix_rope_conventions(Checkpoint& c, const Facts& f) {
  const int64_t i = f.turned.back();
  for (const Part part : {Part::kQuery, Part::kKey}) {
    for (const char* leaf : {"weight", "bias"}) {
      for (int64_t h = 0; f.part(i, part, leaf) && h < f.heads_of(part); ++h) {
        const Rows rows = f.head_rows(i, part, h, leaf);
        reorder_rows(c, rows, other_convention(f, static_cast<int64_t>(rows.at.size())));
      }
    }
  }
}

std::string no_gate(const Checkpoint&, const Facts& f) {
  return f.output_gate ? "" : "its attention has no output gate";
}

// Reads all queries, then all gates, instead of head by head.
void split_output_gate(Checkpoint& c, const Facts& f) {
  const Rows all = f.rows(f.attention.back(), Part::kQuery);
  std::vector<int64_t> order;
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t h = 0; h < f.heads; ++h) {
      for (int64_t d = 0; d < f.head_dim; ++d) order.push_back((2 * h + half) * f.head_dim + d);
    }
  }
  reorder_rows(c, all, order);
}

void zero_q_head(Checkpoint& c, const Facts& f) {
  zero_rows(c, f.head_rows(f.attention.back(), Part::kQuery, f.heads - 1));
}

std::string no_packed_qkv(const Checkpoint&, const Facts& f) {
  return f.first_of(0, {"self_attn.qkv_proj.weight", "attn.qkv_proj.weight", "attn.c_attn.weight",
                        "attention.query_key_value.weight"})
                 .empty()
             ? "stores q, k and v apart"
             : "";
}

// Reads [q | k | v] for the blocks of CodeGen and the heads of GPT-NeoX, and head by head where the
// layout is [q | k | v].
void read_qkv_by_other_layout(Checkpoint& c, const Facts& f) {
  const int64_t i = f.attention.back();
  const Rows all = f.rows(i, Part::kQuery);
  Rows whole{all.key, {}};
  std::vector<int64_t> order;
  if (f.model_type == "codegen" || f.model_type == "gpt_neox") {
    for (const Part part : {Part::kQuery, Part::kKey, Part::kValue}) {
      for (int64_t row : f.rows(i, part).at) order.push_back(row);
    }
  } else {
    for (int64_t h = 0; h < f.kv_heads; ++h) {
      const int64_t group = f.heads / f.kv_heads;
      for (int64_t q = h * group; q < (h + 1) * group; ++q) {
        for (int64_t row : f.head_rows(i, Part::kQuery, q).at) order.push_back(row);
      }
      for (const Part part : {Part::kKey, Part::kValue}) {
        for (int64_t row : f.head_rows(i, part, h).at) order.push_back(row);
      }
    }
  }
  for (size_t row = 0; row < order.size(); ++row) whole.at.push_back(static_cast<int64_t>(row));
  reorder_rows(c, whole, order);
}

// -- MLP

std::string no_gated_mlp(const Checkpoint&, const Facts& f) {
  return f.gated.empty() ? "has no dense MLP with a gate" : "";
}

void swap_gate_up(Checkpoint& c, const Facts& f) {
  const int64_t i = f.gated.back();
  for (const char* leaf : {"weight", "bias"}) {
    const auto gate = f.part(i, Part::kGate, leaf);
    if (gate) swap_rows(c, *gate, f.rows(i, Part::kUp, leaf));
  }
}

std::string no_packed_gate_up(const Checkpoint&, const Facts& f) {
  return f.first_of(0, {"mlp.gate_up_proj.weight"}).empty() ? "stores gate and up apart" : "";
}

void interleave_gate_up(Checkpoint& c, const Facts& f) {
  const int64_t i = f.gated.back();
  const Rows gate = f.rows(i, Part::kGate);
  Rows all = gate;
  for (int64_t row : f.rows(i, Part::kUp).at) all.at.push_back(row);
  std::vector<int64_t> order;
  for (size_t row = 0; row < gate.at.size(); ++row) {
    order.push_back(static_cast<int64_t>(row));
    order.push_back(static_cast<int64_t>(row + gate.at.size()));
  }
  reorder_rows(c, all, order);
}

// -- layers

struct Pair {
  int64_t a = -1, b = -1;
  std::string leaf;
};

// Returns a matrix that two layers have in the same shape. Output projections come first: their
// rows have no meaning of their own, so nothing hides the exchange.
Pair common_matrix(const Checkpoint& c, const Facts& f) {
  for (const bool outputs : {true, false}) {
    for (int64_t b = f.layers - 1; b > 0; --b) {
      for (const std::string& leaf : f.matrices_of(b)) {
        const bool output = leaf.find("o_proj") != leaf.npos || leaf.find("out_proj") != leaf.npos;
        for (int64_t a = 0; a < b && output == outputs; ++a) {
          const std::string other = f.layer(a) + leaf;
          if (c.has(other) && c.tensors.at(other).shape == c.tensors.at(f.layer(b) + leaf).shape) {
            return {a, b, leaf};
          }
        }
      }
    }
  }
  return {};
}

std::string no_common_matrix(const Checkpoint& c, const Facts& f) {
  return common_matrix(c, f).leaf.empty() ? "no two layers have a matrix in common" : "";
}

void take_other_layers_matrix(Checkpoint& c, const Facts& f) {
  const Pair pair = common_matrix(c, f);
  c.at(f.layer(pair.b) + pair.leaf) = c.at(f.layer(pair.a) + pair.leaf);
}

Pair like_layers(const Checkpoint& c, const Facts& f) {
  for (int64_t b = f.layers - 1; b > 0; --b) {
    for (int64_t a = 0; a < b; ++a) {
      const std::vector<std::string> keys = f.keys_of(a);
      const bool same =
          keys == f.keys_of(b) && std::ranges::all_of(keys, [&](const auto& leaf) {
            return c.tensors.at(f.layer(a) + leaf).shape == c.tensors.at(f.layer(b) + leaf).shape;
          });
      if (same) return {a, b, ""};
    }
  }
  return {};
}

std::string no_like_layers(const Checkpoint& c, const Facts& f) {
  return like_layers(c, f).a < 0 ? "no two layers have the same tensors" : "";
}

void exchange_layers(Checkpoint& c, const Facts& f) {
  const Pair pair = like_layers(c, f);
  for (const std::string& leaf : f.keys_of(pair.a)) {
    swap_tensors(c, f.layer(pair.a) + leaf, f.layer(pair.b) + leaf);
  }
}

std::string square_matrix(const Checkpoint& c, const Facts& f) {
  for (int64_t i = f.layers - 1; i >= 0; --i) {
    for (const std::string& leaf : f.matrices_of(i)) {
      const Shape& shape = c.tensors.at(f.layer(i) + leaf).shape;
      if (shape[0] == shape[1]) return f.layer(i) + leaf;
    }
  }
  return "";
}

std::string no_square(const Checkpoint& c, const Facts& f) {
  return square_matrix(c, f).empty() ? "no matrix is square: a shape tells" : "";
}

void transpose_square(Checkpoint& c, const Facts& f) {
  Tensor& matrix = c.at(square_matrix(c, f));
  const Tensor before = matrix;
  const auto size = static_cast<size_t>(matrix.shape[0]);
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j < size; ++j) matrix.set_value(i * size + j, before.value(j * size + i));
  }
}

// -- embedding and head

Excluded only(bool tied) {
  return [tied](const Checkpoint&, const Facts& f) -> std::string {
    if (f.tied == tied) return "";
    return tied ? "its head is not tied" : "its head is tied";
  };
}

void set_tie(Checkpoint& c, bool tied) {
  c.config["tie_word_embeddings"] = tied;
  if (c.config.contains("tie_embedding")) c.config["tie_embedding"] = tied;
}

void tie_untied_head(Checkpoint& c, const Facts& f) {
  set_tie(c, true);
  c.tensors.erase(f.head);
}

void embed_by_head(Checkpoint& c, const Facts& f) { c.at(f.embedding) = c.at(f.head); }

std::vector<int64_t> rolled(int64_t count) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) order.push_back((i + 1) % count);
  return order;
}

Rows every_row(const Checkpoint& c, const std::string& key) {
  Rows rows{key, {}};
  for (int64_t i = 0; i < c.tensors.at(key).rows(); ++i) rows.at.push_back(i);
  return rows;
}

// Adds a head with rows that differ from those of the embedding.
void untie_head(Checkpoint& c, const Facts& f) {
  set_tie(c, false);
  c.tensors[f.head] = c.at(f.embedding);
  const Rows rows = every_row(c, f.head);
  reorder_rows(c, rows, rolled(static_cast<int64_t>(rows.at.size())));
}

void shift_embedding(Checkpoint& c, const Facts& f) {
  const Rows rows = every_row(c, f.embedding);
  reorder_rows(c, rows, rolled(static_cast<int64_t>(rows.at.size())));
}

constexpr int64_t kRow = 7;

void zero_head_row(Checkpoint& c, const Facts& f) {
  zero_rows(c, {f.tied ? f.embedding : f.head, {kRow}});
}

// -- single values

// Flips the lowest bit of the exponent: the value doubles or halves. The bits of a bf16 are the
// upper half of those of an f32.
void flip_exponent_bit(Tensor& tensor, size_t element) {
  const size_t bytes = tensor.dtype == DType::kF32 ? 4 : 2;
  const size_t high = bytes * element + bytes - 2;  // the second highest byte
  if (tensor.dtype == DType::kF16) {
    tensor.bytes[high + 1] = static_cast<char>(tensor.bytes[high + 1] ^ 0x04);
  } else {
    tensor.bytes[high] = static_cast<char>(tensor.bytes[high] ^ 0x80);
  }
}

void flip_in_norm(Checkpoint& c, const Facts& f) { flip_exponent_bit(c.at(f.final_norm), 3); }

size_t largest(const Tensor& tensor) {
  size_t found = 0;
  const size_t count = static_cast<size_t>(tensor.rows()) * tensor.row_bytes() * 8 /
                       static_cast<size_t>(dtype_bits(tensor.dtype));
  for (size_t i = 1; i < count; ++i) {
    if (std::abs(tensor.value(i)) > std::abs(tensor.value(found))) found = i;
  }
  return found;
}

// Flips a bit in the largest value of a matrix that every token uses.
void flip_in_matrix(Checkpoint& c, const Facts& f) {
  const std::string key = f.first_of(
      f.layers - 1, {"self_attn.o_proj.weight", "self_attn.out_proj.weight", "attn.out_proj.weight",
                     "self_attn.dense.weight", "attn.c_proj.weight", "attention.dense.weight"});
  if (key.empty()) throw std::runtime_error("no output projection");
  flip_exponent_bit(c.at(key), largest(c.at(key)));
}

// Flips a bit in the embedding of a token that is in no prompt.
void flip_in_unused_row(Checkpoint& c, const Facts& f) {
  Tensor& table = c.at(f.embedding);
  flip_exponent_bit(table, 2 * static_cast<size_t>(table.shape[1]) + 5);
}

std::string bias_of(const Facts& f) {
  for (const char* leaf : {"self_attn.v_proj.bias", "conv.out_proj.bias", "mlp.fc_out.bias",
                           "attn.c_proj.bias", "attention.dense.bias"}) {
    for (int64_t i = f.layers - 1; i >= 0; --i) {
      if (f.has(f.layer(i) + leaf)) return f.layer(i) + leaf;
    }
  }
  return "";
}

std::string no_bias(const Checkpoint&, const Facts& f) {
  return bias_of(f).empty() ? "has no biases" : "";
}

void zero_bias(Checkpoint& c, const Facts& f) { zero_rows(c, every_row(c, bias_of(f))); }

std::string no_flagged_bias(const Checkpoint& c, const Facts&) {
  return c.config.value("attention_bias", false) ? ""
                                                 : "its config has no flag for biases that is set";
}

void drop_attention_biases(Checkpoint& c, const Facts&) {
  c.config["attention_bias"] = false;
  if (c.config.contains("attention_out_bias")) c.config["attention_out_bias"] = false;
  std::erase_if(c.tensors, [](const auto& item) {
    const bool attention = item.first.find("self_attn.") != item.first.npos ||
                           item.first.find(".attention.") != item.first.npos;
    return attention && item.first.ends_with(".bias");
  });
}

std::vector<Kind> attention_weight_kinds() {
  const auto q = [](Checkpoint& c, const Facts& f) { swap_heads(c, f, {Part::kQuery}); };
  const auto kv = [](Checkpoint& c, const Facts& f) {
    swap_heads(c, f, {Part::kKey, Part::kValue});
  };
  return {
      {"k_v_swapped", no_attention, swap_k_v},
      {"q_heads_permuted", no_attention, q},
      {"kv_heads_permuted", one_kv_head, kv},
      {"rope_halves_for_pairs", no_pairs, mix_rope_conventions},
      {"output_gate_in_halves", no_gate, split_output_gate},
      {"q_head_zeroed", no_attention, zero_q_head},
      {"packed_qkv_layout", no_packed_qkv, read_qkv_by_other_layout},
      {"gate_up_swapped", no_gated_mlp, swap_gate_up},
      {"packed_gate_up_layout", no_packed_gate_up, interleave_gate_up},
  };
}

std::vector<Kind> place_kinds() {
  return {
      {"matrix_of_other_layer", no_common_matrix, take_other_layers_matrix},
      {"layers_exchanged", no_like_layers, exchange_layers},
      {"square_transposed", no_square, transpose_square},
      {"head_is_embedding", only(false), tie_untied_head},
      {"embedding_is_head", only(false), embed_by_head},
      {"tied_head_untied", only(true), untie_head},
      {"embedding_shifted", none, shift_embedding},
      {"head_row_zeroed", none, zero_head_row},
      {"exponent_bit_in_norm", none, flip_in_norm},
      {"exponent_bit_in_matrix",
       [](const Checkpoint&, const Facts& f) -> std::string {
         return f.attention.empty() || f.attention.back() != f.layers - 1
                    ? "its last layer has no attention"
                    : "";
       },
       flip_in_matrix},
      {.name = "exponent_bit_in_unused_row",
       .excluded = none,
       .change = flip_in_unused_row,
       .invisible = [](const Facts&) { return std::string("no prompt has the token"); }},
      {"bias_zeroed", no_bias, zero_bias},
      {"biases_dropped", no_flagged_bias, drop_attention_biases},
  };
}

}  // namespace

std::vector<Kind> weight_kinds() {
  std::vector<Kind> kinds = attention_weight_kinds();
  for (Kind& kind : place_kinds()) kinds.push_back(std::move(kind));
  return kinds;
}

}  // namespace ferry::mutation
