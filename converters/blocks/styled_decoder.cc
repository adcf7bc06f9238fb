#include "converters/blocks/styled_decoder.h"

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder.h"
#include "converters/blocks/static_ports.h"

// The order of nodes determines the bytes of a program, and compilers differ in which argument of a
// call they evaluate first. So at most one argument of a call appends nodes.

namespace ferry::converters {
namespace {

// Builds one layer, as `style` says.
class StyledLayer {
 public:
  StyledLayer(GraphBuilder& b, const DecoderContext& c, const DecoderStyle& style, int64_t layer)
      : b_(b), c_(c), style_(style), layer_(layer) {}

  ValueId run(ValueId x) {
    switch (style_.residuals) {
      case Residuals::kInTurn:
        x = b_.add(x, attended(normed(x, "attention_norm")));
        return b_.add(x, mapped(normed(x, "ffn_norm")));
      case Residuals::kNormAfter:
        x = normed(b_.add(x, attended(x)), "attention_norm");
        return normed(b_.add(x, mapped(x)), "ffn_norm");
      case Residuals::kSideBySide:
      case Residuals::kOneNorm:
        break;
    }
    const ValueId first = normed(x, "attention_norm");
    const ValueId attention = attended(first);
    const bool one = style_.residuals == Residuals::kOneNorm;
    const ValueId mlp = mapped(one ? first : normed(x, "ffn_norm"));
    return b_.add(b_.add(attention, mlp), x);
  }

 private:
  ValueId normed(ValueId x, const char* name) {
    return norm(b_, style_.norm, x, layer_name(layer_, name), c_.config.rms_norm_eps);
  }
  ValueId attended(ValueId x) { return attention(b_, c_, x, layer_, style_.attention); }
  ValueId mapped(ValueId x) {
    const std::string prefix = layer_name(layer_, "feed_forward");
    return style_.gated ? gated_mlp(b_, c_.config, x, prefix, c_.config.intermediate_size)
                        : plain_mlp(b_, c_.config, x, prefix, style_.mlp_bias);
  }

  GraphBuilder& b_;
  const DecoderContext& c_;
  const DecoderStyle& style_;
  int64_t layer_;
};

// Returns the learned vectors of the positions of this call: [1,T,hidden_size].
ValueId position_embeddings(GraphBuilder& b, const DecoderContext& c) {
  const ValueId table = b.weight("position_embeddings.weight", {positions(c.config.max_positions),
                                                                features(c.config.hidden_size)});
  if (c.ports != nullptr) return b.embedding(table, c.ports->input_pos());
  return b.embedding(table, b.unsqueeze(b.arange(c.start_pos, c.end_pos, c.tokens), 0));
}

}  // namespace

Result<Methods> build_styled_decoder(const ModelConfig& config, const BuildOptions& options,
                                     const DecoderStyle& style) {
  const int64_t hidden = config.hidden_size;
  const int64_t width = style.embedding_size == hidden ? 0 : style.embedding_size;
  DecoderParts parts;
  parts.head_bias = style.head_bias;
  parts.embedding_size = width;
  parts.layer = [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
    return StyledLayer(b, c, style, layer).run(x);
  };
  parts.enter = [&](GraphBuilder& b, const DecoderContext& c, ValueId x) {
    if (width > 0) x = projection(b, x, "project_in", width, hidden, /*bias=*/false);
    return style.learned_positions ? b.add(x, position_embeddings(b, c)) : x;
  };
  parts.final_norm = [&](GraphBuilder& b, ValueId x) {
    if (style.final_norm) x = norm(b, style.norm, x, "norm", config.rms_norm_eps);
    return width > 0 ? projection(b, x, "project_out", hidden, width, /*bias=*/false) : x;
  };
  return build_frame(config, options, parts);
}

}  // namespace ferry::converters
