#include "converters/blocks/sentence.h"

#include <fmt/format.h>

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
ValueId pooled(GraphBuilder& b, Pooling pooling, ValueId states) {
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
  const ValueId square =
      b.add(b.mul(mean, static_cast<double>(width)), b.scalar(kLeastSquaredNorm));
  return b.mul(x, b.rsqrt(square));
}

std::string dense_name(size_t index) { return fmt::format("sentence.{}", index); }

}  // namespace

ValueId sentence_embedding(GraphBuilder& b, const SentenceConfig& config, ValueId states) {
  ValueId x = pooled(b, config.pooling, states);
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
