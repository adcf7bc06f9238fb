#include "proof/calibration_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/image_grid.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/result.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/thread_pool.h"
#include "media/pixel_values.h"
#include "media/settings.h"
#include "plan/mapped_model.h"
#include "plan/tokenizer_notes.h"
#include "prompt/image_input.h"
#include "prompt/image_prompt.h"
#include "prompt/messages.h"
#include "prompt/preprocess.h"
#include "proof/sequences.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::proof {
namespace {

// Makes calibration sequences of chats, which may show images to a vision-language model.

constexpr size_t kMostCalibrationTokens = 65536;

using Json = nlohmann::ordered_json;

// 26 July 2024 in UTC: templates that state the date give the same tokens on every day, because a
// manifest records their digest.
constexpr int64_t kTemplateTime = 1'721'952'000;
constexpr uint64_t kMaxProcessorFile = uint64_t{1} << 20;

// Removes the paths of the images from a chat, and returns them in order.
Result<std::vector<std::string>> take_paths(Json& chat, const std::string& where) {
  std::vector<std::string> paths;
  Json* messages = chat.is_object() && chat.contains("messages") ? &chat["messages"] : &chat;
  if (!messages->is_array()) return paths;
  for (size_t i = 0; i < messages->size(); ++i) {
    Json& message = (*messages)[i];
    if (!message.is_object() || !message.contains("content")) continue;
    if (!message["content"].is_array()) continue;
    for (Json& item : message["content"]) {
      if (!item.is_object() || !item.contains("type")) continue;
      if (item["type"] == "video") {
        return fail(
            ErrorCode::kUnsupported,
            fmt::format("{}: message {}: content of type 'video' is not supported", where, i + 1));
      }
      if (item["type"] != "image") continue;
      if (!item.contains("path") || !item["path"].is_string()) {
        return bad_input(fmt::format("{}: message {}: an image has no path", where, i + 1));
      }
      paths.push_back(item["path"]);
      item.erase("path");
    }
  }
  return paths;
}

Failure too_long(const std::string& where, size_t tokens, size_t limit) {
  return bad_input(fmt::format("{}: has {} tokens or more, and a chat with images at most {}",
                               where, tokens, limit));
}

// Prepares images and prompts as the processor of a vision-language checkpoint does.
class ImageChats {
 public:
  static Result<ImageChats> open(const plan::MappedModel& model) {
    const converters::VisionConfig& vision = *model.checkpoint.config.vision;
    const text::ReadFile read = plan::reader_of(model.copied);
    const std::string name = printable(model.checkpoint.source->path());
    const std::string preprocessor = FERRY_TRY(read("preprocessor_config.json", kMaxProcessorFile));
    const std::string processor = FERRY_TRY(read("processor_config.json", kMaxProcessorFile));
    media::Settings settings = FERRY_TRY(media::settings_from(preprocessor, processor, name));
    if (vision.any_shape) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: calibration with images of any shape is not supported", name));
    }
    // Lists of frames may be longer than those of pictures.
    const bool fits = (settings.max_patches() > 0) == (vision.max_patches > 0) &&
                      settings.max_patches() <= vision.max_patches;
    if (!fits) {
      return bad_input(
          fmt::format("{}: the image processor makes tiles of {} patches, the vision "
                      "encoder takes {}",
                      name, settings.max_patches(), vision.max_patches));
    }
    if (vision.max_patches == 0 && settings.tile != vision.image_size) {
      return bad_input(fmt::format(
          "{}: the image processor makes tiles of {} pixels a side, the vision encoder takes {}",
          name, settings.tile, vision.image_size));
    }
    prompt::ImagePrompt prompts = FERRY_TRY(prompt::ImagePrompt::open(name, read));
    FERRY_RETURN_IF_ERROR(
        prompts.expect_tokens_per_tile(vision.patches() / (vision.shuffle * vision.shuffle)));
    ImageChats chats(settings, std::move(prompts));
    chats.list_patches_ = vision.max_patches;
    if (!vision.tiled) return chats;
    chats.tiled_ = {.resolutions = vision.tiled->resolutions,
                    .tile = vision.image_size,
                    .side = vision.grid(),
                    .most_tiles = vision.tiled->most_tiles};
    if (chats.tiled_->resolutions == settings.pinpoints &&
        chats.tiled_->side == settings.feature_side) {
      return chats;
    }
    return bad_input(
        name +
        ": image_grid_pinpoints or tokens of the image processor are not those of the config");
  }

  // `chat` shows the images of `paths`. With more than `limit` image tokens it is refused before
  // the next image is read.
  Result<std::pair<std::vector<int64_t>, PromptImages>> render(
      const std::string& chat, const std::string& where, const text::chat::TimeText& time,
      const std::vector<std::string>& paths, size_t limit, ThreadPool& pool) {
    constexpr media::Backend kBackend = media::Backend::kTorchvision;
    PromptImages images;
    images.tiled = tiled_;
    settings_.alone = paths.size() == 1;
    std::vector<prompt::ImageLayout> layouts;
    size_t tokens = 0;
    for (const std::string& path : paths) {
      FERRY_RETURN_IF_ERROR(check_interrupt());
      const Result<media::Image> image = media::read_picture(path, settings_);
      if (!image) {
        return fail(image.error().code, fmt::format("{}: {}", where, image.error().message));
      }
      const media::Sample sample = {
          FERRY_TRY(prompt::cut_picture(*image, where, settings_, kBackend, pool))};
      layouts.push_back(
          prompt::layout_of(prompt::describe_cut(path, image->size, sample.front(), settings_)));
      const media::PixelValues pixels =
          media::pixel_values(std::span(&sample, 1), settings_, kBackend);
      images.pixels.insert(images.pixels.end(), pixels.values.begin(), pixels.values.end());
      const std::vector<ImageShape> shapes = prompt::shapes_of(pixels);
      images.shapes.insert(images.shapes.end(), shapes.begin(), shapes.end());
      // Idefics3 has one more dimension in front.
      Shape shape(pixels.shape.begin() + (pixels.shape.size() == 5 ? 1 : 0), pixels.shape.end());
      if (!images.pixel_shape.empty()) shape[0] += images.pixel_shape[0];
      images.pixel_shape = std::move(shape);
      for (int64_t t = 0; t < layouts.back().tiles; ++t) {
        tokens += tokens_of(layouts.back(), static_cast<size_t>(t));
      }
      if (tokens > limit) return too_long(where, tokens, limit);
    }
    prompt::ExpandedPrompt expanded = FERRY_TRY(prompts_.chat(chat, where, time, layouts));
    for (size_t i = 0; i < expanded.images.size(); ++i) {
      for (size_t t = 0; t < expanded.images[i].size(); ++t) {
        images.runs.push_back(
            {expanded.images[i][t], static_cast<int64_t>(tokens_of(layouts[i], t))});
      }
    }
    if (list_patches_ > 0) fit_list_length(images.pixel_shape, images.pixels, list_patches_);
    return std::pair(std::move(expanded.ids), std::move(images));
  }

 private:
  size_t tokens_of(const prompt::ImageLayout& image, size_t tile) const {
    return static_cast<size_t>(image.tokens.empty() ? prompts_.tokens_per_tile()
                                                    : image.tokens[tile]);
  }

  ImageChats(const media::Settings& settings, prompt::ImagePrompt prompts)
      : settings_(settings), prompts_(std::move(prompts)) {}

  media::Settings settings_;
  prompt::ImagePrompt prompts_;
  int64_t list_patches_ = 0;  // of a list of the vision encoder
  std::optional<runner::PictureTiles> tiled_ = {};
};

class ChatReader {
 public:
  static Result<ChatReader> open(const plan::MappedModel& model, text::Tokenizer tokenizer,
                                 std::string folder, ThreadPool& pool) {
    ChatReader reader(model, std::move(tokenizer), std::move(folder), pool);
    const bool has_processor = std::ranges::any_of(model.copied, [](const auto& file) {
      return file.name == "preprocessor_config.json" || file.name == "processor_config.json";
    });
    if (model.checkpoint.config.vision && has_processor) {
      reader.images_.emplace(FERRY_TRY(ImageChats::open(model)));
    } else {
      reader.template_.emplace(FERRY_TRY(plan::chat_template_in(model.copied)));
    }
    return reader;
  }

  Status add(const std::string& line, const std::string& where) {
    const size_t message = FERRY_TRY(prompt::message_beyond_text(line, where));
    if (images_) return add_with_images(line, where, message != 0);
    if (message != 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: message {} has content other than text, and the checkpoint has "
                              "no image processor",
                              where, message));
    }
    const std::string rendered = FERRY_TRY(template_->render(line, where, time_));
    Result<std::vector<int64_t>> ids = tokenizer_.encode(rendered, /*add_special=*/false);
    if (!ids) return bad_input(fmt::format("{}: {}", where, ids.error().message));
    keep(*std::move(ids), {});
    return {};
  }

  bool is_full() const { return tokens_ >= kMostCalibrationTokens; }
  Sequences take() {
    const auto has_none = [](const PromptImages& images) { return images.empty(); };
    if (std::ranges::all_of(sequences_.images, has_none)) sequences_.images.clear();
    return std::move(sequences_);
  }

 private:
  ChatReader(const plan::MappedModel& model, text::Tokenizer tokenizer, std::string folder,
             ThreadPool& pool)
      : tokenizer_(std::move(tokenizer)),
        folder_(std::move(folder)),
        context_(static_cast<size_t>(model.build.context_length)),
        pool_(pool) {}

  Status add_with_images(const std::string& line, const std::string& where, bool has_images) {
    FERRY_TRY(parse_json(line, where));  // which refuses what Json::parse() would throw at
    Json chat = Json::parse(line);
    std::vector<std::string> paths = FERRY_TRY(take_paths(chat, where));
    for (std::string& path : paths) path = (std::filesystem::path(folder_) / path).string();
    const size_t limit = std::min(context_, kMostCalibrationTokens);
    auto [ids, images] = FERRY_TRY(images_->render(chat.dump(), where, time_, paths, limit, pool_));
    // The features of an image need all their placeholders.
    if (has_images && ids.size() > limit) return too_long(where, ids.size(), limit);
    if (has_images && ids.size() > kMostCalibrationTokens - tokens_) {
      tokens_ = kMostCalibrationTokens;
      return {};
    }
    keep(std::move(ids), std::move(images));
    return {};
  }
  void keep(std::vector<int64_t> ids, PromptImages images) {
    ids.resize(std::min({ids.size(), context_, kMostCalibrationTokens - tokens_}));
    if (ids.empty()) return;
    tokens_ += ids.size();
    sequences_.tokens.push_back(std::move(ids));
    sequences_.images.push_back(std::move(images));
  }

  text::Tokenizer tokenizer_;
  const std::string folder_;
  const size_t context_;
  ThreadPool& pool_;
  const text::chat::TimeText time_ = text::chat::fixed_time(kTemplateTime);
  // One of the two: the first for checkpoints with an image processor.
  std::optional<ImageChats> images_;
  std::optional<text::ChatTemplate> template_;
  Sequences sequences_;
  size_t tokens_ = 0;
};

// Renders the chat of each line by the checkpoint's template: a list of messages, or an object with
// them. A message may show an image file, {"type": "image", "path": FILE}; a relative FILE is
// beside `file`, which is the name of the lines. A chat that is longer than the context is cut, and
// refused if it has images. Errors name the line. kUnsupported for images of a checkpoint that has
// no image processor. `tokenizer` is that of the checkpoint.
Result<Sequences> sequences_of_chats(const plan::MappedModel& model, text::Tokenizer tokenizer,
                                     const std::string& lines, const std::string& file,
                                     ThreadPool& pool) {
  ChatReader reader = FERRY_TRY(ChatReader::open(
      model, std::move(tokenizer), std::filesystem::path(file).parent_path().string(), pool));
  std::istringstream in(lines);
  size_t number = 0;
  for (std::string line; !reader.is_full() && std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    FERRY_RETURN_IF_ERROR(reader.add(line, fmt::format("{}: line {}", printable(file), number)));
  }
  return reader.take();
}

constexpr size_t kSequenceTokens = 256, kLeastCalibrationTokens = 64;
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 20;
bool has_ids_only(const std::string& text) {
  return std::ranges::all_of(text, [](unsigned char c) {
    return std::isdigit(c) != 0 || std::isspace(c) != 0 || c == ',' || c == '[' || c == ']';
  });
}

// Cuts a text into sequences that begin as the tokenizer begins a text.
Result<Prompts> sequences_of(text::Tokenizer& tokenizer, const std::string& text, size_t length) {
  const std::vector<int64_t> plain = FERRY_TRY(tokenizer.encode(text, /*add_special=*/false));
  const std::vector<int64_t> special = FERRY_TRY(tokenizer.encode("a", /*add_special=*/true));
  const std::vector<int64_t> bare = FERRY_TRY(tokenizer.encode("a", /*add_special=*/false));
  const auto begin = std::search(special.begin(), special.end(), bare.begin(), bare.end());
  const std::vector<int64_t> prefix(special.begin(),
                                    begin == special.end() ? special.begin() : begin);
  Prompts sequences;
  if (prefix.size() >= length) return sequences;
  const size_t step = length - prefix.size();
  for (size_t at = 0; at < std::min(plain.size(), kMostCalibrationTokens); at += step) {
    const size_t end = std::min({plain.size(), kMostCalibrationTokens, at + step});
    std::vector<int64_t>& sequence = sequences.emplace_back(prefix);
    sequence.insert(sequence.end(), plain.begin() + static_cast<int64_t>(at),
                    plain.begin() + static_cast<int64_t>(end));
  }
  return sequences;
}

std::string digest_of(const Sequences& sequences) {
  Sha256 sha;
  for (const std::vector<int64_t>& sequence : sequences.tokens) {
    const auto size = static_cast<int64_t>(sequence.size());
    sha.update(std::as_bytes(std::span(&size, 1)));
    sha.update(std::as_bytes(std::span(sequence)));
  }
  for (const PromptImages& images : sequences.images) {
    sha.update(std::as_bytes(std::span(images.pixel_shape)));
    sha.update(std::as_bytes(std::span(images.pixels)));
  }
  return "sha256:" + to_hex(sha.finish());
}

Status check(const Prompts& sequences, int64_t vocab_size, int64_t context,
             const std::string& file) {
  size_t tokens = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    tokens += sequences[i].size();
    if (std::ssize(sequences[i]) > context) {
      return bad_input(fmt::format("{}: sequence {} has {} tokens, the context {}", printable(file),
                                   i + 1, sequences[i].size(), context));
    }
    for (const int64_t id : sequences[i]) {
      if (id >= 0 && id < vocab_size) continue;
      return bad_input(fmt::format("{}: sequence {}: token {} is outside of the vocabulary of {}",
                                   printable(file), i + 1, id, vocab_size));
    }
  }
  if (tokens >= kLeastCalibrationTokens) return {};
  return bad_input(fmt::format("{}: has {} tokens; a calibration takes at least {}",
                               printable(file), tokens, kLeastCalibrationTokens));
}

}  // namespace

Result<CalibrationText> read_calibration_text(const plan::ConvertOptions& options,
                                              const std::string& file, ThreadPool& pool,
                                              const std::string& option) {
  const plan::MappedModel model = FERRY_TRY(plan::map_checkpoint(options));
  const int64_t context = model.build.context_length;
  CalibrationText read;
  const std::string text = file == kDefaultCalibration
                               ? std::string(default_calibration_text())
                               : FERRY_TRY(read_text_file(file, kMaxTextBytes));
  if (!file.ends_with(kChatsSuffix) && has_ids_only(text)) {
    read.sequences.tokens = FERRY_TRY(read_prompts(file));
    size_t tokens = 0;
    std::erase_if(read.sequences.tokens, [&](const std::vector<int64_t>& sequence) {
      return (tokens += sequence.size()) > kMostCalibrationTokens;
    });
  } else {
    Result<text::Tokenizer> loaded = plan::tokenizer_in(model.copied);
    if (!loaded && loaded.error().code == ErrorCode::kUsage) {
      return fail_field(
          ErrorCode::kUsage, option,
          fmt::format(": {}; a file of token ids does without one", loaded.error().message));
    }
    text::Tokenizer tokenizer = FERRY_TRY(std::move(loaded));
    if (file.ends_with(kChatsSuffix)) {
      read.sequences = FERRY_TRY(sequences_of_chats(model, std::move(tokenizer), text, file, pool));
    } else {
      read.sequences.tokens = FERRY_TRY(
          sequences_of(tokenizer, text, std::min(kSequenceTokens, static_cast<size_t>(context))));
    }
  }
  FERRY_RETURN_IF_ERROR(
      check(read.sequences.tokens, model.checkpoint.config.vocab_size, context, file));
  read.digest = digest_of(read.sequences);
  return read;
}

}  // namespace ferry::proof
