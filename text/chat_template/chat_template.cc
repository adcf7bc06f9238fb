#include "text/chat_template/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "text/chat_template/parser.h"
#include "text/chat_template/value.h"

namespace ferry::text {
namespace {

using chat::Value;

const Value* member(const Value& value, std::string_view name) {
  return value.is<Value::DictPtr>() ? std::get<Value::DictPtr>(value.data())->find(name) : nullptr;
}

// A token is a string or, in older files, an object {"content": "..."}.
const Value* token_text(const Value& value) {
  const Value* content = value.is<Value::DictPtr>() ? member(value, "content") : &value;
  return content != nullptr && content->is_text() ? content : nullptr;
}

// Returns the variables that transformers gives a template: the special tokens under their names.
chat::Names special_tokens(const Value& config) {
  static constexpr const char* kTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};
  chat::Names out;
  for (const char* name : kTokens) {
    const Value* given = member(config, name);
    const Value* text = given != nullptr ? token_text(*given) : nullptr;
    if (text != nullptr) out[name] = *text;
  }
  const Value* extra = member(config, "extra_special_tokens");
  if (extra == nullptr || !extra->is<Value::DictPtr>()) return out;
  for (const auto& [name, given] : extra->members()) {
    if (const Value* text = token_text(given)) out[name] = *text;
  }
  return out;
}

Error in_file(Error error, const std::string& name) {
  error.message = fmt::format("{}: chat template: {}", name, error.message);
  return error;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::load(const std::string& directory) {
  return load(directory, files_in(directory));
}

Result<ChatTemplate> ChatTemplate::load(const std::string& directory, const ReadFile& read) {
  const std::string config_path = directory + "/" + kTokenizerConfigFile;
  const std::string jinja_path = directory + "/" + kChatTemplateFile;
  const std::string jinja = FERRY_TRY(read(kChatTemplateFile, chat::kMaxTemplateBytes));
  const std::string config = FERRY_TRY(read(kTokenizerConfigFile, kMaxTokenizerConfigBytes));
  if (jinja.empty() && config.empty()) {
    return bad_input(fmt::format("{}: has no chat template: neither {} nor {}",
                                 printable(directory), kChatTemplateFile, kTokenizerConfigFile));
  }
  ChatTemplate out =
      FERRY_TRY(parse(config, jinja, printable(jinja.empty() ? config_path : jinja_path)));
  const std::string map = FERRY_TRY(read(kSpecialTokensMapFile, kMaxTokenizerConfigBytes));
  FERRY_RETURN_IF_ERROR(
      out.take_map(config, map, printable(directory + "/" + kSpecialTokensMapFile)));
  return out;
}

Status ChatTemplate::take_map(std::string_view config, std::string_view map,
                              const std::string& name) {
  if (map.empty()) return {};
  const Value fields = FERRY_TRY(chat::parse_json_value(config.empty() ? "{}" : config, file_));
  if (member(fields, "added_tokens_decoder") != nullptr) return {};
  for (auto& [token, text] : special_tokens(FERRY_TRY(chat::parse_json_value(map, name)))) {
    tokens_[token] = text;
  }
  return {};
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view config, std::string_view jinja,
                                         const std::string& name) {
  ChatTemplate out;
  out.file_ = name;
  const Value fields = FERRY_TRY(chat::parse_json_value(config.empty() ? "{}" : config, name));
  out.tokens_ = special_tokens(fields);
  if (!jinja.empty()) {
    FERRY_RETURN_IF_ERROR(out.add("default", jinja));
    return out;
  }
  const Value* given = member(fields, "chat_template");
  if (given == nullptr || given->is<chat::None>()) {
    return bad_input(name + ": has no chat_template");
  }
  if (given->is_text()) {
    FERRY_RETURN_IF_ERROR(out.add("default", given->str()));
    return out;
  }
  if (!given->is<Value::ListPtr>()) return bad_input(name + ": chat_template is no string or list");
  for (const Value& entry : given->items()) {
    const Value* title = member(entry, "name");
    const Value* source = member(entry, "template");
    if (title == nullptr || !title->is_text() || source == nullptr || !source->is_text()) {
      return bad_input(name + ": chat_template: an entry is not {name, template}");
    }
    // A chat can ask for no template but these two.
    if (title->str() != "default" && title->str() != "tool_use") continue;
    FERRY_RETURN_IF_ERROR(out.add(title->str(), source->str()));
  }
  return out;
}

Status ChatTemplate::add(std::string name, std::string_view source) {
  auto tokens = chat::tokenize(source);
  if (!tokens) return Failure(in_file(std::move(tokens).error(), file_));
  auto body = chat::parse(*tokens);
  if (!body) return Failure(in_file(std::move(body).error(), file_));
  sources_.push_back({std::move(name), std::make_shared<const chat::Body>(std::move(*body))});
  return {};
}

Result<const ChatTemplate::Source*> ChatTemplate::choose(const chat::Names& variables) const {
  const auto named = [&](std::string_view name) {
    return std::ranges::find(sources_, name, &Source::name);
  };
  const bool tools = !variables.find("tools")->second.is<chat::None>();
  auto found = tools ? named("tool_use") : sources_.end();
  if (found == sources_.end()) found = named("default");
  if (found == sources_.end()) return bad_input(file_ + ": has no chat template named 'default'");
  return &*found;
}

Result<std::string> ChatTemplate::render(chat::Names variables, const chat::TimeText& time) const {
  variables.insert(tokens_.begin(), tokens_.end());
  for (const char* name : {"tools", "documents"}) variables.try_emplace(name, Value::none());
  variables.try_emplace("add_generation_prompt", Value::boolean(false));
  const Source* source = FERRY_TRY(choose(variables));
  chat::Evaluator evaluator(std::move(variables), time);
  auto text = evaluator.run(*source->body);
  if (!text) return Failure(in_file(std::move(text).error(), file_));
  return text;
}

Result<std::string> ChatTemplate::render(std::string_view chat, const std::string& where,
                                         const chat::TimeText& time) const {
  const Value value = FERRY_TRY(chat::parse_json_value(chat, where));
  chat::Names variables;
  if (value.is<Value::ListPtr>()) variables["messages"] = value;
  if (value.is<Value::DictPtr>()) variables.insert(value.members().begin(), value.members().end());
  const auto messages = variables.find("messages");
  if (messages == variables.end() || !messages->second.is<Value::ListPtr>()) {
    return bad_input(where +
                     ": not a chat: {\"messages\": [...], \"add_generation_prompt\": bool}");
  }
  for (const Value& message : messages->second.items()) {
    const Value* role = member(message, "role");
    if (role == nullptr || !role->is_text()) return bad_input(where + ": a message has no role");
  }
  auto text = render(std::move(variables), time);
  if (text) return text;
  Error error = std::move(text).error();
  error.message = fmt::format("{}: {}", where, error.message);
  return Failure(std::move(error));
}

Result<std::string> ChatTemplate::render_message(const std::string& text,
                                                 const chat::TimeText& time) const {
  const Value message =
      FERRY_TRY(Value::dict({{"role", Value::text("user")}, {"content", Value::text(text)}}));
  chat::Names variables;
  variables["messages"] = FERRY_TRY(Value::list({message}));
  variables["add_generation_prompt"] = Value::boolean(true);
  return render(std::move(variables), time);
}

}  // namespace ferry::text
