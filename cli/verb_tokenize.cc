// ferry tokenize turns text into ids and ids into text, with one JSON value per line.

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/run_prompt.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "core/json.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::cli {
namespace {

struct TokenizeLine {
  std::string path;
  bool add_special = false, decode = false, skip_special = false, chat = false;
};

Status check_tokenize(const TokenizeLine& o) {
  if (o.chat && (o.decode || o.add_special || o.skip_special)) {
    return fail(ErrorCode::kUsage, "--chat takes no other option");
  }
  if (o.decode && o.add_special) {
    return fail(ErrorCode::kUsage, "--add-special is of no use with --decode");
  }
  if (o.skip_special && !o.decode) {
    return fail(ErrorCode::kUsage, "--skip-special is of no use without --decode");
  }
  return {};
}

Result<std::vector<int64_t>> ids_of(const nlohmann::json& value, const std::string& where) {
  if (!value.is_array()) return bad_input(where + ": not a list of ids");
  std::vector<int64_t> ids;
  ids.reserve(value.size());
  for (const nlohmann::json& id : value) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > UINT32_MAX) {
      return bad_input(where + ": not a list of ids");
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

// Returns the answer to one line, with a newline.
Result<std::string> answer_line(text::Tokenizer& tokenizer, const std::string& line,
                                const std::string& where, const TokenizeLine& o) {
  const nlohmann::json value = FERRY_TRY(parse_json(line, where));
  JsonWriter out;
  if (o.decode) {
    const std::vector<int64_t> ids = FERRY_TRY(ids_of(value, where));
    return out.value(FERRY_TRY(tokenizer.decode(ids, o.skip_special))).take();
  }
  if (!value.is_string()) return bad_input(where + ": not a string");
  const auto& text = value.get_ref<const std::string&>();
  return out.value(Shape(FERRY_TRY(tokenizer.encode(text, o.add_special)))).take();
}

// Prints answers line by line if the input is no file, because a program may wait for each answer.
class LineAnswers {
 public:
  explicit LineAnswers(Context& context) : context_(context) {
    struct stat input {};
    buffered_ = ::fstat(STDIN_FILENO, &input) == 0 && S_ISREG(input.st_mode);
  }
  void give(const std::string& line) {
    context_.print(line);
    if (!buffered_) context_.flush();
  }

 private:
  Context& context_;
  bool buffered_ = false;
};

// Renders chats to prompts, which needs no tokenizer.
Result<int> render_chats(Context& context, const TokenizeLine& o) {
  const text::ChatTemplate chat = FERRY_TRY(text::ChatTemplate::load(o.path));
  const text::chat::TimeText time = text::chat::local_time();
  LineAnswers answers(context);
  std::string line;
  for (size_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    JsonWriter out;
    out.value(FERRY_TRY(chat.render(line, fmt::format("line {}", number), time)));
    answers.give(out.take());
  }
  return 0;
}

Result<int> run_tokenize(Context& context, const TokenizeLine& o) {
  FERRY_RETURN_IF_ERROR(check_tokenize(o));
  let_signals_end_the_process();  // the process waits for input most of the time
  if (o.chat) return render_chats(context, o);
  text::Tokenizer tokenizer = FERRY_TRY(text::load_tokenizer(o.path));
  std::ios::sync_with_stdio(false);
  LineAnswers answers(context);
  std::string line;
  for (size_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("line {}", number);
    answers.give(FERRY_TRY(answer_line(tokenizer, line, where, o)));
  }
  return 0;
}

}  // namespace

void add_tokenize(CommandLine& line) {
  auto o = std::make_shared<TokenizeLine>();
  line.verb("tokenize", "Text to token ids and back: one JSON value per line from standard input")
      .positional("PATH", o->path, "Bundle, directory with a tokenizer, or its file")
      .finds_models()
      .flag("--add-special", o->add_special, "With the special tokens that the tokenizer sets")
      .flag("--decode", o->decode, "Lists of ids to strings")
      .flag("--skip-special", o->skip_special, "With --decode: without special tokens")
      .flag("--chat", o->chat,
            "Chats to prompts: {\"messages\": [...], \"add_generation_prompt\": bool} a line")
      .example("echo '\"Hello\"' | ferry tokenize bundle/", "A list of ids for each line.")
      .example("echo '[1, 2, 3]' | ferry tokenize bundle/ --decode", "Ids to text.")
      .action([o](Context& context) { return run_tokenize(context, *o); });
}

}  // namespace ferry::cli
