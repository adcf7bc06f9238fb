#include "text/chat_template/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace ferry::text::chat_template_test {
namespace {

using nlohmann::ordered_json;

ordered_json fixture(const std::string& name) {
  std::ifstream file(std::string(FERRY_TESTDATA "/chat_template/") + name);
  return ordered_json::parse(file);
}

Result<std::string> fixed_time(const std::string& format) { return "<" + format + ">"; }

// Renders with the tokens <s> and </s>.
Result<std::string> render(const std::string& source, const std::string& chat,
                           const chat::TimeText& time = fixed_time) {
  const ordered_json config = {
      {"chat_template", source}, {"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}};
  const ChatTemplate made = FERRY_TRY(ChatTemplate::parse(config.dump(), "", "FILE"));
  return made.render(chat, "line 1", time);
}

const std::string kChat = R"({"messages": [{"role": "user", "content": "Hi"}]})";

// Jinja with transformers' settings made the expected texts.
TEST(ChatTemplate, RendersAsJinja) {
  const ordered_json document = fixture("cases.json");
  const std::string variables = document["variables"].dump();
  for (const auto& item : document["cases"]) {
    const auto text = render(item[0], variables);
    ASSERT_TRUE(text) << item[0] << text.error().message;
    EXPECT_EQ(*text, item[1]) << item[0];
  }
}

TEST(ChatTemplate, RendersGoldenChats) {
  for (const auto& family : fixture("golden.json")) {
    const auto made = ChatTemplate::parse(family["config"].dump(), "", "FILE");
    ASSERT_TRUE(made) << made.error().message;
    for (const auto& chat : family["chats"]) {
      const auto text = made->render(chat["chat"].dump(), "line 1", {});
      ASSERT_TRUE(text) << text.error().message;
      EXPECT_EQ(*text, chat["text"]) << family["family"];
    }
  }
}

TEST(ChatTemplate, TimeIsGivenFromOutside) {
  EXPECT_EQ(render("{{ strftime_now('%d %b') }}", kChat).value(), "<%d %b>");
  EXPECT_EQ(render("{{ strftime_now('%d') }}", kChat, {}).error().code, ErrorCode::kUnsupported);
}

TEST(ChatTemplate, TemplateFileGoesBeforeTheConfig) {
  const std::string config = R"({"chat_template": "config", "bos_token": "<s>"})";
  EXPECT_EQ(ChatTemplate::parse(config, "{{ bos_token }}file", "F")->render(kChat, "1", {}).value(),
            "<s>file");
}

TEST(ChatTemplate, OneOfSeveralIsChosen) {
  const std::string config = R"({"chat_template": [{"name": "tool_use", "template": "tools"},
      {"name": "default", "template": "plain"}, {"name": "rag", "template": "{% broken"}]})";
  const auto made = ChatTemplate::parse(config, "", "FILE");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->render(kChat, "1", {}).value(), "plain");
  EXPECT_EQ(made->render(R"({"messages": [], "tools": [1]})", "1", {}).value(), "tools");
}

TEST(ChatTemplate, OneMessageAsksForAnAnswer) {
  const auto made = ChatTemplate::parse(
      R"({"chat_template": "{{ messages[0].role }}:{{ messages[0].content }}{{ add_generation_prompt }}"})",
      "", "FILE");
  EXPECT_EQ(made->render_message("a \"b\"", {}).value(), "user:a \"b\"True");
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(ChatTemplate, WhatIsNotBuiltIsNamed) {
  const char* const cases[][2] = {
      {"{% include 'x' %}", "line 1: the statement 'include' is not supported"},
      {"{{ 'a'|map('map', 'map', 'upper') }}", "map of map is not supported"},
      {"\n\n{% import 'x' as y %}", "line 3: the statement 'import'"},
      {"{% extends 'x' %}", "'extends'"},
      {"{% call f() %}{% endcall %}", "'call'"},
      {"a\n{{ 1|pprint }}", "line 2: the filter 'pprint'"},
      {"{{ 1|attr('__class__') }}", "the filter 'attr'"},
      {"{{ 1 is filter }}", "the test 'filter'"},
      {"{{ 'a'.format(1) }}", "the string method 'format'"},
      {"{{ messages.append(1) }}", "the list method 'append'"},
      {"{{ cycler(1) }}", "the function 'cycler'"},
      {"{{ ('a'|safe) + 'b' }}", "the filter 'safe'"},
      {"{% for x in y recursive %}{% endfor %}", "a recursive loop"},
      {"{{ 9223372036854775807 + 1 }}", "an integer beyond 64 bit"},
      {"{{ '\u00e9'|upper }}", "beyond ASCII"},
  };
  for (const auto& [source, message] : cases) {
    const auto text = render(source, kChat);
    ASSERT_FALSE(text) << source;
    EXPECT_EQ(text.error().code, ErrorCode::kUnsupported) << source << text.error().message;
    EXPECT_NE(text.error().message.find(message), std::string::npos) << text.error().message;
  }
}

TEST(ChatTemplate, HostileTemplatesAreRefused) {
  const std::string doubling =
      "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor "
      "%}";
  const std::string tree =
      "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor "
      "%}";
  const std::string deep =
      "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}";
  const std::string loops =
      repeated("{% for i in range(99999) %}", 5) + repeated("{% endfor %}", 5);
  const std::string big = "{% set a = 'a' * 1000000 %}";
  const std::pair<std::string, const char*> cases[] = {
      {"{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}", "nested too deeply"},
      {"{{ " + repeated("-", 100'000) + "1 }}", "nested too deeply"},
      {"{{ " + repeated("not ", 100'000) + "1 }}", "nested too deeply"},
      {"{{ 1" + repeated("+1", 100'000) + " }}", "nested too deeply"},
      {"{{ a" + repeated(".a", 100'000) + " }}", "nested too deeply"},
      {"{{ a" + repeated("|trim", 100'000) + " }}", "nested too deeply"},
      {repeated("{% if 1 %}", 10'000), "nested too deeply"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"},
      {"{{ range(1000000000000) }}", "range() of more than"},
      {loops, "too much work"},
      {"{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "beyond 16 MiB"},
      {"{{ 'x' * 9223372036854775807 }}", "beyond 16 MiB"},
      {doubling, "beyond 16 MiB"},
      {tree, "grows too large"},
      {deep, "nested too deeply"},
      {big + "{{ a.replace('a', a) }}", "beyond 16 MiB"},
      {big + "{{ a.replace('', a) }}", "beyond 16 MiB"},
      {"{% set a = 'a' * 100000 %}{{ a|list|join(a) }}", "beyond 16 MiB"},
      {big + "{% for i in range(99999) %}{{ 'b' in a }}{% endfor %}", "too much work"},
      {"{{ ('a'*9000000).strip('b'*4000000 ~ 'a') }}", "too much work"},
      {"{{ ('a'*9000000)|trim('b'*4000000 ~ 'a') }}", "too much work"},
      {"{{ ('a'*4000000 ~ 'b') in 'a'*9000000 }}", "too much work"},
      {"{{ ('a'*9000000).find('a'*4000000 ~ 'b') }}", "too much work"},
      {"{% set n = namespace(x=[1]) %}{% for i in range(20) %}{% set n.x = [n.x, n.x] %}{% endfor "
       "%}"
       "{{ n.x|tojson(indent=16) }}",
       "beyond 16 MiB"},
      {std::string((1 << 20) + 1, 'x'), "the limit is"},
      {"{% if true %}x", "ends before 'endif'"},
      {"{% for x in y %}", "ends before 'endfor'"},
      {"a\n{{ x", "line 2: the tag of line 2 is not closed"},
      {"{% if x", "is not closed"},
      {"{# x", "a comment is not closed"},
      {"{% raw %}", "a raw block is not closed"},
      {"{{ 'x }}", "a string is not closed"},
      {"{{ '\\", "a string is not closed"},
      {"{{ '\\ud800' }}", "malformed"},
      {"{{ [1) }}", "unexpected ')'"},
      {"{{ }}", "unexpected '}}'"},
      {"{% endif %}", "unexpected 'endif'"},
      {"{% break %}", "unexpected 'break'"},
      {"{{ nothing.at_all }}", "'nothing' is undefined"},
      {"{{ 'a' + nothing }}", "'nothing' is undefined"},
      {"{{ 'a' + 1 }}", "str + int makes no sense"},
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 'abc'[::0] }}", "step 0"},
      {"{{ nothing() }}", "the function 'nothing' is undefined"},
      {"\n{{ raise_exception('roles\\nmust alternate') }}",
       "line 2: the template refuses this chat: 'roles\\nmust alternate'"},
  };
  for (const auto& [source, message] : cases) {
    const auto text = render(source, kChat);
    ASSERT_FALSE(text) << source.substr(0, 100);
    EXPECT_EQ(text.error().code, ErrorCode::kBadInput) << source.substr(0, 100);
    EXPECT_NE(text.error().message.find(message), std::string::npos) << text.error().message;
    EXPECT_EQ(text.error().message.find('\n'), std::string::npos);
  }
}

// Rendering cut or altered templates ends in a text or in an error.
TEST(ChatTemplate, DamagedTemplatesEnd) {
  const ordered_json document = fixture("cases.json");
  const std::string variables = document["variables"].dump();
  const auto ends = [&](const std::string& source) {
    const auto made = ChatTemplate::parse("{}", source, "FILE");
    const auto text = made ? made->render(variables, "line 1", fixed_time)
                           : Result<std::string>(Failure(made.error()));
    EXPECT_TRUE(text || !text.error().message.empty()) << source;
    return text.has_value();
  };
  size_t refused = 0;
  for (const auto& item : document["cases"]) {
    const std::string source = item[0];
    for (size_t i = 1; i < source.size(); i += 2) {
      std::string altered = source;
      altered[i] = "{}%|.["[i / 2 % 6];
      refused += ends(source.substr(0, i)) ? 0 : 1;
      refused += ends(altered) ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 1000U);
}

TEST(ChatTemplate, MalformedChatsAreRefused) {
  for (const char* chat :
       {"1", "{}", R"({"messages": "x"})", R"([{"content": "no role"}])", R"([1])", "[", ""}) {
    const auto text = render("x", chat);
    ASSERT_FALSE(text) << chat;
    EXPECT_EQ(text.error().code, ErrorCode::kBadInput);
    EXPECT_EQ(text.error().message.substr(0, 6), "line 1");
  }
  for (const char* config : {"{}", R"({"chat_template": null})", R"({"chat_template": 1})",
                             R"({"chat_template": [{"name": "default"}]})"}) {
    EXPECT_EQ(ChatTemplate::parse(config, "", "FILE").error().code, ErrorCode::kBadInput) << config;
  }
}

}  // namespace
}  // namespace ferry::text::chat_template_test
