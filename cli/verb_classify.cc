// ferry classify scores the labels of texts, of pairs of texts, or of the words in a text.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/encoder_bundle.h"
#include "cli/line_reader.h"
#include "cli/option_values.h"
#include "cli/run_prompt.h"
#include "cli/verbs.h"
#include "core/json.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "core/utf8.h"
#include "packer/bundle_reader.h"
#include "prompt/classifier_text.h"
#include "prompt/token_entities.h"
#include "runner/text_batches.h"

namespace ferry::cli {
namespace {

constexpr const char* kFunctions = "softmax, sigmoid or none";

struct ClassifyLine {
  std::string bundle, tokens, types, scores, aggregation;
  std::vector<std::string> texts, pairs;
  bool plain = false, truncate = false, logits = false;
  std::optional<int64_t> top, memory;
};

// A text with its tokens, which waits for its answer.
struct Question {
  std::string text;
  text::TypedTokens tokens;
};

Status check_classify_options(const ClassifyLine& o) {
  const bool tokens = !o.tokens.empty();
  if (tokens && (!o.texts.empty() || !o.pairs.empty() || o.plain || o.truncate)) {
    return fail(ErrorCode::kUsage, "--tokens is another input than texts: give one of them");
  }
  if (!tokens && !o.types.empty()) return fail(ErrorCode::kUsage, "--types is for --tokens");
  if (o.plain && !o.texts.empty()) {
    return fail(ErrorCode::kUsage, "--plain is for the lines of standard input");
  }
  if (!o.pairs.empty() && o.texts.size() != 1 && o.texts.size() != o.pairs.size()) {
    return fail(ErrorCode::kUsage,
                fmt::format("--pair: {} for {} --text; give one --text, or as many", o.pairs.size(),
                            o.texts.size()));
  }
  if (o.top && *o.top < 1) return fail(ErrorCode::kUsage, "--top: must be at least 1");
  if (!o.scores.empty() && o.scores != "softmax" && o.scores != "sigmoid" && o.scores != "none") {
    return fail(ErrorCode::kUsage, fmt::format("--scores: must be {}", kFunctions));
  }
  for (const auto* list : {&o.texts, &o.pairs}) {
    for (const std::string& text : *list) {
      if (!utf8::is_valid(text)) return fail(ErrorCode::kUsage, "--text, --pair: not UTF-8");
    }
  }
  return {};
}

// Refuses options for the other kind of classifier.
Status check_kind(const ClassifyLine& o, const runner::TextEncoder::Sizes& sizes) {
  if (sizes.labels == 0) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: is no classifier", printable(o.bundle)));
  }
  if (sizes.per_token && (o.top || !o.scores.empty() || !o.pairs.empty())) {
    return fail(ErrorCode::kUsage,
                "--top, --scores and --pair are for classifiers of texts, this one labels tokens");
  }
  if (sizes.per_token && !o.tokens.empty() && !o.logits) {
    return fail(ErrorCode::kUsage, "--tokens have no text to find words in: give --logits");
  }
  if (!sizes.per_token && !o.aggregation.empty()) {
    return fail(ErrorCode::kUsage, "--aggregation is for classifiers of tokens");
  }
  if (o.aggregation.empty() || prompt::find_aggregation(o.aggregation)) return {};
  return fail(ErrorCode::kUsage, "--aggregation: must be none, simple, first, average or max");
}

// Prints the answers as they come, or with --json all together at the end.
class Classifier {
 public:
  Classifier(Context& context, const ClassifyLine& o, runner::TextBatches batches,
             const packer::ManifestClassifier& model)
      : context_(context),
        batches_(std::move(batches)),
        labels_(model.labels),
        scores_(o.scores.empty() ? model.scores : o.scores),
        aggregation_(
            prompt::find_aggregation(o.aggregation).value_or(prompt::Aggregation::kSimple)),
        top_(static_cast<size_t>(o.top.value_or(std::ssize(model.labels)))),
        logits_(o.logits) {
    if (context.json) document_.begin_object().member("path", o.bundle).key("texts").begin_array();
  }

  Status open_texts(const packer::Bundle& bundle, bool truncate) {
    input_ = FERRY_TRY(prompt::ClassifierText::open(bundle, batches_.sizes().tokens, truncate));
    return {};
  }

  // Texts before one that is refused are answered.
  Status add(const prompt::ClassifiedText& text) {
    Result<text::TypedTokens> tokens = input_->tokens_of(text, wants_words());
    if (!tokens) {
      FERRY_RETURN_IF_ERROR(answer());
      return Failure(tokens.error());
    }
    waiting_.push_back({text.text, *std::move(tokens)});
    return waiting_.size() < kMostWaiting ? Status() : answer();
  }
  void add(text::TypedTokens tokens) { waiting_.push_back({"", std::move(tokens)}); }

  Status answer() {
    std::vector<runner::TextTokens> texts;
    for (const Question& question : waiting_) {
      texts.push_back({question.tokens.ids, question.tokens.types});
    }
    std::vector<std::vector<float>> outputs(texts.size());
    FERRY_RETURN_IF_ERROR(batches_.encode(texts, [&](size_t i, const runner::EncodedText& got) {
      outputs[i].assign(got.logits.begin(), got.logits.end());
    }));
    for (size_t i = 0; i < outputs.size(); ++i) {
      FERRY_RETURN_IF_ERROR(write(waiting_[i], outputs[i]));
    }
    waiting_.clear();
    if (!context_.json) context_.flush();
    return {};
  }

  Status finish() {
    FERRY_RETURN_IF_ERROR(answer());
    if (!context_.json) return {};
    document_.end_array().end_object();
    context_.print_result(document_.take(), 0);
    return {};
  }

 private:
  // The most texts that are encoded together.
  static constexpr size_t kMostWaiting = 1024;

  bool wants_words() const { return batches_.sizes().per_token && !logits_; }

  Status write(const Question& question, const std::vector<float>& outputs) {
    if (!context_.json) {
      JsonWriter line;
      FERRY_RETURN_IF_ERROR(write_answer(question, outputs, line));
      context_.print(line.take());
      return {};
    }
    document_.begin_object().key(logits_ ? "logits" : wants_words() ? "entities" : "labels");
    FERRY_RETURN_IF_ERROR(write_answer(question, outputs, document_));
    document_.member("tokens", question.tokens.ids.size()).end_object();
    return {};
  }

  Status write_answer(const Question& question, const std::vector<float>& outputs,
                      JsonWriter& out) {
    if (logits_) {
      write_logits(outputs, out);
    } else if (wants_words()) {
      return write_words(question, outputs, out);
    } else {
      write_labels(prompt::scores_of(outputs, scores_), out);
    }
    return {};
  }

  void write_logits(std::span<const float> outputs, JsonWriter& out) const {
    const size_t width = labels_.size();
    if (batches_.sizes().per_token) out.begin_array();
    for (size_t at = 0; at < outputs.size(); at += width) {
      out.begin_array();
      for (const float value : outputs.subspan(at, width)) out.value(static_cast<double>(value));
      out.end_array();
    }
    if (batches_.sizes().per_token) out.end_array();
  }

  void write_labels(const std::vector<float>& scores, JsonWriter& out) const {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return scores[i]; });
    order.resize(std::min(top_, order.size()));
    out.begin_array();
    for (const size_t i : order) {
      out.begin_object().member("label", labels_[i]);
      out.member("score", static_cast<double>(scores[i])).end_object();
    }
    out.end_array();
  }

  Status write_words(const Question& question, const std::vector<float>& outputs, JsonWriter& out) {
    const auto found = FERRY_TRY(prompt::entities_of(question.text, question.tokens, outputs,
                                                     labels_, aggregation_, input_->tokenizer()));
    const bool single = aggregation_ == prompt::Aggregation::kNone;
    out.begin_array();
    for (const prompt::Entity& entity : found) {
      out.begin_object().member(single ? "entity" : "entity_group", entity.label);
      out.member("score", static_cast<double>(entity.score));
      if (single) out.member("index", entity.index);
      out.member("word", entity.word).member("start", entity.begin).member("end", entity.end);
      out.end_object();
    }
    out.end_array();
    return {};
  }

  Context& context_;
  runner::TextBatches batches_;
  std::vector<std::string> labels_;
  std::string scores_;
  prompt::Aggregation aggregation_;
  size_t top_;
  bool logits_;
  std::optional<prompt::ClassifierText> input_;
  std::vector<Question> waiting_;
  JsonWriter document_;
};

// Returns the line itself if `plain`, else the JSON string in it, or the two of a list.
Result<prompt::ClassifiedText> classified_text(const std::string& line, size_t number, bool plain) {
  const std::string where = fmt::format("line {}", number);
  if (plain) {
    return utf8::is_valid(line) ? Result<prompt::ClassifiedText>({line, {}})
                                : bad_input(where + ": not UTF-8");
  }
  const nlohmann::json value = FERRY_TRY(parse_json(line, where));
  if (value.is_string()) return prompt::ClassifiedText{value.get<std::string>(), {}};
  const bool pair =
      value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string();
  if (!pair) return bad_input(where + ": neither a string nor a list of two");
  return prompt::ClassifiedText{value[0].get<std::string>(), value[1].get<std::string>()};
}

Status classify_lines(Classifier& classifier, bool per_token, bool plain) {
  LineReader lines;
  for (size_t number = 1;; ++number) {
    if (!FERRY_TRY(lines.ready())) FERRY_RETURN_IF_ERROR(classifier.answer());
    const std::optional<std::string> line = FERRY_TRY(lines.next());
    if (!line) return {};
    if (!plain && line->find_first_not_of(" \t\r") == std::string::npos) continue;
    Result<prompt::ClassifiedText> text = classified_text(*line, number, plain);
    if (text && text->pair && per_token) {
      text = fail(ErrorCode::kUsage,
                  fmt::format("line {}: a pair, and this classifier labels tokens", number));
    }
    if (!text) {
      FERRY_RETURN_IF_ERROR(classifier.answer());
      return Failure(text.error());
    }
    FERRY_RETURN_IF_ERROR(classifier.add(*text));
  }
}

Status classify_options(Classifier& classifier, const ClassifyLine& o) {
  for (size_t i = 0; i < std::max(o.texts.size(), o.pairs.size()); ++i) {
    prompt::ClassifiedText text = {o.texts[o.texts.size() == 1 ? 0 : i], {}};
    if (!o.pairs.empty()) text.pair = o.pairs[i];
    FERRY_RETURN_IF_ERROR(classifier.add(text));
  }
  return {};
}

Result<text::TypedTokens> tokens_on_line(const ClassifyLine& o) {
  text::TypedTokens tokens;
  tokens.ids = FERRY_TRY(parse_numbers("--tokens", o.tokens, kTokensExpected));
  if (o.types.empty()) return tokens;
  tokens.types = FERRY_TRY(parse_numbers("--types", o.types, kTokensExpected));
  for (const int64_t type : tokens.types) {
    if (type == 0 || type == 1) continue;
    return fail(ErrorCode::kUsage, fmt::format("--types: {}; a type is 0 or 1", type));
  }
  if (tokens.types.size() == tokens.ids.size()) return tokens;
  return fail(ErrorCode::kUsage,
              fmt::format("--types: {} for {} tokens", tokens.types.size(), tokens.ids.size()));
}

Result<int> classify(Context& context, const ClassifyLine& o) {
  FERRY_RETURN_IF_ERROR(check_classify_options(o));
  std::optional<text::TypedTokens> tokens;
  if (!o.tokens.empty()) tokens = FERRY_TRY(tokens_on_line(o));
  const runner::MethodOptions method = {.own_bf16 = true,
                                        .memory = FERRY_TRY(memory_limit(o.memory))};
  const packer::Bundle bundle = FERRY_TRY(open_encoder(context, o.bundle, /*config=*/{}));
  runner::TextBatches batches =
      FERRY_TRY(runner::TextBatches::load(bundle, context.pool(), method));
  FERRY_RETURN_IF_ERROR(check_kind(o, batches.sizes()));
  const bool per_token = batches.sizes().per_token;
  Classifier classifier(context, o, std::move(batches), *bundle.manifest().classifier);
  if (tokens) {
    classifier.add(*std::move(tokens));
  } else {
    FERRY_RETURN_IF_ERROR(classifier.open_texts(bundle, o.truncate));
    FERRY_RETURN_IF_ERROR(o.texts.empty() ? classify_lines(classifier, per_token, o.plain)
                                          : classify_options(classifier, o));
  }
  FERRY_RETURN_IF_ERROR(classifier.finish());
  return 0;
}

}  // namespace

void add_classify(CommandLine& line) {
  auto o = std::make_shared<ClassifyLine>();
  line.verb("classify",
            "Labels of texts, of pairs of texts or of words, by the bundle of a classifier")
      .positional("BUNDLE", o->bundle, "Bundle directory, or a GGUF file")
      .option("--text", o->texts,
              "Text; may be repeated. Without it and --tokens, every line of standard input is a "
              "text, as a JSON string, or a pair, as a list of two")
      .option("--pair", o->pairs,
              "Second text of a pair, such as a passage for a question; may be repeated, for one "
              "--text or as many")
      .option("--tokens", o->tokens, "Token ids of one text, separated by commas")
      .option("--types", o->types, "Type of each of --tokens, 0 or 1, separated by commas")
      .flag("--plain", o->plain, "Each line of standard input is a text as it is")
      .flag("--truncate", o->truncate,
            "Cut texts that are longer than the context, of a pair the longer one first; otherwise "
            "they are refused")
      .option("--top", o->top, "The N labels with the largest scores; default: all")
      .option(
          "--scores", o->scores,
          "How scores are made of outputs: softmax, sigmoid or none; default: as the checkpoint "
          "says")
      .option("--aggregation", o->aggregation,
              "How tokens are joined to words: none, simple (default), first, average or max")
      .flag("--logits", o->logits, "The outputs in the order of the labels instead of the answer")
      .option("--memory SIZE", o->memory,
              "Bytes that planned memory may have, such as 4GB; default: what the system has "
              "available")
      .example("ferry classify bundle/ --text 'I love this.'", "Labels and their scores.")
      .example(
          "ferry classify bundle/ --text 'Which planet is red?' --pair 'Mars is red.' --pair "
          "'Berlin is a city.'",
          "The scores of two passages for a question, by a cross-encoder.")
      .example("ferry classify bundle/ < texts.jsonl > labels.jsonl", "A line for each line.")
      .action([o](Context& context) { return classify(context, *o); });
}

}  // namespace ferry::cli
