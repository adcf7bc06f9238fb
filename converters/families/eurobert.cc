// EuroBERT: Llama with attention in both directions. Source: transformers, models/eurobert.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "core/text.h"

namespace ferry::converters::families::eurobert {
namespace {

using namespace gguf_tables;
using enum GgufKey;

TensorNames encoder_biases() {
  TensorNames names = attention_biases();
  std::ranges::copy(mlp_biases(), std::back_inserter(names));
  return names;
}

Status head(const JsonFields& fields, bool per_token, const ModelConfig&, ClassifierConfig& out) {
  using Pooling = ClassifierConfig::Pooling;
  if (!per_token) {
    constexpr std::pair<std::string_view, Pooling> kNames[] = {
        {"bos", Pooling::kFirst}, {"mean", Pooling::kMean}, {"late", Pooling::kLate}};
    const std::string name = FERRY_TRY(fields.text("classifier_pooling")).value_or("late");
    const auto* known =
        std::ranges::find(kNames, name, &std::pair<std::string_view, Pooling>::first);
    if (known == std::end(kNames)) {
      return fields.bad("classifier_pooling",
                        fmt::format("is {}: not bos, mean, late", quoted(name)));
    }
    out.pooling = known->second;
    out.steps.push_back({.key = "dense", .activation = Activation::kGelu});
  } else {
    out.pooling = Pooling::kNone;
  }
  out.steps.push_back({.key = "classifier"});
  return {};
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "eurobert",
               .defaults = R"({"vocab_size": 128256, "hidden_size": 768, "intermediate_size": 3072,
                               "num_hidden_layers": 12, "num_attention_heads": 12,
                               "hidden_act": "silu", "max_position_embeddings": 8192,
                               "rms_norm_eps": 1e-5})",
               .attention_bias = true,
               .mlp_bias = true,
               .two_way = TwoWayRule::kAlways}},
    .components = {{.rules = llama_rules, .build = build_llama}},
    .dropped = {{"lm_head.bias", kEncoderHead}},
    .classifiers = {{"EuroBert", head}},
    .gguf = {{.name = "eurobert",
              .tokenizer_keys = {.no_bos = true},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
              .own_keys = GgufOwnKeys::kEncoder,
              .keys = {kBlocks, kContext, kEmbedding, kFeedForward, kHeads, kKvHeads, kRopeBase,
                       kRmsEpsilon, kHeadLengths, kFileType, kNotCausal, kRopeScaling, kPooling},
              .unread = encoder_biases(),
              .equal_heads = true}}};

}  // namespace ferry::converters::families::eurobert
