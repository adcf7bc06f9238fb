// ferry embed: vectors of texts, by a text encoder.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/line_reader.h"
#include "cli/numbers.h"
#include "cli/run_prompt.h"
#include "cli/verbs.h"
#include "core/json.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "core/utf8.h"
#include "packer/bundle_reader.h"
#include "pipeline/image_input.h"
#include "runner/text_encoder.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;
constexpr const char* kPrompts = "config_sentence_transformers.json";

struct EmbedLine {
  std::string bundle, tokens, prompt_name;
  std::vector<std::string> texts;
  bool states = false;
  std::optional<int64_t> memory;
};

Status check_embed(const EmbedLine& o) {
  if (!o.tokens.empty() && !o.texts.empty()) {
    return fail(ErrorCode::kUsage, "--text and --tokens are two inputs: give one of them");
  }
  if (!o.tokens.empty() && !o.prompt_name.empty()) {
    return fail(ErrorCode::kUsage, "--prompt-name is for texts, not for --tokens");
  }
  for (const std::string& text : o.texts) {
    if (!utf8::is_valid(text)) return fail(ErrorCode::kUsage, "--text: not UTF-8");
  }
  return {};
}

// What precedes texts: the prompt that was named, else the default one of the bundle.
Result<std::string> embedding_prompt(const packer::Bundle& bundle, const std::string& asked) {
  const std::string where = printable(bundle.path_of(kPrompts));
  json config = json::object();
  if (bundle.has_text(kPrompts)) {
    const std::string text = FERRY_TRY(bundle.text(kPrompts, kMaxTextBytes));
    config = FERRY_TRY(parse_json(text, where));
  }
  if (!config.is_object()) return bad_input(where + ": not a JSON object");
  std::string name = asked;
  const auto chosen = config.find("default_prompt_name");
  if (name.empty() && chosen != config.end() && chosen->is_string()) {
    name = chosen->get<std::string>();
  }
  if (name.empty()) return std::string();
  const auto prompts = config.find("prompts");
  if (prompts == config.end() || !prompts->is_object() || !prompts->contains(name)) {
    return fail(asked.empty() ? ErrorCode::kBadInput : ErrorCode::kUsage,
                fmt::format("{}: has no prompt {}", where, quoted(name)));
  }
  const json& prompt = (*prompts)[name];
  if (prompt.is_string()) return prompt.get<std::string>();
  return bad_input(fmt::format("{}: prompt {} is no string", where, quoted(name)));
}

// Gives what was asked for of each text, as JSON.
class Embedder {
 public:
  Embedder(runner::TextEncoder encoder, bool states)
      : encoder_(std::move(encoder)), states_(states) {}

  Status open_tokenizer(const packer::Bundle& bundle, const std::string& prompt_name) {
    prompt_ = FERRY_TRY(embedding_prompt(bundle, prompt_name));
    tokenizer_.emplace(
        FERRY_TRY(text::load_tokenizer(bundle.text_directory(), pipeline::reader_of(bundle))));
    return {};
  }

  Result<size_t> add_text(const std::string& text, JsonWriter& out) {
    const auto ids = FERRY_TRY(tokenizer_->encode(prompt_ + text, /*add_special=*/true));
    return add_tokens({ids.begin(), ids.end()}, out);
  }

  // Writes a list, or a list for each token. Returns the number of tokens.
  Result<size_t> add_tokens(const std::vector<int64_t>& tokens, JsonWriter& out) {
    const runner::EncodedText text = FERRY_TRY(encoder_.encode(tokens));
    if (!states_) {
      add_row(text.embedding, out);
      return tokens.size();
    }
    const auto width = static_cast<size_t>(encoder_.sizes().width);
    out.begin_array();
    for (size_t t = 0; t < tokens.size(); ++t) add_row(text.states.subspan(t * width, width), out);
    out.end_array();
    return tokens.size();
  }

 private:
  static void add_row(std::span<const float> values, JsonWriter& out) {
    out.begin_array();
    for (const float value : values) out.value(static_cast<double>(value));
    out.end_array();
  }

  runner::TextEncoder encoder_;
  bool states_;
  std::string prompt_;
  std::optional<text::Tokenizer> tokenizer_;
};

// Answers go out as they come, or with --json together at the end.
class Embeddings {
 public:
  Embeddings(Context& context, const EmbedLine& options) : context_(context) {
    if (!context.json) return;
    document_.begin_object().member("path", options.bundle);
    document_.key("texts").begin_array();
    key_ = options.states ? "states" : "embedding";
  }

  // `write` appends one value and returns the number of tokens.
  template <class Write>
  Status add(const Write& write) {
    if (!context_.json) {
      JsonWriter line;
      FERRY_TRY(write(line));
      context_.print(line.take());
      context_.flush();
      return {};
    }
    document_.begin_object().key(key_);
    const size_t tokens = FERRY_TRY(write(document_));
    document_.member("tokens", tokens).end_object();
    return {};
  }

  void finish() {
    if (!context_.json) return;
    document_.end_array().end_object();
    context_.print_result(document_.take(), 0);
  }

 private:
  Context& context_;
  JsonWriter document_;
  const char* key_ = "";
};

// Standard input: a JSON string in each line.
Status answer_lines(Embedder& embedder, Embeddings& answers) {
  LineReader lines;
  for (size_t number = 1;; ++number) {
    const std::optional<std::string> line = FERRY_TRY(lines.next());
    if (!line) return {};
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("line {}", number);
    const json value = FERRY_TRY(parse_json(*line, where));
    if (!value.is_string()) return bad_input(where + ": not a string");
    FERRY_RETURN_IF_ERROR(answers.add([&](JsonWriter& out) {
      return embedder.add_text(value.get_ref<const std::string&>(), out);
    }));
  }
}

Result<int> run_embed(Context& context, const EmbedLine& o) {
  FERRY_RETURN_IF_ERROR(check_embed(o));
  std::vector<int64_t> tokens;
  if (!o.tokens.empty()) {
    tokens = FERRY_TRY(parse_numbers("--tokens", o.tokens, kTokensExpected));
  }
  const runner::MethodOptions method = {.memory = FERRY_TRY(memory_limit(o.memory))};
  const packer::Bundle bundle = FERRY_TRY(packer::Bundle::open(
      o.bundle, /*check_digests=*/true, context.pool(), context.progress("checking digests")));
  runner::TextEncoder encoder =
      FERRY_TRY(runner::TextEncoder::load(bundle, context.pool(), method));
  if (encoder.sizes().embedding_width == 0 && !o.states) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: makes no vector of a text, because its checkpoint had no "
                            "modules.json; give --states",
                            printable(o.bundle)));
  }
  Embedder embedder(std::move(encoder), o.states);
  Embeddings answers(context, o);
  if (!tokens.empty()) {
    FERRY_RETURN_IF_ERROR(
        answers.add([&](JsonWriter& out) { return embedder.add_tokens(tokens, out); }));
  } else {
    FERRY_RETURN_IF_ERROR(embedder.open_tokenizer(bundle, o.prompt_name));
    for (const std::string& text : o.texts) {
      FERRY_RETURN_IF_ERROR(
          answers.add([&](JsonWriter& out) { return embedder.add_text(text, out); }));
    }
    if (o.texts.empty()) FERRY_RETURN_IF_ERROR(answer_lines(embedder, answers));
  }
  answers.finish();
  return 0;
}

}  // namespace

void add_embed(CommandLine& line) {
  auto o = std::make_shared<EmbedLine>();
  line.verb("embed", "Vectors of texts, by a bundle of style encoder: a JSON list for each text")
      .positional("BUNDLE", o->bundle, "Bundle directory")
      .option("--text", o->texts,
              "Text; may be repeated. Without it and --tokens, every line of standard input is a "
              "text, as a JSON string")
      .option("--tokens", o->tokens, "Token ids of one text, separated by commas")
      .option("--prompt-name", o->prompt_name,
              "A prompt of config_sentence_transformers.json to put before each text; default: the "
              "one that it names as the default, if any")
      .flag("--states", o->states,
            "The last hidden state of each token instead of the vector of the text")
      .option("--memory", o->memory,
              "Bytes that planned memory may have; default: what the system has available")
      .example("ferry embed bundle/ --prompt-name query --text 'Which planet is red?'",
               "The vector of a question, after the prompt that the model was trained with.")
      .example("ferry embed bundle/ < texts.jsonl > vectors.jsonl", "A line for each line.")
      .action([o](Context& context) { return run_embed(context, *o); });
}

}  // namespace ferry::cli
