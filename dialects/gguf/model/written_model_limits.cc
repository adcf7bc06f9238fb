// The values that readers of single architectures assume whatever a file says. Source: src/models
// of llama.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <vector>

#include "converters/blocks/gemma3n.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/shared_layers.h"
#include "dialects/gguf/model/encoder.h"
#include "dialects/gguf/model/layer_kinds.h"
#include "dialects/gguf/model/reading.h"
#include "dialects/gguf/model/written_keys.h"

namespace ferry::converters {
namespace {

constexpr double kNotedStep = 0.001;

bool is_near(double value, double wanted) {
  return std::abs(value - wanted) <= kGgufTolerance * wanted;
}

Status check_llama4(const GgufKeysInput& in) {
  const ModelConfig& c = *in.config;
  if (c.num_layers < kLlama4Every)
    return gguf_cannot_say(in, "num_hidden_layers", "is less than 4");
  if (c.moe.experts == 0) {
    return gguf_cannot_say(in, "num_local_experts", "or moe_layers: there are none");
  }
  if (c.sliding_window && *c.sliding_window != kLlama4Chunk) {
    return gguf_cannot_say(in, "attention_chunk_size", fmt::format("is not {}", kLlama4Chunk));
  }
  if (c.scalars.query_growth == 0) {
    return gguf_cannot_say(in, "attn_temperature_tuning", "is false");
  }
  if (!is_near(c.scalars.query_growth, kLlama4Growth)) {
    return gguf_cannot_say(in, "attn_scale", fmt::format("is not {}", kLlama4Growth));
  }
  if (c.scalars.query_growth_step != kLlama4Chunk) {
    return gguf_cannot_say(in, "floor_scale", fmt::format("is not {}", kLlama4Chunk));
  }
  const bool normed = c.number(kRopeNorm) != 0;
  if (normed == (c.moe.experts != kLlama4Unnormed)) return {};
  return gguf_cannot_say(in, "use_qk_norm",
                         fmt::format("is {} with {} experts", normed, c.moe.experts));
}

// Readers add attention and MLP to the same input, and always turn heads.
Status check_falcon(const GgufKeysInput& in) {
  const ModelConfig& c = *in.config;
  if (c.number("parallel_attn") == 0) return gguf_cannot_say(in, "parallel_attn", "is false");
  if (c.number("alibi") != 0) return gguf_cannot_say(in, "alibi", "is true");
  return c.attention_bias ? gguf_cannot_say(in, "bias", "is true") : Status();
}

Status check_modern_bert(const GgufKeysInput& in) {
  const ModelConfig& c = *in.config;
  constexpr const char* kStep = "global_attn_every_n_layers";
  if (c.sliding_rope.type != RopeConfig::Type::kDefault) {
    return gguf_cannot_say(in, "rope_parameters.sliding_attention", "scales RoPE");
  }
  const auto config = nlohmann::json::parse(in.config_text, nullptr, false);
  const auto found = config.is_object() ? config.find(kStep) : config.end();
  const bool stated = found != config.end() && !found->is_null();
  if (stated && (!found->is_number_integer() || *found < 1 || *found > INT32_MAX)) {
    return gguf_cannot_say(in, kStep, "is no number of layers");
  }
  const int64_t every = stated ? found->get<int64_t>() : kModernBertGlobalEvery;
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const bool full = c.layer_types[static_cast<size_t>(i)] == LayerType::kFullAttention;
    if (full == (i % every == 0)) continue;
    return gguf_cannot_say(in, "layer_types", fmt::format("differs in layer {}", i));
  }
  // Readers make a mask with windows that no layer reads, and end.
  if (std::ranges::all_of(c.layer_types,
                          [](LayerType t) { return t == LayerType::kFullAttention; })) {
    return gguf_cannot_say(in, kStep, "leaves no layer a window");
  }
  return {};
}

// Readers know the factor of scores by heart.
Status check_mpt(const GgufKeysInput& in) {
  const ModelConfig& c = *in.config;
  const double usual = 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (is_near(c.scalars.attention.value_or(usual), usual)) return {};
  return gguf_cannot_say(in, "attn_config.softmax_scale", "is not 1 / sqrt(d_model / n_heads)");
}

// Readers know the multipliers of the released model by heart, and have one epsilon for all norms.
Status check_minicpm3(const GgufKeysInput& in) {
  const ModelConfig& c = *in.config;
  const auto layers = static_cast<double>(c.num_layers);
  if (c.number("q_lora_rank") == 0) return gguf_cannot_say(in, "q_lora_rank", "is null");
  if (!is_near(c.scalars.embedding, kMinicpm3Embedding)) {
    return gguf_cannot_say(in, "scale_emb", fmt::format("is not {}", kMinicpm3Embedding));
  }
  if (!is_near(c.scalars.residual, kMinicpm3Depth / std::sqrt(layers))) {
    return gguf_cannot_say(in, "scale_depth", fmt::format("is not {}", kMinicpm3Depth));
  }
  if (!is_near(c.scalars.logits, kMinicpm3Base / static_cast<double>(c.hidden_size))) {
    return gguf_cannot_say(in, "dim_model_base", fmt::format("is not {}", kMinicpm3Base));
  }
  if (is_near(c.rms_norm_eps, kLatentEpsilon)) return {};
  return gguf_cannot_say(in, "rms_norm_eps", "is not 1e-6, which that of latent vectors is");
}

// Readers turn heads in the first layers, which have no experts, and take the mean of the shared
// expert and the others.
Status check_cohere_moe(const GgufKeysInput& in) {
  const ModelConfig& c = *in.config;
  if (!c.sliding_window) return gguf_cannot_say(in, "layer_types", "has no layer with a window");
  if (c.moe.shared_size == 0 || c.moe.sum_scale == 0.5) return {};
  return gguf_cannot_say(in, "shared_expert_combination_strategy", "is not average");
}

// Readers turn as many dimensions in all layers.
Status check_mimo(const GgufKeysInput& in) {
  const ModelConfig& c = *in.config;
  if (!c.sliding_window) return gguf_cannot_say(in, "num_hidden_layers", "is 1");
  if (c.rotary_dim() == c.rotary_dim(LayerType::kSlidingAttention)) return {};
  return gguf_cannot_say(in, "rope_parameters.sliding_attention.partial_rotary_factor",
                         "is not that of full attention");
}

Status check_t5(const GgufKeysInput& in) {
  const ModelConfig& c = *in.config;
  if (c.num_layers > c.source->num_layers) {  // llama.cpp does not open the file
    return gguf_cannot_say(in, "num_decoder_layers", "is more than num_layers");
  }
  if (c.relative_bias->farthest == kT5Farthest) return {};
  return gguf_cannot_say(in, "relative_attention_max_distance",
                         fmt::format("is not {}", kT5Farthest));
}

// Readers know the sizes of the released models by heart.
Status check_gemma3n(const GgufKeysInput& in) {
  using namespace gemma3n_readers;
  const ModelConfig& c = *in.config;
  const std::tuple<const char*, int64_t, int64_t> wanted[] = {
      {"altup_num_inputs", c.number("altup_num_inputs"), kStreams},
      {"altup_active_idx", c.number("altup_active_idx"), 0},
      {"altup_correct_scale", c.number("altup_correct_scale"), 1},
      {"laurel_rank", c.number("laurel_rank"), kLaurelRank},
      {kLayerInputSize, c.number(kLayerInputSize), kInputSize},
      {kSharedLayers, c.number(kSharedLayers), std::max<int64_t>(0, c.num_layers - kOwnKeys)}};
  for (const auto& [name, value, taken] : wanted) {
    if (value != taken) return gguf_cannot_say(in, name, fmt::format("is not {}", taken));
  }
  if (c.number(kLayerVocab) > c.vocab_size) {
    return gguf_cannot_say(in, kLayerVocab, "is more than vocab_size");
  }
  if (!c.scalars.logit_softcap || !is_near(*c.scalars.logit_softcap, kCap)) {
    return gguf_cannot_say(in, "final_logit_softcapping", fmt::format("is not {}", kCap));
  }
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const double cutoff = gemma3n_cutoff(c, i).value_or(0);
    if (is_near(cutoff, i < kSparse ? kDeviations : 0)) continue;
    return gguf_cannot_say(in, "activation_sparsity_pattern",
                           fmt::format("differs in layer {}", i));
  }
  std::vector<bool> slides;
  for (const LayerType type : c.layer_types) slides.push_back(type == LayerType::kSlidingAttention);
  if (c.num_layers <= kOwnKeys || takes_last_two_keys(slides, kOwnKeys)) return {};
  return gguf_cannot_say(in, "layer_types",
                         "has no window and then full attention before layers without keys");
}

// Readers need a bias of the convolution, and limit no time step from above.
Status check_mamba2(const GgufKeysInput& in) {
  const MambaConfig& mamba = in.config->mamba;
  if (mamba.heads == 0) return {};
  if (!mamba.conv_bias) return gguf_cannot_say(in, "use_conv_bias", "is false");
  if (mamba.activation != Activation::kSilu) {
    return gguf_cannot_say(in, "mamba_hidden_act", "is not silu");
  }
  return mamba.greatest_step ? gguf_cannot_say(in, "time_step_limit", "limits time steps")
                             : Status();
}

// Files have one width for MLPs and experts.
Status check_nemotron(const GgufKeysInput& in) {
  const ModelConfig& c = *in.config;
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const bool mlp = c.layer_types[static_cast<size_t>(i)] == LayerType::kNoMixer;
    if (mlp && c.moe.experts > 0 && !c.has_experts(i)) {
      return gguf_cannot_say(in, "layers_block_type", "has MLPs beside experts");
    }
  }
  // A limit of the released models is seldom met, and is noted.
  if (c.mamba.least_step > kNotedStep) {
    return gguf_cannot_say(in, "time_step_min", fmt::format("is more than {}", kNotedStep));
  }
  return check_mamba2(in);
}

Status check_falcon_h1(const GgufKeysInput& in) {
  if (in.config->mamba.norm == MambaConfig::Norm::kBeforeGate) {
    return gguf_cannot_say(in, "mamba_norm_before_gate", "is true");
  }
  const ScalarConfig& s = in.config->scalars;
  if (in.config->tie_word_embeddings && s.logits != s.embedding) {
    return gguf_cannot_say(in, "lm_head_multiplier",
                           "is not embedding_multiplier, and the head is tied");
  }
  return check_mamba2(in);
}

// llama.cpp opens files whose layers all have a window, and ends its process at their first text.
Status check_embedding_gemma(const GgufKeysInput& in) {
  return std::ranges::count(in.config->layer_types, LayerType::kFullAttention) > 0
             ? Status()
             : gguf_cannot_say(in, "layer_types", "has no layer of full attention");
}

}  // namespace

Status check_gguf_model_limits(const GgufKeysInput& input) {
  using enum GgufOwnKeys;
  switch (input.architecture->own_keys) {
    case kLlama4:
      return check_llama4(input);
    case kFalcon:
      return check_falcon(input);
    case kMpt:
      return check_mpt(input);
    case kMinicpm3:
      return check_minicpm3(input);
    case kCohereMoe:
      return check_cohere_moe(input);
    case kMimo:
      return check_mimo(input);
    case kGemma3n:
      return check_gemma3n(input);
    case kT5:
      return check_t5(input);
    case kNemotronH:
      return check_nemotron(input);
    case kFalconH1:
      return check_falcon_h1(input);
    case kModernBert:
      return check_modern_bert(input);
    case kEmbeddingGemma:
      return check_embedding_gemma(input);
    default:
      return {};
  }
}

}  // namespace ferry::converters
