#include "converters/blocks/sentence.h"

#include <fmt/format.h>

#include "converters/blocks/axes.h"
#include "converters/blocks/blocks.h"
#include "converters/keys/standard_keys.h"
#include "core/text.h"

// The order of nodes determines the bytes of a program, and compilers differ in which argument of a
// call they evaluate first. So at most one argument of a call appends nodes.

namespace ferry::converters {
namespace {

// The square of the least norm that a vector is divided by: 1e-12 in torch's normalize().
constexpr float kLeastSquaredNorm = 1e-24F;

ValueId pooled(GraphBuilder& b, SentenceConfig::Pooling pooling, ValueId states) {
  switch (pooling) {
    case SentenceConfig::Pooling::kFirst:
      return b.select(states, 1, 0);
    case SentenceConfig::Pooling::kLast:
      return b.select(states, 1, -1);
    case SentenceConfig::Pooling::kMean:
      break;
  }
  const Dim width = b.graph()[states].shape.back();
  return b.view(b.mean_last(b.permute(states, {0, 2, 1})), {batch(), width});
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
    if (module.function == SentenceModule::Function::kTanh) x = b.tanh(x);
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
