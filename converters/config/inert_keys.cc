#include "converters/config/inert_keys.h"

#include <algorithm>

namespace ferry::converters {
namespace {

constexpr std::string_view kInertKeys[] = {
    // notes
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "auto_map",
    "dtype",
    "model_type",
    "torch_dtype",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    // training
    "attention_dropout",
    "attn_pdrop",
    "drop_path_rate",
    "dropout",
    "embd_pdrop",
    "embedding_dropout",
    "hidden_dropout_prob",
    "initializer_factor",
    "initializer_range",
    "layer_scale_init_value",
    "output_router_logits",
    "pretraining_tp",
    "projection_dropout",
    "residual_dropout",
    "resid_pdrop",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "gradient_checkpointing",
    // how a run of transformers is done
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_experts_implementation",
    "attn_implementation",
    "cache_implementation",
    "chunk_size_feed_forward",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "scale_attn_weights",
    "task_specific_params",
    "tokenizer_class",
    "torchscript",
    "use_cache",
    "use_flash_attn",
    "use_return_dict",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "is_encoder_decoder",
    "n_ctx",
    "pad_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    // parts that are left out
    "vision_config",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "image_token_index",
    "boi_token_index",
    "eoi_token_index",
    "boi_token_id",
    "eoi_token_id",
    "mm_tokens_per_image",
    "multimodal_projector_bias",
    "projector_hidden_act",
    "spatial_merge_size",
    "vision_feature_layer",
    "vision_token_id",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
    "mamba_ssm_dtype",
    "base_config_key",
    // RoPE of images: for text its three positions are one
    "mrope_interleaved",
    "mrope_section",
};

}  // namespace

bool is_inert_key(std::string_view key) { return std::ranges::count(kInertKeys, key) > 0; }

}  // namespace ferry::converters
