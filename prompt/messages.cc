#include "prompt/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/text.h"
#include "text/chat_template/value.h"

namespace ferry::prompt {
namespace {

using text::chat::Value;

const Value* message_member(const Value& object, std::string_view name) {
  return object.is<Value::DictPtr>() ? std::get<Value::DictPtr>(object.data())->find(name)
                                     : nullptr;
}

// Templates would silently ignore any other member.
Status check_item(const Value& item, const std::string& where, KnownContents known) {
  const Value* type = message_member(item, "type");
  if (type == nullptr || !type->is_text()) return bad_input(where + ": an item has no type");
  const bool text = type->str() == "text";
  const bool sound = known.sounds && type->str() == "audio";
  const bool video = known.videos && type->str() == "video";
  if (!text && !sound && !video && type->str() != "image") {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: content of type {} is not supported", where, quoted(type->str())));
  }
  for (const auto& [name, value] : item.members()) {
    if (name == "type" || (text && name == "text")) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: field {} of content of type '{}' is not supported{}", where,
                            quoted(name), type->str(),
                            text    ? ""
                            : sound ? "; sounds are given beside the chat, in order"
                            : video ? "; videos are given beside the chat, in order"
                                    : "; images are given beside the chat, in order"));
  }
  const Value* words = text ? message_member(item, "text") : nullptr;
  if (text && (words == nullptr || !words->is_text())) return bad_input(where + ": has no text");
  return {};
}

// Returns whether the content is a string.
Result<bool> check_content(const Value& message, const std::string& where, KnownContents known) {
  const Value* content = message_member(message, "content");
  if (content != nullptr && content->is_text()) return true;
  if (content == nullptr || !content->is<Value::ListPtr>()) {
    return bad_input(where + ": its content is no string and no list");
  }
  for (const Value& item : content->items()) {
    FERRY_RETURN_IF_ERROR(check_item(item, where, known));
  }
  return false;
}

// The renderer refuses a chat without messages, and a message without a role.
std::vector<Value> messages_of(const Value& chat) {
  const Value* messages = chat.is<Value::ListPtr>() ? &chat : message_member(chat, "messages");
  if (messages == nullptr || !messages->is<Value::ListPtr>()) return {};
  return messages->items();
}

bool has_type(const Value& message, std::string_view type) {
  const Value* content = message_member(message, "content");
  if (content == nullptr || !content->is<Value::ListPtr>()) return false;
  return std::ranges::any_of(content->items(), [&](const Value& item) {
    const Value* stated = message_member(item, "type");
    return stated != nullptr && stated->is_text() && stated->str() == type;
  });
}

bool has_text_alone(const Value& message) {
  const Value* content = message_member(message, "content");
  if (content == nullptr || !content->is<Value::ListPtr>()) return true;
  return std::ranges::all_of(content->items(), [](const Value& item) {
    const Value* type = message_member(item, "type");
    return type == nullptr || (type->is_text() && type->str() == "text");
  });
}

}  // namespace

Result<MessageContents> check_contents(std::string_view chat, const std::string& where,
                                       KnownContents known) {
  const std::vector<Value> messages =
      messages_of(FERRY_TRY(text::chat::parse_json_value(chat, where)));
  MessageContents out;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string place = fmt::format("{}: message {}", where, i + 1);
    const bool string = FERRY_TRY(check_content(messages[i], place, known));
    out.has_video = out.has_video || has_type(messages[i], "video");
    if (string && out.first_string == 0) out.first_string = i + 1;
  }
  return out;
}

Result<size_t> message_beyond_text(std::string_view chat, const std::string& where) {
  const std::vector<Value> messages =
      messages_of(FERRY_TRY(text::chat::parse_json_value(chat, where)));
  const auto found = std::ranges::find_if_not(messages, has_text_alone);
  return found == messages.end() ? 0 : static_cast<size_t>(found - messages.begin()) + 1;
}

}  // namespace ferry::prompt
