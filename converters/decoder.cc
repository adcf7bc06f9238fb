#include "converters/decoder.h"

#include <fmt/format.h>

#include "converters/blocks.h"
#include "converters/moe.h"

// The order of nodes is part of the bytes of a program. No call here takes two arguments that
// append nodes: compilers differ in which they evaluate first.

namespace ferry {

Result<Graph> build_decoder(const ModelConfig& config, const BuildOptions& options,
                            const Mixer& mixer) {
  GraphBuilder b(static_cast<int32_t>(config.num_layers));
  const int32_t t = b.symbol("T", options.prefill_length, ValueId{});
  const ValueId tokens = b.input("tokens", DType::kI64, {1, Dim::of(t)});
  const ValueId input_pos = b.input("input_pos", DType::kI64, {1});
  b.bind_symbol(t, b.sym_size(tokens, 1));
  const DecoderContext c = make_decoder_context(b, config, options, input_pos, t);

  const ValueId table = b.weight("tok_embeddings.weight", {config.vocab_size, config.hidden_size});
  ValueId x = b.embedding(table, tokens);
  b.probe("hidden_states.0", x);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    b.set_layer(static_cast<int32_t>(layer));
    const ValueId normed =
        rms_norm(b, x, layer_name(layer, "attention_norm.weight"), config.rms_norm_eps);
    x = b.add(x, mixer(b, c, normed, layer));
    const ValueId ffn_in =
        rms_norm(b, x, layer_name(layer, "ffn_norm.weight"), config.rms_norm_eps);
    const std::string prefix = layer_name(layer, "feed_forward");
    x = b.add(x, config.has_experts(layer)
                     ? sparse_mlp(b, c, ffn_in, prefix)
                     : gated_mlp(b, config, ffn_in, prefix, config.intermediate_size));
    b.name(x, "hidden_states");
    // The reference's last hidden state is the one after the final norm.
    const bool last = layer + 1 == config.num_layers;
    b.probe(last ? "last_layer_prenorm" : fmt::format("hidden_states.{}", layer + 1), x);
  }
  b.set_layer(static_cast<int32_t>(config.num_layers));
  if (!options.all_logits) x = b.select(x, 1, -1);
  x = rms_norm(b, x, "norm.weight", config.rms_norm_eps);
  b.probe(fmt::format("hidden_states.{}", config.num_layers), x);
  b.output(b.linear(x, b.weight("output.weight", {config.vocab_size, config.hidden_size})),
           "logits");
  return b.finish();
}

Result<Graph> build_attention_decoder(const ModelConfig& config, const BuildOptions& options,
                                      const AttentionStyle& style) {
  return build_decoder(config, options,
                       [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
                         return attention(b, c, x, layer, style);
                       });
}

}  // namespace ferry
