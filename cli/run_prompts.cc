#include "cli/run_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/envelope.h"
#include "cli/line_reader.h"
#include "cli/run_answer.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "core/utf8.h"

namespace ferry::cli {
namespace {

using Json = nlohmann::json;
using Kind = PromptLine::Kind;

constexpr uint64_t kMaxPromptsBytes = uint64_t{256} << 20;

struct PromptMember {
  const char* name;
  Kind kind;
};
constexpr PromptMember kMembers[] = {{"prompt", Kind::kText},
                                     {"chat", Kind::kChat},
                                     {"messages", Kind::kMessages},
                                     {"tokens", Kind::kTokens}};

std::string name_of_prompts(const RunOptions& options) {
  return options.prompts == "-" ? "standard input" : printable(options.prompts);
}

std::string where_of(const std::string& name, size_t line) {
  return fmt::format("{}: line {}", name, line);
}

Result<PromptLine> from_value(const Json& value, Kind kind, const std::string& where) {
  PromptLine out{.kind = kind, .text = {}, .tokens = {}};
  if (kind == Kind::kMessages) {
    if (!value.is_array()) return bad_input(where + ": 'messages' is no list");
    out.text = value.dump();
  } else if (kind == Kind::kTokens) {
    const bool is_ids =
        value.is_array() && !value.empty() && std::ranges::all_of(value, [](const Json& id) {
          return id.is_number_integer() && id >= 0 && id <= INT32_MAX;
        });
    if (!is_ids) return bad_input(where + ": 'tokens' is no list of token ids");
    out.tokens = value.get<std::vector<int64_t>>();
  } else {
    if (!value.is_string()) return bad_input(where + ": the prompt is no text");
    out.text = value.get<std::string>();
    if (out.text.empty()) return bad_input(where + ": the prompt is empty");
  }
  return out;
}

Result<PromptLine> from_object(const Json& object, const std::string& where) {
  constexpr const char* kExpected = "expected one of prompt, chat, messages and tokens";
  if (object.size() != 1) {
    return bad_input(fmt::format("{}: has {} members: {}", where, object.size(), kExpected));
  }
  const std::string& name = object.begin().key();
  const auto member =
      std::ranges::find_if(kMembers, [&](const PromptMember& one) { return name == one.name; });
  if (member == std::end(kMembers)) {
    return bad_input(fmt::format("{}: unknown member {}: {}", where, quoted(name), kExpected));
  }
  return from_value(*object.begin(), member->kind, where);
}

Result<PromptLine> parse_line(std::string_view text, const std::string& where) {
  if (!utf8::is_valid(text)) return bad_input(where + ": not UTF-8");
  const size_t begin = text.find_first_not_of(" \t");
  if (text[begin] != '{' && text[begin] != '"') {
    return PromptLine{.kind = Kind::kText, .text = std::string(text), .tokens = {}};
  }
  const auto value = parse_json(text, where);
  if (!value) {
    Error error = value.error();
    error.message += "; a text that begins like JSON is written as a JSON string";
    return Failure(std::move(error));
  }
  return value->is_string() ? from_value(*value, Kind::kText, where) : from_object(*value, where);
}

bool has_kind(const std::vector<PromptLine>& lines, bool (*is)(const PromptLine&)) {
  return std::ranges::any_of(lines, is);
}
bool is_tokens(const PromptLine& line) { return line.kind == Kind::kTokens; }

// Reads the prompts, and refuses those that the model cannot run.
Result<std::vector<Prompt>> read_all(const RunOptions& options,
                                     const std::vector<PromptLine>& lines,
                                     const packer::Manifest& manifest, PromptReader& reader,
                                     const runner::Decoder& decoder) {
  std::vector<Prompt> prompts;
  for (const PromptLine& line : lines) {
    const std::string where = where_of(name_of_prompts(options), line.line);
    prompts.push_back(FERRY_TRY(reader.read(line, options.system, where)));
    const Status runs =
        runner::check_tokens(prompts.back().ids, manifest.vocab_size, 0, decoder.capacity());
    if (!runs) return fail(runs.error().code, fmt::format("{}: {}", where, runs.error().message));
  }
  return prompts;
}

// Gives out the answers, one after the other.
class PromptAnswers {
 public:
  PromptAnswers(Context& context, const RunOptions& options, const std::vector<PromptLine>& lines)
      : context_(context), options_(options), lines_(lines) {
    json_.begin_object().key("path").value(options.bundle.empty() ? options.loose.text_decoder
                                                                  : options.bundle);
    json_.key("answers").begin_array();
  }

  void announce(size_t index) {
    if (index > 0 && !context_.json) context_.print("\n");
    if (context_.json) return;
    context_.flush();
    context_.note(fmt::format("{} ({} of {})",
                              where_of(name_of_prompts(options_), lines_[index].line), index + 1,
                              lines_.size()));
  }
  void add(const Generation& g, size_t index, bool with_text) {
    if (context_.json) {
      write_answer(json_, g, with_text, lines_[index].line);
    } else {
      print_stats(context_, g, options_.stats);
    }
  }
  // Returns the exit code. `error` is there if not every prompt has its whole answer.
  int end(const std::optional<Error>& error) {
    const int code = error ? exit_code(*error) : 0;
    if (context_.json) {
      json_.end_array().end_object();
      context_.print_result(json_.take(), code, error ? &*error : nullptr);
    }
    context_.flush();
    if (error) print_error(*error, /*with_details=*/false);
    return code;
  }

 private:
  Context& context_;
  const RunOptions& options_;
  const std::vector<PromptLine>& lines_;
  JsonWriter json_;
};

}  // namespace

Result<std::vector<PromptLine>> parse_prompts(std::string_view file, const std::string& name) {
  std::vector<PromptLine> lines;
  for (size_t number = 1; !file.empty(); ++number) {
    const size_t end = std::min(file.find('\n'), file.size());
    std::string_view text = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.find_first_not_of(" \t") == text.npos) continue;
    lines.push_back(FERRY_TRY(parse_line(text, where_of(name, number))));
    lines.back().line = number;
  }
  if (lines.empty()) return bad_input(name + ": no prompts");
  return lines;
}

Result<std::vector<PromptLine>> read_prompt_lines(const RunOptions& options) {
  const std::string text = options.prompts == "-"
                               ? FERRY_TRY(LineReader().rest(kMaxPromptsBytes))
                               : FERRY_TRY(read_text_file(options.prompts, kMaxPromptsBytes));
  auto lines = FERRY_TRY(parse_prompts(text, name_of_prompts(options)));
  const bool chats = has_kind(lines, [](const PromptLine& line) { return line.is_chat(); });
  if (!options.system.empty() && !chats) {
    return fail(ErrorCode::kUsage, "--system is for chats, and --prompts has none");
  }
  if (!options.stops.empty() && std::ranges::all_of(lines, is_tokens)) {
    return fail(ErrorCode::kUsage, "--stop needs prompts of text, and --prompts has none");
  }
  return lines;
}

void require(const std::vector<PromptLine>& lines, RunOptions& options) {
  if (std::ranges::all_of(lines, is_tokens)) {
    options.tokens = "0";
  } else if (has_kind(lines, [](const PromptLine& line) { return line.is_chat(); })) {
    options.chat = options.prompts;
  } else {
    options.prompt = options.prompts;
  }
}

Result<int> run_prompts(Context& context, const RunOptions& options,
                        const std::vector<PromptLine>& lines, const packer::Manifest& manifest,
                        PromptReader& prompts, runner::Decoder& decoder, const AnswerLimits& limits,
                        const Generation& loaded) {
  std::vector<Prompt> read = FERRY_TRY(read_all(options, lines, manifest, prompts, decoder));
  PromptAnswers answers(context, options, lines);
  for (size_t i = 0; i < read.size(); ++i) {
    answers.announce(i);
    Generation g = loaded;
    g.stats.inference_start = g.clock.now();
    g.prompt = std::move(read[i].ids);
    g.max_new = limits.of(std::ssize(g.prompt), lines[i].is_chat());
    decoder.restart(std::ssize(g.prompt));
    const text::Tokenizer* tokenizer = is_tokens(lines[i]) ? nullptr : prompts.tokenizer();
    AnswerOutput output(tokenizer, options.stops, printer(context));
    runner::Sampler sampler = FERRY_TRY(runner::Sampler::make(g.sampling));
    auto done = generate(decoder, manifest, options, sampler, output, std::move(g));
    if (!done && done.error().code == ErrorCode::kInterrupted) return answers.end(done.error());
    g = FERRY_TRY(std::move(done));
    answers.add(g, i, tokenizer != nullptr);
    if (const auto error = interruption(g)) return answers.end(error);
  }
  return answers.end(std::nullopt);
}

}  // namespace ferry::cli
