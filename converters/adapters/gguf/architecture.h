// GgufArchitecture: what Ferry knows about one `general.architecture` of GGUF: which model it is,
// how its tensors are called in Hugging Face checkpoints, and what GGUF writers do to their values.
// Source: llama.cpp, gguf-py/gguf/tensor_mapping.py and the Python converter's classes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "converters/adapters/strided_source.h"

namespace ferry::converters {

// How the elements of a tensor were rearranged. Rows are those of the stored tensor.
enum class GgufLayout {
  kAsIs,
  kNorm,         // as is, but for the architecture's shift of norms
  kRopeQuery,    // rows of each head: 2j + s <- s * d/2 + j, s in {0, 1}
  kRopeKey,      // the same for key/value heads
  kConv,         // [channels, kernel] <- [channels, 1, kernel]
  kOneRow,       // [columns] or [1, columns] <- [1, columns]
  kExperts,      // a stack over experts; "{e}" in the name
  kNegExp,       // -exp(x)
  kPackedInput,  // q, k, v of in_proj_qkvz; the row of kPackedGate has its z
  kPackedGate,
  // What follows has its V heads tiled, head t * nk + k <- head k * r + t with r = nv / nk:
  kValueRows,        // value_dim rows per V head
  kQkvRows,          // the same after the rows of q and k
  kQkvConv,          // kQkvRows and kConv
  kValueColumns,     // value_dim columns per V head
  kValueHeads,       // one row per V head
  kValueHeadsNegExp  // one element per V head, and kNegExp
};

struct GgufName {
  std::string_view gguf;  // "{i}" is the layer
  std::string_view hf;
  GgufLayout layout = GgufLayout::kAsIs;
};

struct GgufArchitecture {
  std::string_view name;        // "qwen35"
  std::string_view model_type;  // "qwen3_5_text"
  // Other model types that writers give this architecture; a config may name them.
  std::vector<std::string_view> other_types = {};
  std::vector<std::span<const GgufName>> tables;
  ElementChange norms = ElementChange::kNone;  // undoes what was done to kNorm
  bool linear_attention = false;               // has ssm keys
  bool sliding_pattern = false;                // gemma3: every sixth layer is global
  bool gemma = false;                          // its activation, softcaps and scale of queries
  // Of gemma: how many layers the one model has that scales queries by hidden size / heads.
  int64_t layers_scaled_by_hidden = 0;
  bool multipliers = false;      // granite: of embeddings, scores, residuals and logits
  bool partial_rotary = false;   // may turn a part of each head
  int64_t no_rope_interval = 0;  // smollm3: every so many layers one turns nothing
  bool normed_experts = false;   // norm_topk_prob
  // Embedding rows beyond the tokenizer's are cut, so that a config may tell more.
  bool cuts_vocabulary = false;

  bool has(GgufLayout layout) const;
};

// nullptr where there is none.
const GgufArchitecture* find_gguf_architecture(std::string_view name);
// "llama, qwen2, ..." for messages.
std::string gguf_architecture_names();

}  // namespace ferry::converters
