// ferry run --messages and --interactive: chats of several turns.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>
#include <filesystem>
#include <sstream>

#include "tests/cli/checkpoints.h"

namespace ferry::run_chat_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

std::string image(const std::string& name) {
  const std::string small = fixture("media/images/" + name);
  return std::filesystem::exists(small) ? small : fixture("vision/prompts/" + name);
}

std::string convert(const TempDir& dir, const std::string& source, const Line& options = {}) {
  const Outcome outcome =
      run_ferry(Line{"convert", source, "-o", dir / "b", "--dtype", "f32"} + options);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return dir / "b";
}

std::vector<Json> documents(const std::string& text) {
  std::vector<Json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
  return out;
}

Outcome chat(const std::string& bundle, const std::string& input, const Line& options = {}) {
  return run_ferry_on(input, Line{"run", bundle, "--interactive", "--ignore-eos"} + options);
}

// Returns the answers of a chat of these lines.
std::vector<Json> turns(const std::string& bundle, const std::string& input,
                        const Line& options = {}) {
  const Outcome outcome = chat(bundle, input, options + Line{"--json", "--quiet"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::vector<Json> results;
  for (const Json& document : documents(outcome.out)) results.push_back(document["result"]);
  return results;
}

Json with_messages(const TempDir& dir, const std::string& bundle, const Json& messages,
                   const Line& options = {}) {
  const Json file = {{"messages", messages}, {"add_generation_prompt", true}};
  write_bytes(dir / "messages.json", file.dump());
  const Outcome outcome = run_ferry(
      Line{"run", bundle, "--messages", dir / "messages.json", "--ignore-eos", "--json"} + options);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.json()["result"];
}

Json text_item(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

struct Style {
  const char* name;
  Line convert, run;
};

const Style kStyles[] = {
    {"stateful", {"--shards", "2"}, {}},
    {"static_hybrid", {"--program", "static", "--prefill-length", "16"}, {}},
    {"static_kv", {"--program", "static", "--prefill-length", "1"}, {"--mode", "kv"}},
    {"static_lookahead",
     {"--program", "static", "--prefill-length", "16", "--decode-length", "8"},
     {"--mode", "lookahead"}},
};

TEST(RunMessages, AListOfMessagesAsksForAnAnswer) {
  const TempDir dir;
  const std::string bundle = convert(dir, text_checkpoint(dir), {"--context-length", "64"});
  const Json messages = {{{"role", "user"}, {"content", "Hello"}}};
  const Json whole = with_messages(dir, bundle, messages);
  write_bytes(dir / "list.json", "\n " + messages.dump());
  const Outcome outcome =
      run_ferry({"run", bundle, "--messages", dir / "list.json", "--ignore-eos", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["result"]["prompt_tokens"], whole["prompt_tokens"]);
  const Outcome piped =
      run_ferry_on(messages.dump(), {"run", bundle, "--messages", "-", "--ignore-eos", "--json"});
  EXPECT_EQ(piped.json()["result"]["prompt_tokens"], whole["prompt_tokens"]) << piped.err;
  const Outcome broken = run_ferry_on("[{", {"run", bundle, "--messages", "-"});
  EXPECT_EQ(broken.code, 3);
  EXPECT_TRUE(broken.err.starts_with("ferry: error: standard input: ")) << broken.err;
  // Text after the list does not become part of the chat.
  write_bytes(dir / "list.json", messages.dump() + R"(, "tools": [])");
  EXPECT_EQ(run_ferry({"run", bundle, "--messages", dir / "list.json"}).code, 3);
}

class ChatStyle : public testing::TestWithParam<Style> {};

// The tokens of a turn are those of the whole conversation as one prompt, and nothing is computed
// twice. An answer of one token is the case in which every tokenizer gives the same token back.
TEST_P(ChatStyle, TextTurnsEqualMessages) {
  const TempDir dir;
  const std::string bundle =
      convert(dir, text_checkpoint(dir), GetParam().convert + Line{"--context-length", "256"});
  for (const std::string length : {"1", "9"}) {
    SCOPED_TRACE(length);
    const Line options = GetParam().run + Line{"--max-new", length};
    const std::vector<Json> got = turns(bundle, "Hello\n\nAnd you?\nWhy?", options);
    ASSERT_EQ(got.size(), 3U);
    Json messages = Json::array();
    int64_t run_before = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const char* texts[] = {"Hello", "And you?", "Why?"};
      messages.push_back({{"role", "user"}, {"content", texts[i]}});
      const Json whole = with_messages(dir, bundle, messages, options);
      EXPECT_EQ(got[i]["prompt_tokens"], whole["prompt_tokens"]);
      EXPECT_EQ(got[i]["tokens"], whole["tokens"]);
      EXPECT_EQ(got[i]["text"], whole["text"]);
      const int64_t kept = got[i]["kept_tokens"], prompt = std::ssize(got[i]["prompt_tokens"]);
      EXPECT_EQ(got[i]["stats"]["evaluated_tokens"], prompt - kept);
      EXPECT_TRUE(kept == 0 || kept == run_before) << kept;
      if (length == "1") {
        EXPECT_EQ(kept, run_before);
      }
      run_before = prompt + std::ssize(got[i]["tokens"]) - 1;
      messages.push_back({{"role", "assistant"}, {"content", got[i]["text"]}});
    }
  }
}

TEST_P(ChatStyle, TurnsWithImagesEqualMessages) {
  for (const std::string name : {"smolvlm", "internvl3_hf"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const std::string bundle = convert(dir, vision_checkpoint(dir, name),
                                       GetParam().convert + Line{"--context-length", "256"});
    const std::string a = image("wide_6x1.png"), b = image("tiny.png");
    const Line first = GetParam().run + Line{"--image", a, "--max-new", "1"};
    const std::vector<Json> got =
        turns(bundle, "What is it?\n/image " + b + "\nAnd this?\nWhy?\n/quit\nnever\n", first);
    ASSERT_EQ(got.size(), 3U);
    const Json picture = {{"type", "image"}};
    Json messages = {{{"role", "user"}, {"content", {picture, text_item("What is it?")}}}};
    const auto answer = [&](size_t i) {
      messages.push_back({{"role", "assistant"}, {"content", {text_item(got[i]["text"])}}});
    };
    EXPECT_EQ(got[0]["tokens"], with_messages(dir, bundle, messages, first)["tokens"]);
    answer(0);
    messages.push_back({{"role", "user"}, {"content", {picture, text_item("And this?")}}});
    const Line both = first + Line{"--image", b};
    const Json second = with_messages(dir, bundle, messages, both);
    EXPECT_EQ(got[1]["prompt_tokens"], second["prompt_tokens"]);
    EXPECT_EQ(got[1]["tokens"], second["tokens"]);
    answer(1);
    messages.push_back({{"role", "user"}, {"content", {text_item("Why?")}}});
    EXPECT_EQ(got[2]["tokens"], with_messages(dir, bundle, messages, both)["tokens"]);
    EXPECT_EQ(got[0]["kept_tokens"], 0);
    // The template of internvl3_hf ends with a newline, which no token of an answer is merged with.
    if (name == "internvl3_hf") {
      EXPECT_EQ(got[1]["kept_tokens"], std::ssize(got[0]["prompt_tokens"]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, ChatStyle, testing::ValuesIn(kStyles),
                         [](const auto& test) { return test.param.name; });

// Chats of system messages, several turns and several images give the tokens of the reference.
TEST(RunMessages, GivesTheTokensOfTheReference) {
  const Json cases = Json::parse(read_bytes(fixture("vision/prompts/cases.json")));
  const TensorFile expected(fixture("vision/prompts/greedy.safetensors"));
  const auto ids = [&](const std::string& tensor) {
    const std::string bytes = expected.bytes_of(tensor);
    std::vector<int64_t> values(bytes.size() / sizeof(int64_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  for (const std::string processor : {"smolvlm", "internvl"}) {
    const TempDir dir;
    const std::string model = processor == "smolvlm" ? "smolvlm" : "internvl3_hf";
    const std::string bundle = convert(dir, vision_checkpoint(dir, model));
    for (const Json& one : cases[processor]) {
      const std::string name = processor + "_" + one["case"].get<std::string>();
      SCOPED_TRACE(name);
      Line options = {"--max-new", "16"};
      for (const std::string file : one["images"]) options = options + Line{"--image", image(file)};
      const Json document = with_messages(dir, bundle, one["messages"], options);
      EXPECT_EQ(document["prompt_tokens"], Json(ids(name + ".input_ids")));
      EXPECT_EQ(document["tokens"], Json(ids(name + ".greedy_ids")));
    }
  }
}

TEST(RunMessages, RefusalsAreOneLine) {
  const TempDir dir;
  const std::string bundle = convert(dir, text_checkpoint(dir));
  const std::string pictures =
      dir.write("pictures.json", R"([{"role": "user", "content": [{"type": "image"}]}])");
  const std::string broken = dir.write("broken.json", "[{");
  const std::string empty = dir.write("empty.json", "{}");
  struct Case {
    Line args;
    int code;
    std::string message;
  };
  const Case cases[] = {
      {{"--messages", pictures}, 2, pictures + ": message 1 has content that is no text"},
      {{"--messages", broken}, 3, broken},
      {{"--messages", empty}, 3, empty + ": not a chat"},
      {{"--messages", dir / "absent"}, 5, "absent"},
      {{}, 2, "--interactive is required"},
      {{"--messages", pictures, "--chat", "a"}, 2, "--chat and --messages: each gives the prompt"},
      {{"--interactive", "--chat", "a"}, 2, "--chat and --interactive: each gives the prompt"},
      {{"--interactive", "--tokens", "1"}, 2, "--tokens and --interactive: each gives the prompt"},
      {{"--interactive", "--stats-json", dir / "s"}, 2, "does not take --stats-json"},
      {{"--interactive", "--dump-logits", dir / "s"}, 2, "does not take --dump-logits"},
      {{"--interactive", "--thresholds", empty}, 2, "does not take --thresholds"},
      {{"--interactive", "--image", image("tiny.png")}, 2, "takes no images"},
  };
  for (const auto& [args, code, message] : cases) {
    const Outcome outcome = run_ferry(Line{"run", bundle} + args);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(RunInteractive, StreamsAnswersAndStatistics) {
  const TempDir dir;
  const std::string bundle = convert(dir, text_checkpoint(dir));
  const std::vector<Json> got = turns(bundle, "Hello\r\nWhy?\r\n", {"--max-new", "3"});
  ASSERT_EQ(got.size(), 2U);
  const std::string text =
      got[0]["text"].get<std::string>() + "\n" + got[1]["text"].get<std::string>() + "\n";
  const Outcome outcome = chat(bundle, "Hello\nWhy?\n", {"--max-new", "3"});
  EXPECT_EQ(outcome.out, text) << "no prompt where stdin is no terminal";
  size_t lines = 0, at = 0;
  for (; (at = outcome.err.find("ferry: ", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 2U);
  const Outcome quiet = chat(bundle, "Hello\nWhy?\n", {"--max-new", "3", "--quiet"});
  EXPECT_EQ(quiet.out, text);
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(chat(bundle, "").out, "");
}

// Lines that are refused change nothing.
TEST(RunInteractive, RefusedLinesLeaveTheChatAsItIs) {
  const TempDir dir;
  const std::string bundle = convert(dir, vision_checkpoint(dir, "smolvlm"));
  const std::string square = image("square.png");
  const Line options = {"--max-new", "2", "--json", "--quiet"};
  const std::string good = "Hello\n/image " + square + "\nAnd this?\n";
  const std::string bad = "Hello\n/imagine\n/image\n/quit now\n/image " + (dir / "none.png") +
                          "\nA <image>\n/image " + square + "\n\xff\nAnd this?\n";
  const std::vector<Json> clean = documents(chat(bundle, good, options).out);
  const Outcome outcome = chat(bundle, bad, options);
  EXPECT_EQ(outcome.code, 0);
  const std::vector<Json> got = documents(outcome.out);
  ASSERT_EQ(got.size(), 8U) << outcome.out;
  ASSERT_EQ(clean.size(), 2U);
  EXPECT_EQ(got.front()["result"]["tokens"], clean.front()["result"]["tokens"]);
  EXPECT_EQ(got.back()["result"]["prompt_tokens"], clean.back()["result"]["prompt_tokens"]);
  EXPECT_EQ(got.back()["result"]["tokens"], clean.back()["result"]["tokens"]);
  EXPECT_EQ(outcome.error_lines(), 6U) << outcome.err;
  const char* const messages[] = {"'/imagine': no command",  "'/image': no command",
                                  "'/quit now': no command", "none.png: cannot open",
                                  "1 placeholder '<image>'", "message: not UTF-8"};
  for (size_t i = 0; i < std::size(messages); ++i) {
    const std::string message = got[i + 1]["error"]["message"];
    EXPECT_NE(message.find(messages[i]), std::string::npos) << message;
    EXPECT_NE(outcome.err.find(messages[i]), std::string::npos) << outcome.err;
  }
}

// A second picture of LLaVA-OneVision changes what the first one becomes.
TEST(RunInteractive, PicturesThatAreNotAloneAreEncodedAgain) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("vision/llava_onevision"));
  const std::string first = image("noise.png"), second = image("tiny.png");
  const std::vector<Json> got =
      turns(bundle, "/image " + first + "\nOne\n/image " + second + "\nTwo\nThree\n",
            {"--max-new", "3", "--greedy"});
  ASSERT_EQ(got.size(), 3U);
  const auto picture = [] { return Json{{"type", "image"}}; };
  const auto turn = [](const std::string& role, Json content) {
    return Json{{"role", role}, {"content", std::move(content)}};
  };
  Json messages = {turn("user", {picture(), text_item("One")}),
                   turn("assistant", {text_item(got[0]["text"])}),
                   turn("user", {picture(), text_item("Two")})};
  const Json whole = with_messages(
      dir, bundle, messages, {"--max-new", "3", "--greedy", "--image", first, "--image", second});
  EXPECT_EQ(got[1]["prompt_tokens"], whole["prompt_tokens"]);
  EXPECT_EQ(got[1]["tokens"], whole["tokens"]);
}

TEST(RunInteractive, ABundleOfTextTakesNoImages) {
  const TempDir dir;
  const std::string bundle = convert(dir, text_checkpoint(dir));
  const Outcome outcome = chat(bundle, "/image " + image("tiny.png") + "\n", {"--quiet"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "ferry: error: " + bundle +
                             ": this bundle takes no images: it has no component vision_encoder\n");
}

TEST(RunInteractive, TokensBeyondTheVocabularyAreRefused) {
  const TempDir dir;
  const std::string source = text_checkpoint(dir);
  Json tokenizer = Json::parse(read_bytes(fixture("tokenizer/llama3/tokenizer.json")));
  tokenizer["post_processor"] = nullptr;
  write_bytes(source + "/tokenizer.json", tokenizer.dump());
  const Outcome outcome = chat(convert(dir, source), "Hello\n", {"--quiet", "--json"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "ferry: error: message: token 408 is outside of the vocabulary of 384\n");
  EXPECT_EQ(outcome.json()["ok"], false);
}

TEST(RunInteractive, AFullContextEndsIt) {
  const TempDir dir;
  for (const char* style : {"stateful", "static"}) {
    const std::string bundle =
        convert(dir, text_checkpoint(TempDir()),
                {"--context-length", "64", "--program", style, "--overwrite"});
    const std::string input = "Hello\nThis is a message that is much too long\nmore\n";
    const Outcome outcome = chat(bundle, input, {"--json", "--quiet", "--max-new", "40"});
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    const std::vector<Json> got = documents(outcome.out);
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[1]["result"]["stop"], "context");
    EXPECT_EQ(got[1]["result"]["tokens"], Json::array());
    EXPECT_EQ(outcome.err.find("ferry: the context of 6"), 0U) << outcome.err;
  }
}

TEST(RunInteractive, SignalsEndIt) {
  const TempDir dir;
  const std::string bundle = convert(dir, text_checkpoint(dir));
  RunningFerry ferry({"run", bundle, "--interactive", "--json", "--max-new", "2"},
                     /*close_input=*/false);
  ferry.write("Hello\n");
  EXPECT_EQ(Json::parse(ferry.read_line(60))["result"]["tokens"].size(), 2U) << "at once";
  ferry.signal(SIGINT);  // the program waits for the next line
  const Outcome outcome = ferry.wait();
  EXPECT_EQ(outcome.code, 130);
  EXPECT_EQ(outcome.json()["error"]["code"], "interrupted");
}

}  // namespace
}  // namespace ferry::run_chat_test
