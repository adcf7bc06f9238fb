// Decoders that a DecoderStyle describes: their layers, and what they add to embeddings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "converters/blocks/decoder.h"
#include "converters/blocks/static_ports.h"

namespace ferry::converters {
namespace {

constexpr std::string_view kFirstNorm = "attention_norm";

// Builds one layer, as `style` says.
class StyledLayer {
 public:
  StyledLayer(GraphBuilder& b, const DecoderContext& c, const DecoderStyle& style, int64_t layer)
      : b_(b), c_(c), style_(style), layer_(layer) {}

  ValueId run(ValueId x) {
    switch (style_.residuals) {
      case Residuals::kInTurn:
        x = b_.add(x, attended(normed(x, "attention_norm")));
        if (style_.cross_attention) {
          x = b_.add(x, cross_attention(b_, c_, normed(x, "cross_norm"), layer_));
        }
        return b_.add(x, mapped(normed(x, "ffn_norm")));
      case Residuals::kNormsAround:
        x = b_.add(x, normed(attended(normed(x, "attention_norm")), "post_attention_norm"));
        if (style_.cross_attention) {
          const ValueId mixed = cross_attention(b_, c_, normed(x, "cross_norm"), layer_);
          x = b_.add(x, normed(mixed, "post_cross_norm"));
        }
        return b_.add(x, normed(mapped(normed(x, "ffn_norm")), "post_ffn_norm"));
      case Residuals::kNormAfter:
        x = normed(b_.add(x, attended(x)), "attention_norm");
        if (style_.cross_attention) {
          x = normed(b_.add(x, cross_attention(b_, c_, x, layer_)), "cross_norm");
        }
        return normed(b_.add(x, mapped(x)), "ffn_norm");
      case Residuals::kOfNorm:
        x = normed(x, "attention_norm");
        x = normed(b_.add(x, attended(x)), "ffn_norm");
        return b_.add(x, mapped(x));
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
  ValueId normed(ValueId x, std::string_view name) {
    const bool bare = style_.first_bare && layer_ == 0 && name == kFirstNorm;
    return bare ? x
                : norm(b_, style_.norm, x, layer_name(layer_, name.data()), c_.config.rms_norm_eps);
  }
  ValueId attended(ValueId x) {
    return style_.mixer ? style_.mixer(b_, c_, x, layer_)
                        : attention(b_, c_, x, layer_, style_.attention);
  }
  ValueId mapped(ValueId x) {
    const std::string prefix = layer_name(layer_, "feed_forward");
    if (c_.config.has_experts(layer_)) return sparse_mlp(b_, c_, x, layer_, prefix);
    return style_.gated ? gated_mlp(b_, c_.config, x, prefix, c_.config.intermediate_size)
                        : plain_mlp(b_, c_.config, x, prefix, style_.mlp_bias);
  }

  GraphBuilder& b_;
  const DecoderContext& c_;
  const DecoderStyle& style_;
  int64_t layer_;
};

// Returns 1, 2, ... for the tokens of a text that are not `uncounted`, and 0 for those that are:
// i64 [1,T].
ValueId counted_positions(GraphBuilder& b, const DecoderContext& c, int64_t uncounted) {
  const ValueId none = b.scalar(0.0F);
  const ValueId one = b.scalar(1.0F);
  const ValueId counts = b.where(b.eq(c.token_ids, uncounted), none, one);
  ValueId sums = b.cumsum_last(counts);
  if (c.position_ids.valid()) {
    // The counts of the texts before are taken off: those before the first token of each text.
    const ValueId places = b.unsqueeze(b.arange(c.start_pos, c.end_pos, c.tokens), 0);
    const ValueId before = b.sub(sums, counts);
    sums = b.sub(sums, b.gather_last(before, b.sub(places, c.position_ids)));
  }
  return b.to(b.mul(sums, counts), DType::kI64);
}

// Returns the learned vectors of the positions of this call: [1,T,hidden_size].
ValueId position_embeddings(GraphBuilder& b, const DecoderContext& c, const DecoderStyle& style) {
  const int64_t rows = c.config.max_positions + (style.uncounted ? 1 : 0);
  const ValueId table =
      b.weight("position_embeddings.weight", {positions(rows), features(c.config.hidden_size)});
  if (c.ports != nullptr) return b.embedding(table, c.ports->input_pos());
  if (style.uncounted) {
    return b.embedding(table, counted_positions(b, c, *style.uncounted));
  }
  if (c.position_ids.valid()) return b.embedding(table, c.position_ids);
  return b.embedding(table, b.unsqueeze(b.arange(c.start_pos, c.end_pos, c.tokens), 0));
}

// The position of the first token among the sinusoids of XGLM.
constexpr int64_t kFirstSinusoid = 2;

// Frequencies from 1 down to 1 / 10000, f32 [1, count], in the order of operations of the
// reference.
graph::Literal sinusoid_frequencies(int64_t count) {
  const auto step = static_cast<float>(
      -(std::log(10000.0) / static_cast<double>(std::max<int64_t>(count - 1, 1))));
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float exponent = static_cast<float>(i) * step;
    values.push_back(static_cast<float>(std::exp(static_cast<double>(exponent))));
  }
  return graph::literal_of("sinusoid.frequencies", std::move(values));
}

// Returns the sines and then the cosines of this call's positions: [1,T,hidden_size].
ValueId sinusoids(GraphBuilder& b, const DecoderContext& c) {
  const int64_t half = c.config.hidden_size / 2, plain = c.config.number(kPlainPosition);
  const ValueId of_call =
      c.ports != nullptr ? b.select(c.ports->input_pos(), 0, 0) : call_positions(b, c);
  const ValueId places = b.unsqueeze(of_call, 1);
  const ValueId frequencies =
      b.literal(DType::kF32, {1, features(half)}, sinusoid_frequencies(half));
  const ValueId numbers = b.add(b.to(places, DType::kF32), b.scalar(kFirstSinusoid));
  const ValueId angles = b.mul(numbers, frequencies);
  ValueId rows = b.cat({b.sin(angles), b.cos(angles)}, 1);
  if (plain >= kFirstSinusoid) {
    rows = b.where(b.eq(places, plain - kFirstSinusoid), b.scalar(0.0F), rows);
  }
  return b.unsqueeze(rows, 0);
}

// Sines of the positions from 0 on and behind them cosines, f32 [positions, width]. Source:
// transformers, MarianSinusoidalPositionalEmbedding.
graph::Literal sine_literal(int64_t positions, int64_t width) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(positions * width));
  for (int64_t place = 0; place < positions; ++place) {
    for (int64_t column = 0; column < width; ++column) {
      const int64_t sines = (width + 1) / 2;
      const int64_t pair = column < sines ? column : column - sines;
      const double exponent = static_cast<double>(2 * pair) / static_cast<double>(width);
      const double angle = static_cast<double>(place) / std::pow(10000.0, exponent);
      values.push_back(static_cast<float>(column < sines ? std::sin(angle) : std::cos(angle)));
    }
  }
  return graph::literal_of(fmt::format("sines:{}:{}", positions, width), std::move(values));
}

// Returns the rows of the positions of this call: [1,T,hidden_size].
ValueId sine_rows(GraphBuilder& b, const DecoderContext& c) {
  const int64_t count = c.options.context_length, width = c.config.hidden_size;
  const ValueId table =
      b.literal(DType::kF32, {positions(count), features(width)}, sine_literal(count, width));
  return b.embedding(table, b.unsqueeze(call_positions(b, c), 0));
}

// Returns the embeddings x [1,T,hidden_size] with what the style adds to them before the layers.
ValueId styled_embeddings(GraphBuilder& b, const DecoderContext& c, const DecoderStyle& style,
                          ValueId x) {
  const ModelConfig& config = c.config;
  if (style.token_types) {
    const Dims shape = {features(config.number(kTokenTypes)), features(config.hidden_size)};
    const ValueId table = b.weight("token_types.weight", shape);
    x = b.add(x, c.token_types.valid() ? b.embedding(table, c.token_types) : b.select(table, 0, 0));
  }
  if (style.learned_positions) x = b.add(x, position_embeddings(b, c, style));
  if (style.sinusoids) x = b.add(x, sinusoids(b, c));
  if (style.sine_table) x = b.add(x, sine_rows(b, c));
  return style.embedding_norm ? norm(b, style.norm, x, "embedding_norm", config.rms_norm_eps) : x;
}

}  // namespace

DecoderParts styled_parts(const ModelConfig& config, const DecoderStyle& style) {
  const int64_t hidden = config.hidden_size;
  const int64_t width = style.embedding_size == hidden ? 0 : style.embedding_size;
  DecoderParts parts;
  parts.head_bias = style.head_bias;
  parts.embedding_size = width;
  parts.token_types = style.token_types && config.classifier && config.number(kTokenTypes) > 1;
  parts.layer = [style](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
    return StyledLayer(b, c, style, layer).run(x);
  };
  parts.enter = [style, width, hidden](GraphBuilder& b, const DecoderContext& c, ValueId x) {
    if (width > 0) x = projection(b, x, "project_in", width, hidden, /*bias=*/false);
    return styled_embeddings(b, c, style, x);
  };
  parts.final_norm = [style, width, hidden, eps = config.rms_norm_eps](GraphBuilder& b, ValueId x) {
    if (style.final_norm) x = norm(b, style.norm, x, "norm", eps);
    return width > 0 ? projection(b, x, "project_out", hidden, width, /*bias=*/false) : x;
  };
  return parts;
}

Result<Methods> build_styled_decoder(const ModelConfig& config, const BuildOptions& options,
                                     const DecoderStyle& style) {
  return build_frame(config, options, styled_parts(config, style));
}

}  // namespace ferry::converters
