// Input: a chat template, and after a zero byte a chat as JSON. Without a zero byte the chat is a
// fixed one with tools.

#include "text/chat_template/chat_template.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/require.h"

namespace ferry::chat_template_fuzz {
namespace {

constexpr std::string_view kConfig = R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})";
constexpr std::string_view kChat = R"({"messages": [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "Hi \u00e9\u6f22!"},
    {"role": "assistant", "content": "<think>hm</think>\nYes", "tool_calls":
     [{"type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]},
    {"role": "tool", "content": "3"}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"z": 1}}}],
  "add_generation_prompt": true, "n": 7})";

Result<std::string> fixed_time(const std::string& format) { return "<" + format + ">"; }

void run(std::string_view source, std::string_view chat) {
  const auto made = text::ChatTemplate::parse(kConfig, source, "f");
  if (!made) return require_good_message(made.error());
  const auto prompt = made->render(chat, "chat", fixed_time);
  const auto again = made->render(chat, "chat", fixed_time);
  require(prompt.has_value() == again.has_value());
  if (!prompt) return require_good_message(prompt.error());
  require(*prompt == *again);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  if (end == std::string_view::npos) {
    run(input, kChat);
  } else {
    run(input.substr(0, end), input.substr(end + 1));
  }
  return 0;
}

}  // namespace ferry::chat_template_fuzz
