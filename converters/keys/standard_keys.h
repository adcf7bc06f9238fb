// Key rules that families share. A family combines them with rules of its own.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// A table row of a plain rename.
struct Rename {
  const char* source;  // below the prefix: "layers.{i}.self_attn.q_proj.weight"
  const char* target;  // "layers.{i}.attention.wq.weight"
};

std::vector<KeyRule> rename_rules(const std::string& prefix, std::initializer_list<Rename> table);
// Renames of parameters: each row stands for SOURCE.weight and, if `bias`, SOURCE.bias.
std::vector<KeyRule> parameter_rules(const std::string& prefix, bool bias,
                                     std::initializer_list<Rename> table);
// Rules for attention: PREFIX layers.{i}.self_attn.q_proj, k_proj, v_proj and `output`. Drops
// rotary_emb.inv_freq.
std::vector<KeyRule> attention_rules(const std::string& prefix, bool bias,
                                     const char* output = "o_proj");
// Rules for an MLP without a gate: PREFIX LAYER UP and DOWN.
std::vector<KeyRule> plain_mlp_rules(const std::string& prefix, bool bias, const std::string& up,
                                     const std::string& down,
                                     const std::string& layer = "layers.{i}.");
// Renames of norms that multiply by (1 + w). The 1 is added when the weight is written.
std::vector<KeyRule> shifted_norm_rules(const std::string& prefix,
                                        std::initializer_list<Rename> table);
KeyRule drop_rule(std::string source, std::string reason);

// Rules that drop the tensors of older checkpoints below `attention` that are no weights: the
// causal mask and the frequencies of RoPE.
std::vector<KeyRule> derived_rules(const std::string& attention);

// Rules for embedding, attention and MLP matrices under their usual names in transformers;
// rotary_emb.inv_freq is dropped.
std::vector<KeyRule> standard_matrix_rules(const std::string& prefix);
// Rules for the RMS norms input_layernorm, post_attention_layernorm and norm.
std::vector<KeyRule> standard_norm_rules(const std::string& prefix);
// Rules for the layer norms under these names, with biases.
std::vector<KeyRule> standard_layer_norm_rules(const std::string& prefix);
// Rules for biases of q, k and v, of o, and of the MLP.
std::vector<KeyRule> bias_rules(const std::string& prefix, bool qkv, bool output, bool mlp);
// Rule for learned positions: a matrix without its first `skipped` rows. `before` is the number of
// rows that are left in front of that of the first position.
KeyRule position_rule(const std::string& source, int64_t skipped, int64_t before = 0);
// Rule for the output head.
KeyRule head_rule(const std::string& source = "lm_head.weight");
// The name of the table that an encoder-decoder shares between encoder, decoder and head. Where a
// checkpoint has no table under another name, it stands for all of them.
inline constexpr const char* kSharedTable = "shared.weight";
// The head is the embedding if the config ties them, and what makes rows of sounds of Gemma 3n has
// weights of the token embedding.
std::vector<TieRule> standard_ties(const ModelConfig& config);

// Rules for `parts`, whose rows are those of `target`, one part after the other.
std::vector<KeyRule> join_rules(const std::vector<std::string>& parts, const std::string& target,
                                Shape (*shape)(const ModelConfig&));

std::vector<KeyRule> concat(std::initializer_list<std::vector<KeyRule>> lists);

// -- vision towers

// Renames of parameters: each row stands for SOURCE.weight and SOURCE.bias. "{i}" counts `layers`.
std::vector<KeyRule> tower_rules(const std::string& prefix, int64_t layers,
                                 std::initializer_list<Rename> table);
// Renames of whole keys. "{i}" counts `layers`.
std::vector<KeyRule> tower_renames(const std::string& prefix, int64_t layers,
                                   std::initializer_list<Rename> table);

// Rule for SOURCE (in, out), which becomes the matrix TARGET (out, in).
KeyRule transpose_rule(const std::string& source, const std::string& target, int64_t in,
                       int64_t out);

// Rules for SOURCE.weight (out, in, kernel) of a convolution over time, which becomes the matrix
// TARGET.weight (out, kernel * in) of a linear over windows of rows, and for SOURCE.bias.
std::vector<KeyRule> conv1d_window_rules(const std::string& source, const std::string& target,
                                         int64_t out, int64_t in, int64_t kernel);

// Rules for SOURCE.weight and, if `bias`, SOURCE.bias: the rows [q | k | v] become
// layers.{i}.attention.wq, wk and wv of the tower.
std::vector<KeyRule> tower_qkv_rules(const std::string& source, const VisionConfig& vision);

}  // namespace ferry::converters
