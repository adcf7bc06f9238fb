// Prompts and processor files that are refused, and cases that no golden has.
#include "tests/prompt/prompt_testing.h"

namespace ferry::prompt::image_prompt_test {
namespace {

using nlohmann::json;

ImagePrompt opened(const std::string& processor) { return open_files(files_of(processor)).value(); }

// Returns the error of opening a processor after `change` was merged into a file.
Error refused(const std::string& processor, const std::string& file, const json& change) {
  Files files = files_of(processor);
  json fields = json::parse(files[file]);
  fields.merge_patch(change);
  files[file] = fields.dump();
  const auto prompts = open_files(files);
  EXPECT_FALSE(prompts) << change;
  return prompts ? Error{} : prompts.error();
}

std::string message_of(const Result<ExpandedPrompt>& prompt) {
  return prompt ? "accepted" : prompt.error().message;
}

// Expands a chat of one message with this content.
Result<ExpandedPrompt> with_content(ImagePrompt& prompts, const json& content,
                                    const std::vector<ImageLayout>& images = {}) {
  const json chat = json::array({{{"role", "user"}, {"content", content}}});
  return prompts.chat(chat.dump(), "chat", {}, images);
}

TEST(ImagePromptRefusals, NumbersOfImages) {
  ImagePrompt prompts = opened("smolvlm");
  const std::vector<ImageLayout> one(1), two(2);
  const json image = {{"type", "image"}};
  EXPECT_EQ(message_of(with_content(prompts, json::array({image}), two)),
            "chat: 1 placeholder '<image>' in the prompt for 2 images");
  EXPECT_EQ(message_of(with_content(prompts, {image, image}, one)),
            "chat: 2 placeholders '<image>' in the prompt for 1 image");
  EXPECT_EQ(message_of(with_content(prompts, json::array({image}))),
            "chat: 1 placeholder '<image>' in the prompt for 0 images");
  EXPECT_EQ(message_of(prompts.plain("a<image><image>", "p", one)),
            "p: 2 placeholders '<image>' in the prompt for 1 image");
}

TEST(ImagePromptRefusals, ContentThatATemplateWouldLeaveOut) {
  ImagePrompt prompts = opened("smolvlm");
  const auto said = [&](const json& content) { return message_of(with_content(prompts, content)); };
  EXPECT_EQ(said("Hello"),
            "chat: message 1: its content is a string, which the chat template leaves out; write "
            R"([{"type": "text", "text": "..."}])");
  EXPECT_EQ(said({{{"type", "video"}}}),
            "chat: message 1: content of type 'video' is not supported");
  EXPECT_EQ(said({{{"type", "image"}, {"url", "x"}}}),
            "chat: message 1: field 'url' of content of type 'image' is not supported; images are "
            "given beside the chat, in order");
  EXPECT_EQ(said({{{"type", "text"}, {"text", "a"}, {"x", 1}}}),
            "chat: message 1: field 'x' of content of type 'text' is not supported");
  EXPECT_EQ(said({{{"type", "text"}}}), "chat: message 1: has no text");
  EXPECT_EQ(said(json::array({"text"})), "chat: message 1: an item has no type");
  EXPECT_EQ(said(nullptr), "chat: message 1: its content is no string and no list");
}

TEST(ImagePromptRefusals, StringsAreTakenByTemplatesThatReadThem) {
  ImagePrompt prompts = opened("internvl");
  EXPECT_EQ(with_content(prompts, "Hello")->rendered, "<|im_start|>user\nHello<|im_end|>\n");
  EXPECT_EQ(message_of(with_content(prompts, "See <video>")),
            "chat: 1 placeholder '<video>' in the prompt for 0 videos");
}

TEST(ImagePromptRefusals, AMissingTokenIsNamed) {
  ImagePrompt prompts = opened("smolvlm");
  EXPECT_EQ(message_of(prompts.plain("", "p", std::vector<ImageLayout>{{7, 1, 8}})),
            "d/tokenizer.json: has no token '<row_7_col_1>', which an image of 7 rows and 1 "
            "columns of tiles needs");
  EXPECT_TRUE(prompts.plain("", "p", std::vector<ImageLayout>{{6, 6, 37}}));
  EXPECT_EQ(refused("internvl", "tokenizer_config.json",
                    {{"extra_special_tokens", {{"context_image_token", "<other>"}}}})
                .message,
            "d/tokenizer.json: has no token '<other>'");
  EXPECT_EQ(refused("internvl", "tokenizer_config.json",
                    {{"extra_special_tokens", {{"end_image_token", nullptr}}}})
                .message,
            "d/tokenizer_config.json: no field 'end_image_token'");
  EXPECT_EQ(refused("internvl", "tokenizer_config.json",
                    {{"extra_special_tokens", {{"end_image_token", ""}}}})
                .message,
            "d/tokenizer_config.json: field 'end_image_token': 0 bytes where 1 to 128 are "
            "expected");
}

TEST(ImagePromptRefusals, Lengths) {
  const json bad[] = {0, -1, 1.5, "64", 65'537};
  for (const json& length : bad) {
    const Error error = refused("smolvlm", "processor_config.json", {{"image_seq_len", length}});
    EXPECT_EQ(error.message,
              "d/processor_config.json: field 'image_seq_len': not a whole number from 1 to 65536");
    EXPECT_EQ(error.code, ErrorCode::kBadInput);
  }
  const ImagePrompt prompts = opened("smolvlm");
  EXPECT_TRUE(prompts.expect_tokens_per_tile(64));
  EXPECT_EQ(prompts.expect_tokens_per_tile(16).error().message,
            "d: the processor has 64 tokens for a tile, the vision encoder 16");
  ImagePrompt many = opened("internvl");
  EXPECT_EQ(message_of(many.plain("", "p", std::vector<ImageLayout>{{64, 64, 4097}})),
            "p: tiles of more than 1048576 tokens together");
  EXPECT_EQ(many.plain("", "p", std::vector<ImageLayout>{{2, 2, 4}}).error().code,
            ErrorCode::kInternal);
}

TEST(ImagePromptRefusals, ClassesAndFieldsThatAreNotKnown) {
  const Error named =
      refused("smolvlm", "processor_config.json", {{"processor_class", "Kosmos2Processor"}});
  EXPECT_EQ(named.message,
            "d/processor_config.json: processor_class 'Kosmos2Processor' is not supported");
  EXPECT_EQ(named.code, ErrorCode::kUnsupported);
  // Another class has this field name for the number of placeholders.
  EXPECT_EQ(refused("smolvlm", "processor_config.json", {{"image_seq_length", 3}}).message,
            "d/processor_config.json: field 'image_seq_length': not supported with "
            "Idefics3Processor");
  Files files = files_of("smolvlm");
  files.erase("processor_config.json");
  EXPECT_EQ(open_files(files).error().message,
            "d: has no image processor: neither processor_config.json nor "
            "preprocessor_config.json");
  files["processor_config.json"] = R"({"image_seq_len": 4})";
  EXPECT_EQ(open_files(files).error().message,
            "d/preprocessor_config.json: no field 'processor_class'");
}

// -- what no golden has

TEST(ImagePrompt, DefaultsAreThoseOfTheClasses) {
  Files files = files_of("smolvlm");
  files.erase("processor_config.json");
  for (const char* name : {"Idefics3Processor", "SmolVLMProcessor"}) {
    files["preprocessor_config.json"] = json{{"processor_class", name}, {"size", 1}}.dump();
    EXPECT_EQ(open_files(files)->tokens_per_tile(), 169);
  }
  files = files_of("internvl");
  files["processor_config.json"] = R"({"processor_class": "InternVLProcessor"})";
  EXPECT_EQ(open_files(files)->tokens_per_tile(), 256);
}

TEST(ImagePrompt, ImagesComeBeforeAPromptWithoutPlaceholders) {
  ImagePrompt prompts = opened("internvl");
  const std::vector<ImageLayout> two = {{1, 1, 1}, {1, 2, 3}};
  const auto before = prompts.plain("Compare.", "p", two);
  EXPECT_EQ(before->rendered, "<IMG_CONTEXT><IMG_CONTEXT>Compare.");
  using Places = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(before->images, (Places{{1}, {259, 515, 771}}));
  EXPECT_EQ(prompts.plain("a<IMG_CONTEXT>b<IMG_CONTEXT>", "p", two)->rendered,
            "a<IMG_CONTEXT>b<IMG_CONTEXT>");
}

TEST(ImagePrompt, AUserMessageHasItsImagesFirst) {
  ImagePrompt prompts = opened("smolvlm");
  const auto rendered = [&](const std::string& text, size_t images) {
    const std::vector<ImageLayout> layouts(images);
    return prompts.chat(prompts.user_message(text, images), "chat", {}, layouts)->rendered;
  };
  EXPECT_EQ(rendered("Why \"?\"", 2),
            "<|im_start|>User:<image><image>Why \"?\"<end_of_utterance>\nAssistant:");
  EXPECT_EQ(rendered("See <image>!", 1),
            "<|im_start|>User: See <image>!<end_of_utterance>\nAssistant:");
  EXPECT_EQ(rendered("Hello", 0), "<|im_start|>User: Hello<end_of_utterance>\nAssistant:");
}

TEST(ImagePrompt, TemplatesOfTheProcessorComeBeforeTheTokenizers) {
  Files files = files_of("internvl");
  json config = json::parse(files["tokenizer_config.json"]);
  config["chat_template"] = "of the tokenizer";
  files["tokenizer_config.json"] = config.dump();
  const auto rendered = [&] {
    auto prompts = open_files(files);
    return with_content(*prompts, {{{"type", "text"}, {"text", "a"}}})->rendered;
  };
  EXPECT_EQ(rendered(), "<|im_start|>user\na<|im_end|>\n");
  files["chat_template.jinja"] = "of the file";
  EXPECT_EQ(rendered(), "of the file");
  files.erase("chat_template.jinja");
  files.erase("chat_template.json");
  EXPECT_EQ(rendered(), "of the tokenizer");
  config.erase("chat_template");
  files["tokenizer_config.json"] = config.dump();
  auto without = open_files(files);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(message_of(with_content(*without, "a")), "d: has no chat template");
  EXPECT_EQ(without->plain("a", "p", {})->text, "a");
}

// SmolVLM's own class lets the tokenizer name its tokens. That of Idefics3 does not.
TEST(ImagePrompt, TokensThatTheTokenizerNames) {
  Files files = files_of("smolvlm");
  json config = json::parse(files["tokenizer_config.json"]);
  config["image_token"] = "<global-img>";
  files["tokenizer_config.json"] = config.dump();
  const int64_t usual = open_files(files)->placeholder_id();
  files["processor_config.json"] = R"({"processor_class": "SmolVLMProcessor"})";
  auto named = open_files(files);
  EXPECT_EQ(named->placeholder_id(), named->tokenizer().find("<global-img>"));
  EXPECT_NE(named->placeholder_id(), usual);
}

}  // namespace
}  // namespace ferry::prompt::image_prompt_test
