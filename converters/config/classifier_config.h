// ClassifierConfig says how a checkpoint of a class such as BertForSequenceClassification gives
// scores of labels. read_classifier() reads it where `architectures` of a config names such a
// class.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::converters {

enum class Activation;
class JsonFields;
struct ModelConfig;

// A step of a head: y = norm(function(W x + b)). Keys are those of the checkpoint, without
// ".weight" and ".bias".
struct HeadStep {
  std::string key;
  bool bias = true;
  bool tanh = false;
  std::optional<Activation> activation = {};
  std::string norm_key = {};  // empty: there is no norm
  bool norm_bias = false;
  bool operator==(const HeadStep&) const = default;
};

struct ClassifierConfig {
  // Which state of a text the head reads. kLate: the head reads every state, and the mean of its
  // outputs counts. kNone: every token has scores of its own.
  enum class Pooling { kNone, kFirst, kLast, kMean, kLate } pooling = Pooling::kFirst;
  // kLast reads the last token that is not this one, or the first where all are. Without it, the
  // last one.
  std::optional<int64_t> padding = {};
  std::vector<HeadStep> steps = {};  // the last one has as many outputs as there are labels
  std::vector<std::string> labels = {};
  std::optional<int64_t> max_tokens = {};  // limit of a text, where the folder states it
  bool states_scores = false;              // whether config.json names an activation of torch
  std::string scores = {};                 // how scores are made of outputs: one of kScores

  bool per_token() const { return pooling == Pooling::kNone; }
  bool operator==(const ClassifierConfig&) const = default;
};

// The names of the functions that make scores of outputs.
inline constexpr std::string_view kSoftmaxScores = "softmax", kSigmoidScores = "sigmoid",
                                  kPlainScores = "none";

// The classes of transformers that put a classifier behind the models of a family:
// STEMForSequenceClassification and STEMForTokenClassification.
struct ClassifierClass {
  std::string_view stem;
  // Sets pooling and steps of config.classifier, whose labels are known. `per_token` tells the two
  // classes apart.
  Status (*read)(const JsonFields& fields, bool per_token, const ModelConfig& config,
                 ClassifierConfig& out);
  bool texts = true, tokens = true;  // which of the two classes there are
};

// Reads config.classifier. Needs the family and its sizes. kUnsupported for a class that the family
// does not list.
Status read_classifier(const JsonFields& fields, ModelConfig& config);

// Reads what sentence-transformers states of a CrossEncoder in config_sentence_transformers.json.
Status read_cross_encoder(const JsonFields& fields, ClassifierConfig& config);

// -- heads that several families have

// BERT: POOLER of the first state, tanh, classifier; of tokens the classifier alone.
Status pooler_head(std::string_view pooler, bool per_token, ClassifierConfig& out);
// RoBERTa, MPNet: classifier.dense of the first state, tanh, classifier.out_proj; of tokens the
// classifier alone.
Status dense_head(const JsonFields&, bool per_token, const ModelConfig&, ClassifierConfig& out);
// Decoders: score of the last token; score of each token, with a bias.
Status score_head(const JsonFields& fields, bool per_token, const ModelConfig&,
                  ClassifierConfig& out);
// The decoders before Llama: the same, and of tokens a classifier with a bias.
Status early_score_head(const JsonFields& fields, bool per_token, const ModelConfig&,
                        ClassifierConfig& out);

}  // namespace ferry::converters
