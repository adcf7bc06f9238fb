// Encoders: how their states become one vector, and the keys of BERT and its successors. Source:
// llama.cpp, src/models/bert.cpp, modern-bert.cpp, eurobert.cpp, and conversion/bert.py.
#include "dialects/gguf/model/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace ferry::converters {
namespace {

using nlohmann::json;
using Pooling = SentenceConfig::Pooling;

// Values of the key pooling_type.
constexpr int64_t kNoPooling = 0;
constexpr std::pair<int64_t, Pooling> kPoolingTypes[] = {{kGgufMeanPooling, Pooling::kMean},
                                                         {kGgufFirstPooling, Pooling::kFirst},
                                                         {kGgufLastPooling, Pooling::kLast}};

const TensorEntry* tensor_called(const TensorSource& source, std::string_view name) {
  const auto at = std::ranges::find(source.entries(), name, &TensorEntry::name);
  return at == source.entries().end() ? nullptr : &*at;
}

// Projections behind the pooling, in order.
std::vector<SentenceModule> projections(const TensorSource& source) {
  std::vector<SentenceModule> modules;
  for (const char number : {'2', '3'}) {
    const TensorEntry* weight = tensor_called(source, fmt::format("dense_{}.weight", number));
    if (weight == nullptr || weight->shape.size() != 2) continue;
    SentenceModule module;
    module.kind = SentenceModule::Kind::kDense;
    module.folder = fmt::format("{}_Dense", number);
    module.in = weight->shape[1];
    module.out = weight->shape[0];
    module.bias = tensor_called(source, fmt::format("dense_{}.bias", number)) != nullptr;
    modules.push_back(std::move(module));
  }
  return modules;
}

}  // namespace

Result<std::optional<SentenceConfig>> read_gguf_sentence(const GgufKeys& keys,
                                                         const TensorSource& source) {
  const int64_t stated =
      FERRY_TRY(keys.fields.integer_or(keys.name("pooling_type"), kGgufCounts, kNoPooling));
  if (stated == kNoPooling) return std::optional<SentenceConfig>();
  const auto* known = std::ranges::find(kPoolingTypes, stated, &std::pair<int64_t, Pooling>::first);
  if (known == std::end(kPoolingTypes)) {
    return keys.unsupported("pooling_type",
                            fmt::format("is {}: supported are mean, first and last token", stated));
  }
  SentenceConfig out;
  out.poolings = {known->second};
  out.modules = projections(source);
  out.modules.push_back({.kind = SentenceModule::Kind::kNormalize});
  out.max_tokens = FERRY_TRY(keys.fields.integer(keys.name("context_length"), kGgufSizes));
  return std::optional(std::move(out));
}

std::string gguf_sentence_obstacle(const SentenceConfig& sentence) {
  const bool known =
      sentence.poolings.size() == 1 && std::ranges::count(kPoolingTypes, sentence.poolings.front(),
                                                          &std::pair<int64_t, Pooling>::second) > 0;
  if (!known) return "has another pooling than one of mean, first and last token";
  const bool projects = std::ranges::any_of(sentence.modules, [](const SentenceModule& module) {
    return module.kind != SentenceModule::Kind::kNormalize;
  });
  return projects ? "has a projection behind the pooling" : "";
}

int64_t gguf_pooling_type(const SentenceConfig& sentence) {
  return std::ranges::find(kPoolingTypes, sentence.poolings.front(),
                           &std::pair<int64_t, Pooling>::second)
      ->first;
}

// Readers take attention for causal where no key says otherwise.
Status read_gguf_encoder(GgufReading& in) {
  if (!FERRY_TRY(in.keys->fields.flag_or(in.keys->name("attention.causal"), true))) return {};
  return in.keys->unsupported("attention.causal", "is not false: not supported in encoders");
}

// The rows of the table of positions are those of the tokens: RoBERTa's first ones are cut off.
Status read_gguf_bert(GgufReading& in) {
  FERRY_RETURN_IF_ERROR(read_gguf_encoder(in));
  json& config = *in.config;
  if (config.contains("position_rows")) config["max_position_embeddings"] = config["position_rows"];
  config.erase("position_rows");
  return {};
}

Status read_gguf_embedding_gemma(GgufReading& in) {
  (*in.config)["use_bidirectional_attention"] = true;
  return {};
}

Status read_gguf_modern_bert(GgufReading& in) {
  FERRY_RETURN_IF_ERROR(read_gguf_encoder(in));
  json& config = *in.config;
  const JsonFields& fields = in.keys->fields;
  const int64_t every = FERRY_TRY(fields.integer_or(
      in.keys->name("attention.sliding_window_pattern"), kGgufSizes, kModernBertGlobalEvery));
  json types = json::array();
  for (int64_t i = 0; i < in.layers; ++i) {
    types.push_back(i % every == 0 ? "full_attention" : "sliding_attention");
  }
  config["layer_types"] = std::move(types);
  const double local = FERRY_TRY(
      fields.number_or(in.keys->name("rope.freq_base_swa"), kGgufReals, kDefaultLocalTheta));
  config["rope_parameters"] = {
      {"full_attention", config["rope_parameters"]},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}}};
  const auto named = FERRY_TRY(fields.text(in.keys->name("hidden_activation")));
  config["hidden_activation"] = named.value_or("gelu");
  return {};
}

}  // namespace ferry::converters
