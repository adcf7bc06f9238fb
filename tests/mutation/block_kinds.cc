// Wrong conversions of norms, experts, linear attention and convolutions.
#include <algorithm>
#include <array>

#include "tests/mutation/kinds.h"

namespace ferry::mutation {
namespace {

using Excluded = decltype(Kind::excluded);

size_t elements(const Tensor& tensor) {
  return tensor.bytes.size() * 8 / static_cast<size_t>(dtype_bits(tensor.dtype));
}

// -- norms

// The norm inside linear attention is a plain one in every family.
bool is_plain(const std::string& leaf) { return leaf == "linear_attn.norm.weight"; }

void shift(Tensor& norm, float by) {
  for (size_t i = 0; i < elements(norm); ++i) norm.set_value(i, norm.value(i) + by);
}

// Adds one where the family has plain norms. Subtracts one where its norms are 1 + w.
void shift_norms(Checkpoint& c, const Facts& f) {
  const float by = f.shifted_norms ? -1.0F : 1.0F;
  for (int64_t i = 0; i < f.layers; ++i) {
    for (const std::string& leaf : f.norms_of(i)) {
      if (!is_plain(leaf)) shift(c.at(f.layer(i) + leaf), by);
    }
  }
  shift(c.at(f.final_norm), by);
}

void shift_final_norm(Checkpoint& c, const Facts& f) {
  shift(c.at(f.final_norm), f.shifted_norms ? -1.0F : 1.0F);
}

std::string no_plain_norm(const Checkpoint&, const Facts& f) {
  return f.linear.empty() ? "all its norms are alike" : "";
}

// Treats the plain norm of linear attention as one of the shifted norms.
void shift_inner_norm(Checkpoint& c, const Facts& f) {
  shift(c.at(f.layer(f.linear.back()) + "linear_attn.norm.weight"), 1.0F);
}

void take_other_layers_norm(Checkpoint& c, const Facts& f) {
  const std::vector<std::string> norms = f.norms_of(1);
  for (const std::string& leaf : norms) {
    const std::string other = f.layer(0) + leaf;
    if (!c.has(other) || c.at(other) == c.at(f.layer(1) + leaf)) continue;
    c.at(f.layer(1) + leaf) = c.at(other);
    return;
  }
}

// Returns the norms of a layer that have the width of the hidden state.
std::vector<std::string> wide_norms(const Checkpoint& c, const Facts& f, int64_t i) {
  std::vector<std::string> wide;
  for (const std::string& leaf : f.norms_of(i)) {
    const Tensor& norm = c.tensors.at(f.layer(i) + leaf);
    if (norm.shape == c.tensors.at(f.final_norm).shape && leaf.find("self_attn") == leaf.npos) {
      wide.push_back(f.layer(i) + leaf);
    }
  }
  return wide;
}

std::string one_wide_norm(const Checkpoint& c, const Facts& f) {
  return wide_norms(c, f, f.layers - 1).size() < 2 ? "its layers have one norm" : "";
}

void rotate_norms(Checkpoint& c, const Facts& f) {
  const std::vector<std::string> norms = wide_norms(c, f, f.layers - 1);
  for (size_t i = 0; i + 1 < norms.size(); ++i) swap_tensors(c, norms[i], norms[i + 1]);
}

std::array<std::string, 2> qk_norms(const Checkpoint& c, const Facts& f) {
  for (const auto& [q, k] :
       {std::pair("self_attn.q_norm.weight", "self_attn.k_norm.weight"),
        std::pair("self_attn.q_layernorm.weight", "self_attn.k_layernorm.weight")}) {
    const std::string layer = f.layer(f.attention.back());
    if (c.has(layer + q)) return {layer + q, layer + k};
  }
  return {};
}

std::string no_qk_norm(const Checkpoint& c, const Facts& f) {
  return qk_norms(c, f)[0].empty() ? "norms neither q nor k" : "";
}

// The two norms may have different widths (several query heads for a key head, normed as a whole).
// Then the key's norm is repeated, and the query's norm is cut.
void swap_qk_norms(Checkpoint& c, const Facts& f) {
  const auto [q, k] = qk_norms(c, f);
  const Tensor q_norm = c.at(q), k_norm = c.at(k);
  for (size_t i = 0; i < elements(q_norm); ++i) {
    c.at(q).set_value(i, k_norm.value(i % elements(k_norm)));
  }
  for (size_t i = 0; i < elements(k_norm); ++i) c.at(k).set_value(i, q_norm.value(i));
}

// -- experts

std::string expert_key(const Facts& f, int64_t layer, int64_t expert, const char* matrix) {
  return f.layer(layer) + "mlp.experts." + std::to_string(expert) + "." + matrix + ".weight";
}

void rotate_left(std::string& bytes, size_t by) {
  std::rotate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(by), bytes.end());
}

void rotate_experts(Checkpoint& c, const Facts& f) {
  const int64_t i = f.experts.back();
  const Checkpoint before = c;
  if (f.fused_experts) {
    for (const char* leaf : {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}) {
      std::string& bytes = c.at(f.layer(i) + leaf).bytes;
      rotate_left(bytes, bytes.size() / static_cast<size_t>(f.expert_count));
    }
    return;
  }
  for (int64_t e = 0; e < f.expert_count; ++e) {
    for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
      c.at(expert_key(f, i, e, matrix)) =
          before.tensors.at(expert_key(f, i, (e + 1) % f.expert_count, matrix));
    }
  }
}

void swap_expert_gate_up(Checkpoint& c, const Facts& f) {
  const int64_t i = f.experts.back();
  swap_rows(c, f.expert_rows(i, 0, Part::kGate), f.expert_rows(i, 0, Part::kUp));
}

void rotate_router(Checkpoint& c, const Facts& f) {
  std::string& bytes = c.at(f.layer(f.experts.back()) + "mlp.gate.weight").bytes;
  rotate_left(bytes, bytes.size() / static_cast<size_t>(f.expert_count));
}

std::string no_shared_expert(const Checkpoint& c, const Facts& f) {
  const bool any =
      !f.experts.empty() && c.has(f.layer(f.experts.back()) + "mlp.shared_expert_gate.weight");
  return any ? "" : "has no shared expert";
}

void zero_shared_gate(Checkpoint& c, const Facts& f) {
  zero_rows(c, {f.layer(f.experts.back()) + "mlp.shared_expert_gate.weight", {0}});
}

void swap_shared_gate_up(Checkpoint& c, const Facts& f) {
  const std::string shared = f.layer(f.experts.back()) + "mlp.shared_expert.";
  swap_tensors(c, shared + "gate_proj.weight", shared + "up_proj.weight");
}

// -- linear attention

std::string linear_key(const Facts& f, const char* leaf) {
  return f.layer(f.linear.back()) + "linear_attn." + leaf;
}

void swap_a_log_dt_bias(Checkpoint& c, const Facts& f) {
  Tensor& a = c.at(linear_key(f, "A_log"));
  Tensor& dt = c.at(linear_key(f, "dt_bias"));
  for (size_t i = 0; i < elements(a); ++i) {
    const float value = a.value(i);
    a.set_value(i, dt.value(i));
    dt.set_value(i, value);
  }
}

// Returns rows [begin, begin + count) of every key head's group of `stride` rows.
Rows grouped(const std::string& key, int64_t groups, int64_t stride, int64_t begin, int64_t count) {
  Rows rows{key, {}};
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < count; ++i) rows.at.push_back(g * stride + begin + i);
  }
  return rows;
}

void swap_a_b(Checkpoint& c, const Facts& f) {
  const std::string packed = linear_key(f, "in_proj_ba.weight");
  if (!c.has(packed)) {
    swap_tensors(c, linear_key(f, "in_proj_a.weight"), linear_key(f, "in_proj_b.weight"));
    return;
  }
  const int64_t each = f.value_heads / f.key_heads;
  swap_rows(c, grouped(packed, f.key_heads, 2 * each, 0, each),
            grouped(packed, f.key_heads, 2 * each, each, each));
}

void swap_linear_q_k(Checkpoint& c, const Facts& f) {
  const std::string packed = linear_key(f, "in_proj_qkvz.weight");
  const int64_t each = f.value_heads / f.key_heads * f.value_dim;
  const bool grouped_rows = c.has(packed);
  const std::string key = grouped_rows ? packed : linear_key(f, "in_proj_qkv.weight");
  const int64_t groups = grouped_rows ? f.key_heads : 1;
  const int64_t width = grouped_rows ? f.key_dim : f.key_heads * f.key_dim;
  const int64_t stride = grouped_rows ? 2 * f.key_dim + 2 * each : 0;
  swap_rows(c, grouped(key, groups, stride, 0, width), grouped(key, groups, stride, width, width));
}

std::string no_packed_linear(const Checkpoint& c, const Facts& f) {
  if (f.linear.empty()) return "has no linear attention";
  return c.has(linear_key(f, "in_proj_qkvz.weight")) ? "" : "stores its projections apart";
}

// Reads [q | k | v | z] where they are packed per key head.
void read_qkvz_by_other_layout(Checkpoint& c, const Facts& f) {
  const std::string key = linear_key(f, "in_proj_qkvz.weight");
  const int64_t each = f.value_heads / f.key_heads * f.value_dim;
  const int64_t stride = 2 * f.key_dim + 2 * each;
  std::vector<int64_t> order;
  int64_t begin = 0;
  for (const int64_t width : {f.key_dim, f.key_dim, each, each}) {
    for (int64_t row : grouped(key, f.key_heads, stride, begin, width).at) order.push_back(row);
    begin += width;
  }
  reorder_rows(c, grouped(key, 1, 0, 0, c.at(key).rows()), order);
}

void permute_value_heads(Checkpoint& c, const Facts& f) {
  Tensor& a = c.at(linear_key(f, "A_log"));
  const std::string first = a.row(0);
  a.set_row(0, a.row(f.value_heads - 1));
  a.set_row(f.value_heads - 1, first);
}

// -- convolutions

std::string conv_key(const Checkpoint& c, const Facts& f) {
  const std::vector<int64_t>& layers = f.linear.empty() ? f.convs : f.linear;
  if (layers.empty()) return "";
  const std::string linear = f.layer(layers.back()) + "linear_attn.conv1d.weight";
  return c.has(linear) ? linear : f.layer(layers.back()) + "conv.conv.weight";
}

std::string no_conv(const Checkpoint& c, const Facts& f) {
  return conv_key(c, f).empty() ? "has no convolution" : "";
}

void reverse_kernels(Checkpoint& c, const Facts& f) {
  Tensor& conv = c.at(conv_key(c, f));
  const Tensor before = conv;
  const auto kernel = static_cast<size_t>(conv.shape.back());
  for (size_t i = 0; i < elements(conv); ++i) {
    conv.set_value(i, before.value(i / kernel * kernel + kernel - 1 - i % kernel));
  }
}

std::string no_short_conv(const Checkpoint&, const Facts& f) {
  return f.convs.empty() ? "has no short convolution" : "";
}

// in_proj is [B | C | x]: this exchanges B and C.
void swap_conv_gates(Checkpoint& c, const Facts& f) {
  for (const char* leaf : {"conv.in_proj.weight", "conv.in_proj.bias"}) {
    const std::string key = f.layer(f.convs.back()) + leaf;
    if (!c.has(key)) continue;
    const int64_t width = c.at(key).rows() / 3;
    swap_rows(c, grouped(key, 1, 0, 0, width), grouped(key, 1, 0, width, width));
  }
}

std::vector<Kind> norm_kinds() {
  return {
      {"norms_shifted", none, shift_norms},
      {"final_norm_shifted", none, shift_final_norm},
      {"inner_norm_shifted", no_plain_norm, shift_inner_norm},
      {"norm_of_other_layer", none, take_other_layers_norm},
      {"norms_of_layer_permuted", one_wide_norm, rotate_norms},
      {"q_k_norm_swapped", no_qk_norm, swap_qk_norms},
  };
}

std::vector<Kind> expert_kinds() {
  return {
      {"experts_rotated", no_experts, rotate_experts},
      {"expert_gate_up_swapped", no_experts, swap_expert_gate_up},
      {"router_rows_rotated", no_experts, rotate_router},
      {"shared_expert_gate_zeroed", no_shared_expert, zero_shared_gate},
      {"shared_expert_gate_up_swapped", no_shared_expert, swap_shared_gate_up},
  };
}

std::vector<Kind> recurrent_kinds() {
  return {
      {"A_log_dt_bias_swapped", no_linear, swap_a_log_dt_bias},
      {"A_log_heads_permuted", no_linear, permute_value_heads},
      {"in_proj_a_b_swapped", no_linear, swap_a_b},
      {"linear_q_k_swapped", no_linear, swap_linear_q_k},
      {"packed_qkvz_layout", no_packed_linear, read_qkvz_by_other_layout},
      {"conv_kernel_reversed", no_conv, reverse_kernels},
      {"conv_gates_swapped", no_short_conv, swap_conv_gates},
  };
}

}  // namespace

std::vector<Kind> block_kinds() {
  std::vector<Kind> kinds;
  for (const auto& part : {norm_kinds(), expert_kinds(), recurrent_kinds()}) {
    kinds.insert(kinds.end(), part.begin(), part.end());
  }
  return kinds;
}

}  // namespace ferry::mutation
