#include "converters/keys/mobilenet_keys.h"

#include <fmt/format.h>

#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"

namespace ferry::converters {
namespace {

// Collects the rules of a tower.
class MobileNetKeys {
 public:
  MobileNetKeys(const VisionConfig& vision) : v_(vision), net_(*vision.mobilenet) {}

  std::vector<KeyRule> rules(const std::string& tower) {
    const std::string stem = tower + "conv_stem.";
    rename(stem + "conv.weight", "vision.stem.weight");
    if (net_.stem_bias) rename(stem + "conv.bias", "vision.stem.bias");
    rename(stem + "bn.weight", "vision.stem.norm.weight");
    int64_t number = 0;
    for (size_t stage = 0; stage < net_.stages.size(); ++stage) {
      const auto& blocks = net_.stages[stage];
      for (size_t i = 0; i < blocks.size(); ++i) {
        from_ = fmt::format("{}blocks.{}.{}.", tower, stage, i);
        to_ = fmt::format("vision.layers.{}.", number++);
        add_block(blocks[i]);
      }
    }
    from_ = tower + "msfa.ffn.";
    to_ = "vision.fusion.";
    add_linear("pw_exp.conv", "w1", net_.fused_channels(), net_.middle);
    add_norm("pw_exp.bn", "w1_norm");
    add_linear("pw_proj.conv", "w2", net_.middle, v_.hidden_size);
    add_norm("pw_proj.bn", "w2_norm");
    rename(tower + "msfa.norm.weight", "vision.norm.weight");
    return std::move(rules_);
  }

 private:
  void rename(const std::string& source, const std::string& target) {
    for (KeyRule& rule : tower_renames("", 0, {{source.c_str(), target.c_str()}})) {
      rules_.push_back(std::move(rule));
    }
  }
  void add_norm(const std::string& source, const std::string& target) {
    rename(from_ + source + ".weight", to_ + target + ".weight");
  }
  void add_filters(const std::string& source, const std::string& target) {
    add_norm(source, target);
  }
  // A convolution over single pixels is stored with a window of one, whose rows are its values.
  void add_linear(const std::string& source, const std::string& target, int64_t in, int64_t out) {
    rules_.push_back(reshape_rule("linear over channels", from_ + source + ".weight",
                                  to_ + target + ".weight", {out, in, 1, 1}, {out, in}, out * in));
  }

  void add_block(const MobileNetBlock& block) {
    if (block.kind == MobileNetKind::kEdge) {
      add_filters("conv_exp", "between");
      add_norm("bn1", "between_norm");
      add_linear("conv_pwl", "w2", block.middle, block.out);
      add_norm("bn2", "w2_norm");
      return;
    }
    rename(from_ + "layer_scale.gamma", to_ + "scale");
    if (block.kind == MobileNetKind::kAttention) return add_attention(block);
    add_channels("dw_start", "before", block.before);
    add_linear("pw_exp.conv", "w1", block.in, block.middle);
    add_norm("pw_exp.bn", "w1_norm");
    add_channels("dw_mid", "between", block.between);
    add_linear("pw_proj.conv", "w2", block.middle, block.out);
    add_norm("pw_proj.bn", "w2_norm");
    add_channels("dw_end", "behind", block.behind);
  }
  // A convolution of single channels, and its norm.
  void add_channels(const std::string& source, const std::string& target, int64_t kernel) {
    if (kernel == 0) return;
    add_filters(source + ".conv", target);
    add_norm(source + ".bn", target + "_norm");
  }
  void add_attention(const MobileNetBlock& block) {
    const int64_t width = block.heads * block.head_dim;
    add_norm("norm", "norm");
    add_linear("attn.query.proj", "attention.wq", block.in, width);
    for (const auto& [source, target] : {std::pair<std::string, std::string>("key", "wk"),
                                         std::pair<std::string, std::string>("value", "wv")}) {
      const std::string from = "attn." + source + ".", to = "attention." + target;
      if (block.kv_stride > 1) {
        add_filters(from + "down_conv", to + ".filters");
        add_norm(from + "norm", to + ".norm");
      }
      add_linear(from + "proj", to, block.in, block.head_dim);
    }
    add_linear("attn.output.proj", "attention.wo", width, block.out);
  }

  const VisionConfig& v_;
  const MobileNetConfig& net_;
  std::string from_, to_;  // what keys and names of the current block begin with
  std::vector<KeyRule> rules_;
};

}  // namespace

std::vector<KeyRule> mobilenet_rules(const std::string& tower, const VisionConfig& vision) {
  return MobileNetKeys(vision).rules(tower);
}

}  // namespace ferry::converters
