#include "prompt/image_prompt.h"

#include <fmt/format.h>

#include <utility>

#include "core/json_writer.h"
#include "core/text.h"
#include "prompt/messages.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::prompt {
namespace {

// The template that SmolVLMProcessor takes for chats with videos, whatever the checkpoint's says.
constexpr const char* kStoryTemplate =
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if "
    "message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in "
    "message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == "
    "'image' %}{{ '<image>' }}{% elif line['type'] == 'video' %}{{ '<video>' }}{% endif %}{% "
    "endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% "
    "endif %}";

Result<std::optional<text::ChatTemplate>> read_template(const std::string& directory,
                                                        const text::ReadFile& read) {
  const std::string jinja = FERRY_TRY(read_processor_template(directory, read));
  const std::string config =
      FERRY_TRY(read(text::kTokenizerConfigFile, text::kMaxTokenizerConfigBytes));
  if (jinja.empty() && config.find("\"chat_template\"") == config.npos) {
    return std::optional<text::ChatTemplate>();
  }
  return std::optional(FERRY_TRY(text::ChatTemplate::parse(config, jinja, printable(directory))));
}

}  // namespace

ImagePrompt::ImagePrompt(std::string directory, ImageProcessor processor, text::Tokenizer tokenizer)
    : directory_(std::move(directory)),
      processor_(std::move(processor)),
      tokenizer_(std::move(tokenizer)) {}

Result<ImagePrompt> ImagePrompt::open(const std::string& directory) {
  return open(directory, text::files_in(directory));
}

Result<ImagePrompt> ImagePrompt::open(const std::string& directory, const text::ReadFile& read) {
  ImageProcessor processor = FERRY_TRY(read_image_processor(directory, read));
  const std::string path = printable(directory + "/" + text::kTokenizerFile);
  ImagePrompt out(printable(directory), std::move(processor),
                  FERRY_TRY(text::load_tokenizer(directory, read)));
  if (!out.processor_.image.empty()) {
    const std::optional<int64_t> id = out.tokenizer_.find(out.processor_.image);
    if (!id) {
      return bad_input(fmt::format("{}: has no token {}", path, quoted(out.processor_.image)));
    }
    out.placeholder_id_ = *id;
  }
  if (!out.processor_.audio.empty()) out.sound_id_ = out.tokenizer_.find(out.processor_.audio);
  const VideoText films = out.processor_.video_text;
  if (out.processor_.runs_videos() || films == VideoText::kTimed || films == VideoText::kClock) {
    out.video_id_ = out.tokenizer_.find(out.processor_.video);
  } else if (out.takes_videos()) {
    out.video_id_ = out.placeholder_id_;
  }
  out.template_ = FERRY_TRY(read_template(directory, read));
  return out;
}

Status ImagePrompt::expect_tokens_per_tile(int64_t tokens) const {
  if (!has_equal_tiles() || tokens == processor_.tokens_per_tile) return {};
  return bad_input(fmt::format("{}: the processor has {} tokens for a tile, the vision encoder {}",
                               directory_, processor_.tokens_per_tile, tokens));
}

// Templates of Granite Speech take texts, which have the placeholders.
std::string ImagePrompt::with_sounds(const std::string& text, size_t sounds) const {
  std::string out;
  if (count_parts(text, processor_.audio) == 0) {
    for (size_t i = 0; i < sounds; ++i) out += processor_.audio;
  }
  return out + text;
}

std::string ImagePrompt::chat_of(std::span<const ChatMessage> messages) const {
  JsonWriter json;
  json.begin_object().key("messages").begin_array();
  const auto add = [&](const char* type, const std::string& text, std::string_view mark,
                       size_t count) {
    if (!mark.empty() && count_parts(text, mark) > 0) return;
    for (size_t i = 0; i < count; ++i) json.begin_object().member("type", type).end_object();
  };
  for (const auto& [role, text, images, sounds, videos] : messages) {
    if (!processor_.marks_sounds()) {
      json.begin_object().member("role", role);
      json.member("content", with_sounds(text, sounds)).end_object();
      continue;
    }
    json.begin_object().member("role", role).key("content").begin_array();
    add("image", text, processor_.mark, images);
    add("audio", text, processor_.audio, sounds);
    add("video", text, processor_.video, videos);
    json.begin_object().member("type", "text").member("text", text).end_object();
    json.end_array().end_object();
  }
  json.end_array().member("add_generation_prompt", true);
  return json.end_object().take();
}

std::string ImagePrompt::user_message(std::string_view text, size_t images) const {
  const ChatMessage message = {"user", std::string(text), images};
  return chat_of({&message, 1});
}

// A template that renders two strings alike ignores strings.
Status ImagePrompt::check_strings(const text::ChatTemplate& chosen, const std::string& where,
                                  const text::chat::TimeText& time) const {
  const auto render = [&](const char* content) {
    JsonWriter json;
    json.begin_array().begin_object().member("role", "user").member("content", content);
    return chosen.render(json.end_object().end_array().take(), where, time);
  };
  if (FERRY_TRY(render("one")) != FERRY_TRY(render("two"))) return {};
  return bad_input(where + ": its content is a string, which the chat template leaves out; " +
                   R"(write [{"type": "text", "text": "..."}])");
}

Result<ExpandedPrompt> ImagePrompt::chat(std::string_view chat, const std::string& where,
                                         const text::chat::TimeText& time,
                                         std::span<const ImageLayout> images,
                                         std::span<const int64_t> sounds,
                                         std::span<const VideoLayout> videos) {
  if (!template_) return bad_input(directory_ + ": has no chat template");
  const MessageContents contents =
      FERRY_TRY(check_contents(chat, where, {!processor_.audio.empty(), takes_videos()}));
  // SmolVLMProcessor has a template of its own for chats with videos.
  const bool own = processor_.video_text == VideoText::kStory && contents.has_video;
  const std::optional<text::ChatTemplate> story =
      own ? std::optional(FERRY_TRY(text::ChatTemplate::parse("{}", kStoryTemplate, directory_)))
          : std::nullopt;
  const text::ChatTemplate& chosen = own ? *story : *template_;
  if (contents.first_string > 0) {
    const std::string place = fmt::format("{}: message {}", where, contents.first_string);
    FERRY_RETURN_IF_ERROR(check_strings(chosen, place, time));
  }
  std::string rendered = FERRY_TRY(chosen.render(chat, where, time));
  const bool has_bos = !processor_.bos.empty() && rendered.starts_with(processor_.bos);
  return encode(std::move(rendered), processor_.adds_special && !has_bos, where, images, sounds,
                videos);
}

Result<ExpandedPrompt> ImagePrompt::plain(std::string_view prompt, const std::string& where,
                                          std::span<const ImageLayout> images,
                                          std::span<const int64_t> sounds,
                                          std::span<const VideoLayout> videos) {
  std::string rendered;
  if (count_parts(prompt, processor_.mark) == 0) {
    for (size_t i = 0; i < images.size(); ++i) rendered += processor_.stand_in;
  }
  std::string text(prompt);
  if (!processor_.video.empty() && count_parts(prompt, processor_.video) == 0) {
    const bool marked = processor_.grammar == ImageGrammar::kQwenVl;
    std::string marks;
    for (size_t i = 0; i < videos.size(); ++i) {
      marks += marked ? processor_.open + processor_.video + processor_.close : processor_.video;
    }
    text = marks + text;
  }
  rendered += processor_.audio.empty() ? text : with_sounds(text, sounds.size());
  return encode(std::move(rendered), processor_.adds_special, where, images, sounds, videos);
}

// The reference's tokenizer would cut the text of a missing token into other tokens.
Status ImagePrompt::check_marks(std::span<const ImageLayout> images) const {
  for (const ImageLayout& image : images) {
    for (const std::string& mark : image_marks(processor_, image)) {
      if (tokenizer_.find(mark)) continue;
      return bad_input(
          fmt::format("{}/{}: has no token {}, which an image of {} rows and {} "
                      "columns of tiles needs",
                      directory_, text::kTokenizerFile, quoted(mark), image.rows, image.columns));
    }
  }
  return {};
}

Result<ExpandedPrompt> ImagePrompt::encode(std::string rendered, bool add_special,
                                           const std::string& where,
                                           std::span<const ImageLayout> images,
                                           std::span<const int64_t> sounds,
                                           std::span<const VideoLayout> videos) {
  if (!videos.empty() && !images.empty() && processor_.video_text == VideoText::kStory) {
    return fail(ErrorCode::kUnsupported,
                where +
                    ": images and videos in one prompt, of which the reference loses the "
                    "images: not supported with this processor");
  }
  FERRY_RETURN_IF_ERROR(check_layouts(processor_, images, where));
  ExpandedPrompt out;
  out.two_way = is_two_way();
  if (out.two_way) FERRY_RETURN_IF_ERROR(finish_two_way(rendered, images, where));
  out.text = FERRY_TRY(expand(processor_, rendered, images, where));
  out.text = FERRY_TRY(expand_sounds(processor_, out.text, sounds, where));
  out.text = FERRY_TRY(expand_videos(processor_, out.text, videos, where));
  FERRY_RETURN_IF_ERROR(check_marks(images));
  if (!sounds.empty()) FERRY_RETURN_IF_ERROR(check_sound_marks());
  if (!videos.empty()) FERRY_RETURN_IF_ERROR(check_video_marks(where));
  out.rendered = std::move(rendered);
  auto ids = tokenizer_.encode(out.text, add_special);
  if (!ids) return fail(ids.error().code, where + ": " + ids.error().message);
  out.ids = std::move(*ids);
  if (videos.empty()) {
    out.images = FERRY_TRY(find_tiles(out.ids, images, where));
  } else {
    FERRY_RETURN_IF_ERROR(find_with_videos(out, images, videos, where));
  }
  if (!sounds.empty()) out.sounds = FERRY_TRY(find_sounds(out.ids, sounds, where));
  return out;
}

Status ImagePrompt::check_video_marks(const std::string& where) const {
  if (!video_id_) {
    return bad_input(fmt::format("{}: the tokenizer has no token {}, which a video needs", where,
                                 quoted(processor_.video)));
  }
  std::vector<std::string> marks;
  if (!processor_.runs_videos()) marks = {processor_.open, processor_.close};
  if (processor_.video_text == VideoText::kStory) marks.push_back(processor_.global);
  for (const std::string& mark : marks) {
    if (tokenizer_.find(mark)) continue;
    return bad_input(fmt::format("{}/{}: has no token {}, which a video needs", directory_,
                                 text::kTokenizerFile, quoted(mark)));
  }
  return {};
}

Status ImagePrompt::find_with_videos(ExpandedPrompt& prompt, std::span<const ImageLayout> images,
                                     std::span<const VideoLayout> videos,
                                     const std::string& where) const {
  const std::string_view text = prompt.rendered;
  const auto is_row = [&](int64_t id) { return id == placeholder_id_ || id == *video_id_; };
  prompt.images.resize(images.size());
  prompt.videos.resize(videos.size());
  size_t at = 0, image = 0, video = 0;
  // Takes the next run; false where the tokenizer makes another.
  const auto take = [&](int64_t id, int64_t length, std::vector<int64_t>& firsts) {
    while (at < prompt.ids.size() && !is_row(prompt.ids[at])) ++at;
    firsts.push_back(static_cast<int64_t>(at));
    for (int64_t i = 0; i < length; ++i, ++at) {
      if (at >= prompt.ids.size() || prompt.ids[at] != id) return false;
    }
    return true;
  };
  bool whole = true;
  for (size_t place = 0; whole && image + video < images.size() + videos.size();) {
    const size_t next_image = text.find(processor_.mark, place);
    const size_t next_video = text.find(processor_.video, place);
    if (next_image < next_video) {
      for (int64_t tile = 0; whole && tile < images[image].tiles; ++tile) {
        whole =
            take(placeholder_id_, images[image].tokens_of(processor_, tile), prompt.images[image]);
      }
      ++image;
      place = next_image + processor_.mark.size();
    } else {
      const VideoLayout& layout = videos[video];
      for (int64_t run = 0; whole && run < layout.runs(processor_); ++run) {
        whole = take(*video_id_, layout.tokens_of_run(processor_), prompt.videos[video]);
      }
      ++video;
      place = next_video + processor_.video.size();
    }
  }
  while (at < prompt.ids.size() && !is_row(prompt.ids[at])) ++at;
  if (whole && at == prompt.ids.size()) return {};
  return bad_input(where +
                   ": the tokenizer makes other placeholders than those of the images and "
                   "videos");
}

Status ImagePrompt::check_sound_marks() const {
  for (const std::string& mark :
       {processor_.audio, processor_.audio_open, processor_.audio_close}) {
    if (mark.empty() || tokenizer_.find(mark)) continue;
    return bad_input(fmt::format("{}/{}: has no token {}, which a sound needs", directory_,
                                 text::kTokenizerFile, quoted(mark)));
  }
  return {};
}

// Each sound has a run of placeholders of its own. Runs of sounds without marks may be adjacent.
Result<std::vector<int64_t>> ImagePrompt::find_sounds(std::span<const int64_t> ids,
                                                      std::span<const int64_t> sounds,
                                                      const std::string& where) const {
  std::vector<int64_t> firsts;
  int64_t at = 0;
  const auto size = std::ssize(ids);
  const auto is_row = [&](int64_t i) { return ids[static_cast<size_t>(i)] == *sound_id_; };
  while (at < size) {
    if (!is_row(at)) {
      at += 1;
      continue;
    }
    const int64_t first = at;
    const size_t number = firsts.size();
    const int64_t most =
        processor_.marks_sounds() || number >= sounds.size() ? size : first + sounds[number];
    while (at < std::min(size, most) && is_row(at)) at += 1;
    firsts.push_back(first);
    if (number < sounds.size() && at - first == sounds[number]) continue;
    return bad_input(
        fmt::format("{}: the tokenizer makes a run of {} placeholders of sounds where "
                    "{} are expected",
                    where, at - first, number < sounds.size() ? sounds[number] : 0));
  }
  if (firsts.size() == sounds.size()) return firsts;
  return bad_input(fmt::format("{}: the tokenizer makes placeholders of {} sounds, not of {}",
                               where, firsts.size(), sounds.size()));
}

// The reference takes no prompt without an image. It adds tokens of places and segments that a
// tokenizer lacks, whose numbers are then not those of the model.
Status ImagePrompt::finish_two_way(std::string& rendered, std::span<const ImageLayout> images,
                                   const std::string& where) const {
  if (images.empty()) return bad_input(where + ": a prompt of this processor needs an image");
  for (const char* token : {"<loc0000>", "<loc1023>", "<seg000>", "<seg127>"}) {
    if (!tokenizer_.find(token)) {
      return bad_input(fmt::format("{}: the tokenizer has no token {}", directory_, token));
    }
  }
  const size_t last = rendered.rfind(processor_.mark);
  const size_t behind = last == rendered.npos ? 0 : last + processor_.mark.size();
  rendered = rendered.substr(0, behind) + processor_.bos + rendered.substr(behind) + "\n";
  return {};
}

// Each tile has a run of placeholders of its own, even if runs are adjacent.
Result<std::vector<std::vector<int64_t>>> ImagePrompt::find_tiles(
    std::span<const int64_t> ids, std::span<const ImageLayout> images,
    const std::string& where) const {
  std::vector<int64_t> places;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == placeholder_id_) places.push_back(static_cast<int64_t>(i));
  }
  size_t at = 0, in_runs = 0;
  std::vector<std::vector<int64_t>> out;
  for (const ImageLayout& image : images) {
    out.emplace_back();
    for (int64_t tile = 0; tile < image.tiles; ++tile) {
      const int64_t tokens = image.tokens_of(processor_, tile);
      const auto length = static_cast<size_t>(tokens);
      const bool whole = at + length <= places.size() && length > 0 &&
                         places[at + length - 1] - places[at] + 1 == tokens;
      if (whole) out.back().push_back(places[at]);
      if (whole) in_runs += length;
      at += length;
    }
  }
  if (at == places.size() && in_runs == at) return out;
  return bad_input(
      fmt::format("{}: the tokenizer makes {} placeholders of an image, {} of them in "
                  "whole runs, where {} are expected",
                  where, places.size(), in_runs, at));
}

}  // namespace ferry::prompt
