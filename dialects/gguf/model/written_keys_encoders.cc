// The keys of encoders: how states become vectors or scores of labels, and how far windows reach.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "dialects/gguf/model/encoder.h"
#include "dialects/gguf/model/written_key_writer.h"

namespace ferry::converters {

using nlohmann::json;

void GgufKeyWriter::add_not_causal() { own("attention.causal", false); }

void GgufKeyWriter::add_pooling() {
  if (c_.classifier) own("pooling_type", whole(kGgufLabelPooling));
  if (c_.sentence) own("pooling_type", whole(gguf_pooling_type(*c_.sentence)));
}

void GgufKeyWriter::add_labels() {
  if (c_.classifier) own("classifier.output_labels", c_.classifier->labels);
}

// Writes what the config states, where that reaches as far.
void GgufKeyWriter::add_half_window() {
  const int64_t reach = c_.sliding_window.value_or(1) - 1;
  const auto stated = static_cast<int64_t>(number("sliding_window"));
  own("attention.sliding_window", some_window(stated / 2 == reach ? stated : 2 * reach));
}

// Readers take 0 for no window, and reach half of 1, which is 0 tokens, to each side.
uint32_t GgufKeyWriter::some_window(int64_t tokens) { return whole(std::max<int64_t>(1, tokens)); }

void GgufKeyWriter::add_projections() {
  if (!c_.sentence) return;
  for (const SentenceModule& module : gguf_projections(*c_.sentence)) {
    const std::string name = gguf_projection_name(module);
    own(name + "_feat_in", whole(module.in));
    own(name + "_feat_out", whole(module.out));
  }
}

void GgufKeyWriter::add_modern_epsilons() {
  add_rms_epsilon();
  add_layer_norm_epsilon();
}

// The converter writes what the config states, or the default of its class.
void GgufKeyWriter::add_label_pooling() {
  const json* stated = member(json_, "classifier_pooling");
  const bool mean = stated != nullptr && *stated == "mean";
  own("classifier.pooling_type", whole(mean ? kGgufMeanPooling : kGgufFirstPooling));
}

void GgufKeyWriter::add_local_window() {
  constexpr double kUsual = 128;
  own("attention.sliding_window",
      some_window(
          static_cast<int64_t>(states("local_attention") ? number("local_attention") : kUsual)));
}

void GgufKeyWriter::add_window_step() {
  constexpr const char* kStep = "global_attn_every_n_layers";
  if (!states(kStep)) return;
  own("attention.sliding_window_pattern", whole(static_cast<int64_t>(number(kStep))));
}

void GgufKeyWriter::add_hidden_activation() {
  const json* stated = member(json_, "hidden_activation");
  own(kGgufActivation,
      stated != nullptr && stated->is_string() ? stated->get<std::string>() : std::string("gelu"));
}

void GgufKeyWriter::add_source_blocks() {
  own("block_count", whole(c_.source->num_layers));
  own("decoder_block_count", whole(c_.num_layers));
}

void GgufKeyWriter::add_relative_buckets() {
  own("attention.relative_buckets_count", whole(c_.relative_bias->buckets));
}

void GgufKeyWriter::add_decoder_start() {
  if (c_.decoder_start_id) own("decoder_start_token_id", whole(*c_.decoder_start_id));
}

void GgufKeyWriter::add_named_activation() { own(kGgufActivation, std::string("silu")); }

}  // namespace ferry::converters
