#include "converters/blocks/sentence.h"

#include <fmt/format.h>

#include <algorithm>

#include "converters/blocks/blocks.h"
#include "converters/keys/standard_keys.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// The square of the least norm that a vector is divided by: 1e-12 in torch's normalize().
constexpr float kLeastSquaredNorm = 1e-24F;

using Pooling = SentenceConfig::Pooling;
using Function = SentenceModule::Function;

// Returns 1, 2, ..., T as f32 [T].
ValueId places(GraphBuilder& b, ValueId states) {
  const Dim tokens = b.graph()[states].shape[1];
  const ValueId end = b.int_add(b.sym_size(states, 1), 1);
  return b.to(b.arange(1, end, tokens), DType::kF32);
}

ValueId largest(GraphBuilder& b, ValueId x) { return b.mul(b.amin_last(b.mul(x, -1.0)), -1.0); }

ValueId root_mean(GraphBuilder& b, ValueId states, ValueId columns) {
  const ValueId count = b.select(places(b, states), 0, -1);
  const ValueId sum = b.sum_last(columns);
  return b.mul(sum, b.rsqrt(count));
}

ValueId weighted_mean(GraphBuilder& b, ValueId states, ValueId columns) {
  const ValueId weights = places(b, states);
  const ValueId sum = b.sum_last(b.mul(columns, weights));
  return b.div(sum, b.sum_last(weights));
}

// Pools the states of all tokens: [1,T,width] -> [1,width].
ValueId pooled_one(GraphBuilder& b, Pooling pooling, ValueId states) {
  if (pooling == Pooling::kFirst) return b.select(states, 1, 0);
  if (pooling == Pooling::kLast) return b.select(states, 1, -1);
  const Dim width = b.graph()[states].shape.back();
  const ValueId columns = b.permute(states, {0, 2, 1});
  const ValueId x = pooling == Pooling::kMax            ? largest(b, columns)
                    : pooling == Pooling::kRootMean     ? root_mean(b, states, columns)
                    : pooling == Pooling::kWeightedMean ? weighted_mean(b, states, columns)
                                                        : b.mean_last(columns);
  return b.view(x, {batch(), width});
}

// Pools the states of each of several texts.
class TextPooling {
 public:
  TextPooling(GraphBuilder& b, const DecoderContext& c, ValueId states)
      : b_(b), c_(c), states_(states) {}

  // Returns f32 [N,width].
  ValueId pooled(Pooling pooling) {
    if (pooling == Pooling::kLast) return rows_of(c_.last_tokens);
    if (pooling == Pooling::kFirst) {
      const ValueId before = b_.gather_last(c_.position_ids, c_.last_tokens);
      return rows_of(b_.sub(c_.last_tokens, before));
    }
    ValueId weights = members();
    if (pooling == Pooling::kWeightedMean) weights = b_.mul(weights, places_in_text());
    const ValueId sum = b_.select(b_.bmm(b_.unsqueeze(weights, 0), states_), 0, 0);
    const ValueId total = b_.unsqueeze(b_.select(b_.sum_last(weights), 1, 0), 1);
    return pooling == Pooling::kRootMean ? b_.mul(sum, b_.rsqrt(total)) : b_.div(sum, total);
  }

 private:
  // Returns the states of the tokens [1,N] as f32 [N,width].
  ValueId rows_of(ValueId tokens) {
    return b_.select(b_.embedding(b_.select(states_, 0, 0), tokens), 0, 0);
  }
  // Returns 1 where a token is of the text: f32 [N,T].
  ValueId members() {
    const ValueId numbers = b_.select(b_.gather_last(c_.text_ids, c_.last_tokens), 0, 0);
    const ValueId rows = b_.unsqueeze(numbers, 1);
    const ValueId columns = b_.unsqueeze(b_.select(c_.text_ids, 0, 0), 0);
    const ValueId other = b_.sub(rows, columns);
    const ValueId one = b_.scalar(1.0F);
    const ValueId none = b_.scalar(0.0F);
    return b_.where(b_.eq(other, 0), one, none);
  }
  // Returns 1, 2, ... for the tokens of each text: f32 [1,T].
  ValueId places_in_text() {
    const ValueId one = b_.scalar(1.0F);
    const ValueId before = b_.to(call_positions(b_, c_), DType::kF32);
    return b_.unsqueeze(b_.add(before, one), 0);
  }

  GraphBuilder& b_;
  const DecoderContext& c_;
  ValueId states_;
};

ValueId activated(GraphBuilder& b, Function function, ValueId x) {
  switch (function) {
    case Function::kTanh:
      return b.tanh(x);
    case Function::kRelu:
      return b.relu(x);
    case Function::kGelu:
      return b.gelu(x, "none");
    case Function::kSigmoid:
      return b.sigmoid(x);
    case Function::kSilu:
      return silu(b, x);
    case Function::kIdentity:
      break;
  }
  return x;
}

ValueId normalized(GraphBuilder& b, ValueId x) {
  const int64_t width = b.graph()[x].shape.back().base;
  const ValueId mean = b.mean_last(b.mul(x, x));
  const ValueId least = b.scalar(kLeastSquaredNorm);
  const ValueId square = b.add(b.mul(mean, static_cast<double>(width)), least);
  return b.mul(x, b.rsqrt(square));
}

std::string dense_name(size_t index) { return fmt::format("sentence.{}", index); }

}  // namespace

ValueId pooled_states(GraphBuilder& b, const DecoderContext& c,
                      const std::vector<SentenceConfig::Pooling>& poolings, ValueId states) {
  std::vector<ValueId> vectors;
  for (const Pooling pooling : poolings) {
    vectors.push_back(c.text_ids.valid() ? TextPooling(b, c, states).pooled(pooling)
                                         : pooled_one(b, pooling, states));
  }
  return vectors.size() == 1 ? vectors.front() : b.cat(vectors, 1);
}

bool pools_several_texts(const SentenceConfig& config) {
  return std::ranges::count(config.poolings, Pooling::kMax) == 0;
}

ValueId sentence_embedding(GraphBuilder& b, const DecoderContext& c, const SentenceConfig& config,
                           ValueId states) {
  ValueId x = pooled_states(b, c, config.poolings, states);
  for (size_t i = 0; i < config.modules.size(); ++i) {
    const SentenceModule& module = config.modules[i];
    if (module.kind == SentenceModule::Kind::kNormalize) {
      x = normalized(b, x);
      continue;
    }
    x = projection(b, x, dense_name(i), module.in, module.out, module.bias);
    x = activated(b, module.function, x);
  }
  return x;
}

std::string sentence_key(const SentenceModule& module, const std::string& parameter) {
  return fmt::format("{}.linear.{}", module.folder, parameter);
}

std::vector<KeyRule> sentence_rules(const SentenceConfig& config) {
  std::vector<KeyRule> rules;
  for (size_t i = 0; i < config.modules.size(); ++i) {
    const SentenceModule& module = config.modules[i];
    if (module.kind != SentenceModule::Kind::kDense) continue;
    const std::string from = module.folder + ".linear", to = dense_name(i);
    rules = concat({rules, parameter_rules("", module.bias, {{from.c_str(), to.c_str()}})});
  }
  return rules;
}

Status check_sentence_widths(const SentenceConfig& config, int64_t width) {
  width *= static_cast<int64_t>(config.poolings.size());
  for (const SentenceModule& module : config.modules) {
    if (module.kind != SentenceModule::Kind::kDense) continue;
    if (module.in != width) {
      return bad_input(
          fmt::format("{}/config.json: 'in_features' is {}, the values before it are "
                      "{}",
                      module.folder, module.in, width));
    }
    width = module.out;
  }
  return {};
}

}  // namespace ferry::converters
