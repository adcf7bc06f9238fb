#include "converters/blocks/classifier.h"

#include <fmt/format.h>

#include <string_view>

#include "converters/blocks/sentence.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

using HeadPooling = ClassifierConfig::Pooling;

std::string step_name(size_t index) { return fmt::format("classifier.{}", index); }
std::string norm_name(size_t index) { return fmt::format("classifier.{}.norm", index); }

// Returns the state [1,width] of the last token that is not `padding`, or of the first where all
// are.
ValueId last_unpadded(GraphBuilder& b, const DecoderContext& c, int64_t padding, ValueId states) {
  const ValueId places = b.to(b.arange(c.start_pos, c.end_pos, c.tokens), DType::kF32);
  const ValueId none = b.scalar(0.0F);
  const ValueId positions = b.unsqueeze(places, 0);
  const ValueId is_padding = b.eq(c.token_ids, padding);
  const ValueId counted = b.where(is_padding, none, positions);
  const ValueId last = b.to(b.mul(b.amin_last(b.mul(counted, -1.0)), -1.0), DType::kI64);
  return b.select(b.embedding(b.select(states, 0, 0), last), 0, 0);
}

ValueId head_states(GraphBuilder& b, const DecoderContext& c, const ClassifierConfig& config,
                    ValueId states) {
  using Sentence = SentenceConfig::Pooling;
  switch (config.pooling) {
    case HeadPooling::kNone:
    case HeadPooling::kLate:
      return states;
    case HeadPooling::kFirst:
      return pooled_states(b, c, {Sentence::kFirst}, states);
    case HeadPooling::kMean:
      return pooled_states(b, c, {Sentence::kMean}, states);
    case HeadPooling::kLast:
      break;
  }
  return config.padding ? last_unpadded(b, c, *config.padding, states)
                        : pooled_states(b, c, {Sentence::kLast}, states);
}

}  // namespace

ValueId classifier_outputs(GraphBuilder& b, const DecoderContext& c, const ClassifierConfig& config,
                           ValueId states) {
  const int64_t width = c.config.hidden_size;
  ValueId x = head_states(b, c, config, states);
  for (size_t i = 0; i < config.steps.size(); ++i) {
    const HeadStep& step = config.steps[i];
    const bool last = i + 1 == config.steps.size();
    const int64_t out = last ? std::ssize(config.labels) : width;
    x = projection(b, x, step_name(i), width, features(out), step.bias);
    if (step.tanh) x = b.tanh(x);
    if (step.activation) x = activate(b, *step.activation, x);
    if (step.norm_key.empty()) continue;
    x = norm(b, step.norm_bias ? NormKind::kLayer : NormKind::kLayerNoBias, x, norm_name(i),
             c.config.rms_norm_eps);
  }
  if (config.pooling != HeadPooling::kLate) return x;
  return pooled_states(b, c, {SentenceConfig::Pooling::kMean}, x);
}

std::vector<KeyRule> classifier_rules(const ClassifierConfig& config) {
  std::vector<KeyRule> rules;
  for (size_t i = 0; i < config.steps.size(); ++i) {
    const HeadStep& step = config.steps[i];
    const std::string name = step_name(i), norm = norm_name(i);
    rules = concat({rules, parameter_rules("", step.bias, {{step.key.c_str(), name.c_str()}})});
    if (step.norm_key.empty()) continue;
    rules = concat(
        {rules, parameter_rules("", step.norm_bias, {{step.norm_key.c_str(), norm.c_str()}})});
  }
  return rules;
}

bool has_head_key(const ClassifierConfig& config, std::string_view pattern) {
  const std::string_view stem = pattern.substr(0, pattern.find('*'));
  for (const HeadStep& step : config.steps) {
    if ((step.key + '.').starts_with(stem) || (step.norm_key + '.').starts_with(stem)) return true;
  }
  return false;
}

}  // namespace ferry::converters
