#include "cli/run_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
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
#include "runner/prompt_queue.h"

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

constexpr const char* kAdapterMember = "adapter";

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
  const auto adapter = object.find(kAdapterMember);
  const size_t prompts = object.size() - (adapter == object.end() ? 0 : 1);
  if (prompts != 1) {
    return bad_input(fmt::format("{}: has {} members: {}", where, prompts, kExpected));
  }
  const auto given = std::ranges::find_if(
      object.items(), [](const auto& member) { return member.key() != kAdapterMember; });
  const std::string& name = (*given).key();
  const auto member =
      std::ranges::find_if(kMembers, [&](const PromptMember& one) { return name == one.name; });
  if (member == std::end(kMembers)) {
    return bad_input(fmt::format("{}: unknown member {}: {}", where, quoted(name), kExpected));
  }
  PromptLine line = FERRY_TRY(from_value((*given).value(), member->kind, where));
  if (adapter == object.end()) return line;
  if (!adapter->is_string()) return bad_input(where + ": 'adapter' is no name");
  line.adapter = adapter->get<std::string>();
  return line;
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

// Returns the name of the adapter that answers a line; empty for none.
const std::string& adapter_of(const PromptRun& run, const PromptLine& line) {
  return line.adapter ? *line.adapter : run.options.adapter;
}

using CheckAdapter = std::function<Status(const std::string& name)>;

// Reads the prompts, and refuses those that the model cannot run.
Result<std::vector<Prompt>> read_all(const PromptRun& run, const runner::Decoder& decoder,
                                     const CheckAdapter& check_adapter) {
  std::vector<Prompt> prompts;
  for (const PromptLine& line : run.lines) {
    const std::string where = where_of(name_of_prompts(run.options), line.line);
    prompts.push_back(FERRY_TRY(run.prompts.read(line, run.options.system, where)));
    for (const Status& runs :
         {runner::check_tokens(prompts.back().ids, run.manifest.vocab_size, 0, decoder.capacity()),
          check_adapter(adapter_of(run, line))}) {
      if (!runs) return fail(runs.error().code, fmt::format("{}: {}", where, runs.error().message));
    }
  }
  return prompts;
}

// Gives out the answers, one after the other.
class AnswerList {
 public:
  AnswerList(Context& context, const RunOptions& options, const std::vector<PromptLine>& lines)
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
  // Prints an answer that has been kept until its turn.
  void print(std::string_view answer) {
    if (!context_.json) context_.print(answer);
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

// Answers prompts in several sequences at a time. Answers are given out in the order of the
// prompts.
class ParallelAnswers : public runner::PromptAnswers {
 public:
  ParallelAnswers(Context& context, const PromptRun& run, std::vector<Prompt> prompts)
      : context_(context),
        run_(run),
        prompts_(std::move(prompts)),
        answers_(context, run.options, run.lines),
        done_(prompts_.size()) {}

  Result<int> run(runner::DecoderGroup& group) {
    const auto start = run_.loaded.clock.now();
    const Status status = runner::answer_all(group, prompts_.size(), *this);
    if (!status && status.error().code != ErrorCode::kInterrupted) return Failure(status.error());
    if (!status) {
      FERRY_RETURN_IF_ERROR(interrupt());
      return answers_.end(status.error());
    }
    tell(report::seconds(run_.loaded.clock.now() - start));
    return answers_.end(std::nullopt);
  }

  Result<std::optional<int64_t>> begin(size_t prompt, runner::Decoder& decoder) override {
    Generation g = run_.loaded;
    g.stats.inference_start = g.clock.now();
    g.prompt = std::move(prompts_[prompt].ids);
    g.max_new = run_.limits.of(std::ssize(g.prompt), run_.lines[prompt].is_chat());
    g.adapter = run_.options.adapter;
    decoder.restart(std::ssize(g.prompt));
    runner::Sampler sampler = FERRY_TRY(runner::Sampler::make(g.sampling));
    auto made = std::make_unique<Making>(run_, tokenizer_of(prompt), decoder, std::move(sampler),
                                         std::move(g));
    const auto token = FERRY_TRY(made->maker.begin());
    making_[prompt] = std::move(made);
    return token;
  }

  Result<std::optional<int64_t>> choose(size_t prompt, std::span<const float> logits) override {
    return making_.at(prompt)->maker.choose(logits);
  }

  Status end(size_t prompt) override {
    Making& made = *making_.at(prompt);
    Generation g = FERRY_TRY(made.maker.end());
    tokens_ += std::ssize(g.tokens);
    done_[prompt] = Done{std::move(g), std::move(made.text)};
    making_.erase(prompt);
    give();
    return {};
  }

 private:
  // An answer in the making.
  struct Making {
    Making(const PromptRun& run, const text::Tokenizer* tokenizer, runner::Decoder& decoder,
           runner::Sampler the_sampler, Generation g)
        : sampler(std::move(the_sampler)),
          output(tokenizer, run.options.stops, [this](std::string_view part) { text += part; }),
          maker(decoder, run.manifest, run.options, sampler, output, std::move(g)) {}
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

    std::string text;  // what has been made of the answer
    runner::Sampler sampler;
    AnswerOutput output;
    AnswerMaker maker;
  };
  struct Done {
    Generation g;
    std::string text;
  };

  const text::Tokenizer* tokenizer_of(size_t prompt) const {
    return is_tokens(run_.lines[prompt]) ? nullptr : run_.prompts.tokenizer();
  }

  // Ends all answers with the tokens that they have.
  Status interrupt() {
    while (!making_.empty()) {
      const auto first = making_.begin();
      first->second->maker.interrupt();
      FERRY_RETURN_IF_ERROR(end(first->first));
    }
    return {};
  }

  // Gives out the answers whose turn it is.
  void give() {
    for (; given_ < done_.size() && done_[given_]; ++given_) {
      answers_.announce(given_);
      answers_.print(done_[given_]->text);
      answers_.add(done_[given_]->g, given_, tokenizer_of(given_) != nullptr);
      done_[given_].reset();
    }
  }

  void tell(double seconds) {
    context_.note(fmt::format("{} answers, {} new tokens in {:.1f} s: {:.1f} tokens/s",
                              prompts_.size(), tokens_, seconds,
                              report::token_rate(tokens_, seconds)));
  }

  Context& context_;
  const PromptRun& run_;
  std::vector<Prompt> prompts_;
  AnswerList answers_;
  std::map<size_t, std::unique_ptr<Making>> making_;  // by prompt
  std::vector<std::optional<Done>> done_;  // per prompt: an answer that waits for its turn
  size_t given_ = 0;                       // answers that have been given out
  int64_t tokens_ = 0;
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

Result<int> run_prompts(Context& context, const PromptRun& run, AdapterDecoder& adapted) {
  std::vector<Prompt> read = FERRY_TRY(read_all(
      run, adapted.decoder(), [&](const std::string& adapter) { return adapted.check(adapter); }));
  AnswerList answers(context, run.options, run.lines);
  for (size_t i = 0; i < read.size(); ++i) {
    answers.announce(i);
    Generation g = run.loaded;
    g.stats.inference_start = g.clock.now();
    g.prompt = std::move(read[i].ids);
    g.max_new = run.limits.of(std::ssize(g.prompt), run.lines[i].is_chat());
    g.adapter = adapter_of(run, run.lines[i]);
    FERRY_RETURN_IF_ERROR(adapted.choose(g.adapter));
    runner::Decoder& decoder = adapted.decoder();
    decoder.restart(std::ssize(g.prompt));
    if (!read[i].source.empty()) FERRY_RETURN_IF_ERROR(decoder.set_source(read[i].source));
    const text::Tokenizer* tokenizer = is_tokens(run.lines[i]) ? nullptr : run.prompts.tokenizer();
    AnswerOutput output(tokenizer, run.options.stops, printer(context));
    g.sampling.rules.most = g.max_new;
    runner::Sampler sampler = FERRY_TRY(runner::Sampler::make(g.sampling));
    auto done = generate(decoder, run.manifest, run.options, sampler, output, std::move(g));
    if (!done && done.error().code == ErrorCode::kInterrupted) return answers.end(done.error());
    g = FERRY_TRY(std::move(done));
    answers.add(g, i, tokenizer != nullptr);
    if (const auto error = interruption(g)) return answers.end(error);
  }
  return answers.end(std::nullopt);
}

Result<int> run_prompts(Context& context, const PromptRun& run, runner::DecoderGroup& group) {
  const auto check_adapter = [&](const std::string& name) -> Status {
    if (name == run.options.adapter) return {};
    return fail(ErrorCode::kUsage, "--parallel takes one adapter, that of --adapter");
  };
  std::vector<Prompt> read = FERRY_TRY(read_all(run, group.sequence(0), check_adapter));
  return ParallelAnswers(context, run, std::move(read)).run(group);
}

}  // namespace ferry::cli
