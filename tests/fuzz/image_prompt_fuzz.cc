// Input: processor_config.json, tokenizer_config.json and a chat as JSON, with a zero byte after
// each of the first two. The tokenizer is fixed.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "prompt/image_prompt.h"
#include "tests/fuzz/require.h"

namespace ferry::image_prompt_fuzz {
namespace {

constexpr std::string_view kTokenizer = R"({"version": "1.0", "added_tokens": [
    {"id": 2, "content": "<image>", "special": true, "normalized": false},
    {"id": 3, "content": "<fake_token_around_image>", "special": true, "normalized": false},
    {"id": 4, "content": "<global-img>", "special": true, "normalized": false},
    {"id": 5, "content": "<row_1_col_1>", "special": true, "normalized": false},
    {"id": 6, "content": "<row_1_col_2>", "special": true, "normalized": false},
    {"id": 7, "content": "<img>", "special": true, "normalized": false},
    {"id": 8, "content": "</img>", "special": true, "normalized": false},
    {"id": 9, "content": "<|image_pad|>", "special": true, "normalized": false},
    {"id": 10, "content": "<|vision_start|>", "special": true, "normalized": false},
    {"id": 11, "content": "<|vision_end|>", "special": true, "normalized": false},
    {"id": 12, "content": "<|video_pad|>", "special": true, "normalized": false}],
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})";

// Requires that no text is lost between text and ids, and that each tile has its run of
// placeholders.
void require_whole(prompt::ImagePrompt& prompts, const prompt::ExpandedPrompt& prompt,
                   std::span<const prompt::ImageLayout> images) {
  int64_t tokens = 0;
  require(prompt.images.size() == images.size());
  for (size_t image = 0; image < images.size(); ++image) {
    const int64_t fixed = prompts.tokens_per_tile();
    const int64_t length = fixed > 0 ? fixed : images[image].tokens.front();
    for (const int64_t at : prompt.images[image]) {
      tokens += length;
      for (int64_t i = 0; i < length; ++i) {
        require(prompt.ids.at(static_cast<size_t>(at + i)) == prompts.placeholder_id());
      }
    }
  }
  require(std::count(prompt.ids.begin(), prompt.ids.end(), prompts.placeholder_id()) == tokens);
}

// Requires that each run of a video has its placeholders.
void run_with_video(prompt::ImagePrompt& prompts, std::string_view chat,
                    std::span<const prompt::ImageLayout> images) {
  const bool sized = prompts.tokens_per_tile() == 0;
  const prompt::VideoLayout video = {
      .groups = 2, .tokens = sized ? 3 : 0, .seconds = {0.5, 61}, .duration = 3700};
  for (const bool is_chat : {true, false}) {
    const auto made = is_chat ? prompts.chat(chat, "chat", {}, images, {}, {&video, 1})
                              : prompts.plain(chat, "prompt", images, {}, {&video, 1});
    if (!made) {
      require_good_message(made.error());
      continue;
    }
    require(made->videos.size() == 1);
    const auto runs = static_cast<int64_t>(made->videos.front().size());
    const int64_t each = (sized ? video.tokens : prompts.tokens_per_tile()) * video.groups / runs;
    for (const int64_t at : made->videos.front()) {
      for (int64_t i = 0; i < each; ++i) {
        require(made->ids.at(static_cast<size_t>(at + i)) == prompts.video_id());
      }
    }
  }
}

void run(prompt::ImagePrompt& prompts, std::string_view chat) {
  // Where the size of an image decides, its tokens; else tiles.
  const bool sized = prompts.tokens_per_tile() == 0;
  const std::array<prompt::ImageLayout, 2> images =
      sized ? std::array<prompt::ImageLayout, 2>{{{0, 0, 1, {2}}, {0, 0, 1, {5}}}}
            : std::array<prompt::ImageLayout, 2>{{{0, 0, 1}, {1, 2, 3}}};
  for (size_t count = 0; count <= images.size(); ++count) {
    const std::span given(images.data(), count);
    const auto made = prompts.chat(chat, "chat", {}, given);
    if (!made) require_good_message(made.error());
    if (made) require_whole(prompts, *made, given);
    const auto plain = prompts.plain(chat, "prompt", given);
    if (!plain) require_good_message(plain.error());
    if (plain) require_whole(prompts, *plain, given);
    run_with_video(prompts, chat, given);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t first = input.find('\0');
  const size_t second = first == input.npos ? first : input.find('\0', first + 1);
  if (second == input.npos) return 0;
  const auto read = [&](const std::string& name, uint64_t) -> Result<std::string> {
    if (name == text::kTokenizerFile) return std::string(kTokenizer);
    if (name == "processor_config.json") return input.substr(0, first);
    if (name == text::kTokenizerConfigFile) return input.substr(first + 1, second - first - 1);
    return std::string();
  };
  auto prompts = prompt::ImagePrompt::open("d", read);
  if (!prompts) {
    require_good_message(prompts.error());
  } else {
    run(*prompts, std::string_view(input).substr(second + 1));
  }
  return 0;
}

}  // namespace ferry::image_prompt_fuzz
