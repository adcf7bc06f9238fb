#include "converters/blocks/source_encoder.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "converters/blocks/attention.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// Builds the layers and the final norm: token ids [1,S] -> [1,S,hidden_size].
ValueId encode_source(GraphBuilder& b, const DecoderContext& c, const DecoderParts& parts) {
  ValueId x = embed(b, c.config, c.token_ids, c.config.hidden_size);
  x = parts.enter(b, c, x);
  for (int64_t layer = 0; layer < c.config.num_layers; ++layer) {
    b.probe(fmt::format("encoder_hidden_states.{}", layer), x);
    b.set_layer(static_cast<int32_t>(layer));
    x = parts.layer(b, c, x, layer);
  }
  b.set_layer(static_cast<int32_t>(c.config.num_layers));
  x = parts.final_norm(b, x);
  b.probe("encoder_last_hidden_state", x);
  return x;
}

}  // namespace

Result<Methods> build_source_encoder(const ModelConfig& config, const BuildOptions& options,
                                     const DecoderStyle& style) {
  const ModelConfig own = config.source_encoder();
  BuildOptions whole = options;
  whole.style = ProgramStyle::kEncoder;
  whole.context_length = whole.prefill_length = options.source_length;
  GraphBuilder b(static_cast<int32_t>(own.num_layers));
  EncoderInputs inputs;
  inputs.prefix = kSourcePrefix;
  inputs.tokens = b.symbol("S", options.source_length, ValueId{});
  const Dim count = positions(Dim::of(inputs.tokens));
  inputs.token_ids = b.input(std::string(kSourceIdsPort), DType::kI64, {batch(), count});
  b.bind_symbol(inputs.tokens, b.sym_size(inputs.token_ids, 1));
  b.set_weight_prefix(kSourcePrefix);
  const DecoderContext c = make_encoder_context(b, own, whole, inputs);
  const ValueId x = encode_source(b, c, styled_parts(own, style));
  b.set_weight_prefix("");
  cross_keys_and_values(b, config, x, count);
  graph::Graph graph = FERRY_TRY(b.finish());
  Methods methods;
  methods.push_back({std::string(kForwardMethod), std::move(graph)});
  return methods;
}

}  // namespace ferry::converters
