// Source: transformers, configuration_utils.py, modeling_layers.py,
// pipelines/text_classification.py; sentence-transformers, cross_encoder/model.py.
#include "converters/config/classifier_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"
#include "converters/family.h"
#include "core/text.h"
#include "core/utf8.h"

namespace ferry::converters {
namespace {

using HeadPooling = ClassifierConfig::Pooling;

constexpr std::string_view kOfTexts = "ForSequenceClassification";
constexpr std::string_view kOfTokens = "ForTokenClassification";
constexpr IntRange kLabelRange = {1, 1 << 16};
constexpr int64_t kUsualLabels = 2;

// Returns the first name in `architectures`; empty where there is none.
Result<std::string> architecture_of(const JsonFields& fields) {
  const nlohmann::json* list = fields.find("architectures");
  if (list == nullptr || !list->is_array() || list->empty()) return std::string();
  const nlohmann::json& first = list->front();
  return first.is_string() ? Result<std::string>(first.get<std::string>())
                           : fields.bad("architectures", "is not a list of names");
}

// Returns the labels of id2label, whose keys must count from 0.
Result<std::vector<std::string>> labels_in(const JsonFields& fields, const nlohmann::json& names) {
  if (!names.is_object() || names.empty() || names.size() > static_cast<size_t>(kLabelRange.max)) {
    return fields.bad("id2label", "is not an object with 1 to 65536 labels");
  }
  std::vector<std::string> labels;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto label = names.find(std::to_string(i));
    if (label == names.end() || !label->is_string()) {
      return fields.bad("id2label",
                        fmt::format("has {} labels and no text for {}", names.size(), i));
    }
    labels.push_back(label->get<std::string>());
  }
  return labels;
}

Result<std::vector<std::string>> labels_of(const JsonFields& fields) {
  const auto count = FERRY_TRY(fields.integer("num_labels", kLabelRange));
  if (const nlohmann::json* names = fields.find("id2label")) {
    return labels_in(fields, *names);  // num_labels then has no effect
  }
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count.value_or(kUsualLabels); ++i) {
    labels.push_back(fmt::format("LABEL_{}", i));
  }
  return labels;
}

// Returns how the pipeline of transformers makes scores.
Result<std::string> scores_of(const JsonFields& fields, const ClassifierConfig& config) {
  const std::string problem = FERRY_TRY(fields.text("problem_type")).value_or("");
  const bool one = config.labels.size() == 1;
  const bool single = problem == "single_label_classification";
  if (single && one) return fields.bad("problem_type", "is single_label_classification: one label");
  if (!problem.empty() && !single && problem != "regression" &&
      problem != "multi_label_classification") {
    return fields.error(ErrorCode::kUnsupported, "problem_type",
                        fmt::format("is {}: not known", quoted(problem)));
  }
  if (config.per_token()) return std::string(kSoftmaxScores);
  if (problem == "regression") return std::string(kPlainScores);
  const bool several = problem == "multi_label_classification" || one;
  return std::string(several ? kSigmoidScores : kSoftmaxScores);
}

constexpr std::pair<std::string_view, std::string_view> kCrossEncoderFunctions[] = {
    {"torch.nn.modules.linear.Identity", kPlainScores},
    {"torch.nn.modules.activation.Sigmoid", kSigmoidScores},
    {"torch.nn.Identity", kPlainScores},
    {"torch.nn.Sigmoid", kSigmoidScores},
};

// Sets the scores as sentence-transformers does for the class of an activation. A class that is not
// of torch is not trusted there, and the default takes its place.
Status set_cross_scores(const JsonFields& fields, std::string_view key, const std::string& name,
                        ClassifierConfig& config) {
  if (!name.starts_with("torch.")) {
    config.scores = config.labels.size() == 1 ? kSigmoidScores : kPlainScores;
    return {};
  }
  const auto* known = std::ranges::find(kCrossEncoderFunctions, name,
                                        &std::pair<std::string_view, std::string_view>::first);
  if (known == std::end(kCrossEncoderFunctions)) {
    return fields.error(ErrorCode::kUnsupported, key,
                        fmt::format("is {}: Identity and Sigmoid are supported", quoted(name)));
  }
  config.scores = known->second;
  config.states_scores = true;
  return {};
}

// Reads what sentence-transformers keeps of a CrossEncoder in config.json.
Status read_cross_scores(const JsonFields& fields, ClassifierConfig& config) {
  if (const auto inside = FERRY_TRY(fields.object("sentence_transformers"))) {
    if (inside->states("activation_fn")) {
      const auto name = FERRY_TRY(inside->text("activation_fn"));
      return name ? set_cross_scores(*inside, "activation_fn", *name, config)
                  : set_cross_scores(*inside, "activation_fn", "", config);
    }
  }
  constexpr const char* kEarlier = "sbert_ce_default_activation_function";
  const auto name = FERRY_TRY(fields.text(kEarlier));
  return name ? set_cross_scores(fields, kEarlier, *name, config) : Status();
}

}  // namespace

Status read_classifier(const JsonFields& fields, ModelConfig& config) {
  const std::string name = FERRY_TRY(architecture_of(fields));
  const bool per_token = name.ends_with(kOfTokens);
  if (!per_token && !name.ends_with(kOfTexts)) return {};
  const std::string_view stem =
      std::string_view(name).substr(0, name.size() - (per_token ? kOfTokens : kOfTexts).size());
  const std::vector<ClassifierClass>& classes = config.family->classifiers;
  const auto found = std::ranges::find(classes, stem, &ClassifierClass::stem);
  if (config.multimodal || found == classes.end() || !(per_token ? found->tokens : found->texts)) {
    return fields.error(ErrorCode::kUnsupported, "architectures",
                        fmt::format("is {}: not supported in {}", quoted(name), config.model_type));
  }
  ClassifierConfig out;
  out.labels = FERRY_TRY(labels_of(fields));
  FERRY_RETURN_IF_ERROR(found->read(fields, per_token, config, out));
  out.scores = FERRY_TRY(scores_of(fields, out));
  if (!per_token) FERRY_RETURN_IF_ERROR(read_cross_scores(fields, out));
  config.classifier = std::move(out);
  return {};
}

Status read_cross_encoder(const JsonFields& fields, ClassifierConfig& config) {
  const auto prompt = FERRY_TRY(fields.text("default_prompt_name"));
  if (prompt) {
    return fields.error(ErrorCode::kUnsupported, "default_prompt_name",
                        "is stated: prompts of classifiers are not supported");
  }
  const auto kind = FERRY_TRY(fields.text("model_type"));
  if (kind && *kind != "CrossEncoder") return {};
  const auto name = FERRY_TRY(fields.text("activation_fn"));
  // If this file names no activation of torch, that of config.json holds.
  if (config.states_scores && (!name || !name->starts_with("torch."))) return {};
  return set_cross_scores(fields, "activation_fn", name.value_or(""), config);
}

Status pooler_head(std::string_view pooler, bool per_token, ClassifierConfig& out) {
  out.pooling = per_token ? HeadPooling::kNone : HeadPooling::kFirst;
  if (!per_token) out.steps.push_back({.key = std::string(pooler), .tanh = true});
  out.steps.push_back({.key = "classifier"});
  return {};
}

Status dense_head(const JsonFields&, bool per_token, const ModelConfig&, ClassifierConfig& out) {
  out.pooling = per_token ? HeadPooling::kNone : HeadPooling::kFirst;
  if (!per_token) out.steps.push_back({.key = "classifier.dense", .tanh = true});
  out.steps.push_back({.key = per_token ? "classifier" : "classifier.out_proj"});
  return {};
}

Status score_head(const JsonFields& fields, bool per_token, const ModelConfig&,
                  ClassifierConfig& out) {
  out.pooling = per_token ? HeadPooling::kNone : HeadPooling::kLast;
  const bool bias = per_token && FERRY_TRY(fields.flag_or("token_classification_bias", true));
  out.steps.push_back({.key = "score", .bias = bias});
  if (per_token) return {};
  const auto padding = FERRY_TRY(fields.integer("pad_token_id", kTokenRange));
  out.padding = padding;
  return {};
}

Status early_score_head(const JsonFields& fields, bool per_token, const ModelConfig& config,
                        ClassifierConfig& out) {
  if (!per_token) return score_head(fields, per_token, config, out);
  out.pooling = HeadPooling::kNone;
  out.steps.push_back({.key = "classifier"});
  return {};
}

}  // namespace ferry::converters
