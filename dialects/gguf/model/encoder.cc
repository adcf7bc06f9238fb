// Encoders: how their states become one vector, and the keys of BERT and its successors. Source:
// llama.cpp, src/models/bert.cpp, modern-bert.cpp, eurobert.cpp, and conversion/bert.py.
#include "dialects/gguf/model/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

bool is_projection(const SentenceModule& module) {
  return module.kind == SentenceModule::Kind::kDense;
}

// Makes the config that of a model with a head of labels, if the file has one: `cls` and, behind a
// function, `cls.output`. Runtimes would compute the head without a `cls` that the file lacks.
Status read_head(GgufReading& in, const char* type) {
  if (!in.has("cls.output.weight")) return {};
  constexpr const char* kLabels = "classifier.output_labels";
  const JsonFields& fields = in.keys->fields;
  if (!in.has("cls.weight")) {
    return in.keys->unsupported(kLabels, "is for a head without cls.weight: not supported");
  }
  json names = json::array({"LABEL_0"});
  if (const json* stated = fields.find(in.keys->name(kLabels))) names = *stated;
  const bool texts = names.is_array() &&
                     std::ranges::all_of(names, [](const json& name) { return name.is_string(); });
  if (!texts || names.empty()) return fields.bad(in.keys->name(kLabels), "is not a list of names");
  json& config = *in.config;
  config["architectures"] = {fmt::format("{}ForSequenceClassification", type)};
  config["id2label"] = json::object();
  for (size_t i = 0; i < names.size(); ++i) config["id2label"][std::to_string(i)] = names[i];
  return {};
}

}  // namespace

Result<std::optional<SentenceConfig>> read_gguf_sentence(const GgufKeys& keys,
                                                         const TensorSource& source) {
  const int64_t stated =
      FERRY_TRY(keys.fields.integer_or(keys.name("pooling_type"), kGgufCounts, kNoPooling));
  const bool scores =
      stated == kGgufLabelPooling && tensor_called(source, "cls.output.weight") != nullptr;
  if (stated == kNoPooling || scores) return std::optional<SentenceConfig>();
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

std::vector<SentenceModule> gguf_projections(const SentenceConfig& sentence) {
  std::vector<SentenceModule> found;
  std::ranges::copy_if(sentence.modules, std::back_inserter(found), is_projection);
  return found;
}

std::string gguf_projection_name(const SentenceModule& projection) {
  return projection.folder == "2_Dense" ? "dense_2" : "dense_3";
}

std::string gguf_sentence_obstacle(const SentenceConfig& sentence, const ModelConfig& config,
                                   const GgufArchitecture& architecture) {
  const bool known =
      sentence.poolings.size() == 1 && std::ranges::count(kPoolingTypes, sentence.poolings.front(),
                                                          &std::pair<int64_t, Pooling>::second) > 0;
  if (!known) return "has another pooling than one of mean, first and last token";
  const std::vector<SentenceModule> dense = gguf_projections(sentence);
  if (dense.empty()) return "";
  if (!architecture.has_key(GgufKey::kProjections)) return "has a projection behind the pooling";
  const bool plain = std::ranges::all_of(dense, [](const SentenceModule& module) {
    return !module.bias && module.function == SentenceModule::Function::kIdentity;
  });
  const auto behind = std::ranges::find_if_not(sentence.modules, is_projection);
  const bool first = behind - sentence.modules.begin() == std::ssize(dense);
  const bool fit = dense.size() == 2 && dense[0].folder == "2_Dense" &&
                   dense[1].folder == "3_Dense" && dense[1].out == config.hidden_size;
  return plain && first && fit ? ""
                               : "has other projections than 2_Dense and 3_Dense, without biases "
                                 "and functions, to the hidden size";
}

std::string gguf_head_obstacle(const ClassifierConfig& head, const GgufArchitecture& architecture) {
  if (!architecture.has_key(GgufKey::kLabels)) return "has a head of labels";
  if (head.per_token()) return "has a head of labels for each token";
  const HeadStep& first = head.steps.front();
  if (head.steps.size() != 2) return "has a head of other steps than two";
  if (architecture.own_keys != GgufOwnKeys::kModernBert) {
    const bool fits = first.tanh && first.norm_key.empty() && !first.activation;
    return fits ? "" : "has a head without tanh, which readers compute";
  }
  if (first.bias || first.norm_bias) return "has a head with biases before its last step";
  const bool gelu =
      first.activation == Activation::kGelu || first.activation == Activation::kGeluTanh;
  return gelu ? "" : "has a head without GELU, which readers compute";
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
  return read_head(in, "Bert");
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
  const auto named = FERRY_TRY(fields.text(in.keys->name(kGgufActivation)));
  config["hidden_activation"] = named.value_or("gelu");
  // Without the key readers take the mean.
  const int64_t pooling = FERRY_TRY(
      fields.integer_or(in.keys->name("classifier.pooling_type"), kGgufCounts, kGgufMeanPooling));
  config["classifier_pooling"] = pooling == kGgufMeanPooling ? "mean" : "cls";
  return read_head(in, "ModernBert");
}

}  // namespace ferry::converters
