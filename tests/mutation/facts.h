// The contents of a checkpoint, and where its family stores them. Only this file of the mutation
// test knows key names and layouts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/mutation/checkpoint.h"

namespace ferry::mutation {

enum class Part { kQuery, kKey, kValue, kGate, kUp };

struct Facts {
  explicit Facts(const Checkpoint& checkpoint);

  std::string model_type;
  int64_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
  bool shifted_norms = false;  // norms are 1 + w
  bool paired_rope = false;    // RoPE rotates neighbouring dimensions
  bool has_rope = true;        // some layer has RoPE
  bool tied = false;
  bool output_gate = false;  // q_proj has a gate after the query of every head
  // The reference has the keys. The caller sets it.
  bool reference_has_keys = false;
  double embedded_square = 0;               // mean square of the embedded tokens
  std::string embedding, head, final_norm;  // keys; `head` is the key of an untied head
  // Indices of the layers of each kind, in order.
  std::vector<int64_t> attention, turned, sliding, linear, convs, experts, gated;

  std::string layer(int64_t i) const { return prefix_ + std::to_string(i) + "."; }
  // Returns the rows of a part; nothing where the layer has no such tensor. `leaf` is weight or
  // bias.
  std::optional<Rows> part(int64_t layer, Part part, const std::string& leaf = "weight") const;
  // Returns the rows of a part that the layer must have.
  Rows rows(int64_t layer, Part which, const std::string& leaf = "weight") const {
    return part(layer, which, leaf).value();
  }
  // Returns the rows of one head of q (with its gate), k or v.
  Rows head_rows(int64_t layer, Part part, int64_t head, const std::string& leaf = "weight") const;
  int64_t heads_of(Part part) const { return part == Part::kQuery ? heads : kv_heads; }

  // Return the keys of layer `i` without the layer's name: those of norms, of matrices, or all.
  std::vector<std::string> norms_of(int64_t i) const;
  std::vector<std::string> matrices_of(int64_t i) const;
  std::vector<std::string> keys_of(int64_t i) const;
  bool has(const std::string& key) const { return checkpoint_.has(key); }
  // Returns the whole key of the first of `leaves` that layer `i` has; empty where it has none.
  std::string first_of(int64_t i, const std::vector<std::string>& leaves) const;

  // Experts of a layer: their number, the rows of each one's gate and up matrices, and the keys of
  // an expert that is stored apart.
  int64_t expert_count = 0, expert_size = 0;
  bool fused_experts = false;
  Rows expert_rows(int64_t layer, int64_t expert, Part part) const;

  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  // of linear attention

 private:
  std::optional<Rows> packed_part(int64_t layer, Part part) const;
  Rows all_rows(const std::string& key) const;
  void read_layer_kinds();

  const Checkpoint& checkpoint_;
  std::string prefix_;
};

}  // namespace ferry::mutation
