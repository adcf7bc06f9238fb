// Generator::Impl: what a generator holds, and how it makes tokens of prompts (prompt_tokens.cc).
#pragma once

#include <ferry/generate.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "library/internal.h"
#include "packer/bundle_reader.h"
#include "prompt/image_input.h"
#include "prompt/sound_rows.h"
#include "runner/decoder.h"
#include "runner/decoder_group.h"
#include "runner/sampler.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry {
inline namespace v0 {

struct Generator::Impl {
  Engine engine;
  packer::Bundle bundle;
  runner::MethodOptions method = {};
  // Set where there are several sequences. Calls that need one take the first.
  std::optional<runner::DecoderGroup> group = {};
  std::unique_ptr<runner::Decoder> own_decoder = {};  // set where there is no group
  runner::Decoder* decoder = nullptr;                 // one of these
  // Set for a bundle that takes images, or sounds. They have the tokenizer too.
  std::optional<prompt::ImageInput> input = {};
  std::optional<prompt::SoundRows> hearing = {};
  std::optional<text::Tokenizer> own_tokenizer = {};
  std::optional<text::ChatTemplate> chat_template = {};
  std::vector<int64_t> executed = {};             // tokens of the sequence in the decoder
  std::vector<prompt::EncodedImage> images = {};  // the decoder has views of these
  std::vector<prompt::EncodedVideo> videos = {};  // and of these
  std::vector<prompt::EncodedSound> sounds = {};  // and of these
  bool has_rows = false;  // whether the sequence in the decoder has images or sounds
  // The first token of the answers of an encoder-decoder, and the tokens that its files forbid or
  // force.
  std::optional<int64_t> start_token = {};
  runner::GenerationRules rules = {};

  Status open_text();
  Status open_source();
  // Whether prompts are those of mistral-common, else those of the processor in `input`.
  bool has_sound_prompts() const { return hearing && hearing->has_prompts(); }
  text::Tokenizer* tokenizer() {
    if (input) return &input->prompts().tokenizer();
    if (has_sound_prompts()) return &hearing->prompts().tokenizer();
    return own_tokenizer ? &*own_tokenizer : nullptr;
  }
  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special, const char* field);
  Result<std::vector<int64_t>> text_tokens(const Prompt& prompt);
  Result<prompt::ExpandedPrompt> processor_tokens(const Prompt& prompt, ThreadPool& pool);
  Result<prompt::SoundTokens> sound_tokens(const Prompt& prompt, ThreadPool& pool);
  Status encode_sounds(const Prompt& prompt, ThreadPool& pool);
  // Returns the tokens of a prompt that is no tokens, and its rows.
  Result<std::vector<int64_t>> tokens_of(const Prompt& prompt, ThreadPool& pool,
                                         std::vector<runner::EmbeddingRows>& rows);
  // Gives the text of the prompt to the encoder. Returns how many tokens it has.
  Result<int64_t> encode_source(const Prompt& prompt);
  // Returns the tokens of the prompt. Afterwards the decoder has the images or sounds at their
  // positions, and its sequence is a prefix of the prompt.
  Result<std::vector<int64_t>> prepare(const Prompt& prompt, ThreadPool& pool);
  // Returns the tokens of prompts without images and sounds. Errors name the number of the prompt.
  Result<std::vector<std::vector<int64_t>>> tokens_of_all(std::span<const Prompt> prompts,
                                                          ThreadPool& pool);
  void begin() {
    decoder->restart();
    executed.clear();
    has_rows = false;
  }
};

}  // namespace v0
}  // namespace ferry
