// ferry preprocess turns images into pixel values, a sound into log-mel frames, and a prompt with
// images into token ids.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_input.h"
#include "cli/report_file.h"
#include "cli/run_prompt.h"
#include "cli/verbs.h"
#include "core/file.h"
#include "core/json_writer.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "core/utf8.h"
#include "prompt/preprocess.h"
#include "prompt/sound_input.h"

namespace ferry::cli {
namespace {

using prompt::PromptRequest;

constexpr uint64_t kMaxMessagesFileBytes = uint64_t{16} << 20;

struct PreprocessLine {
  prompt::PreprocessRequest request;
  std::string backend = "torchvision";
  std::string messages, chat, prompt, audio;
};

void add_tensor(JsonWriter& json, std::string_view name, const char* dtype, const Shape& shape) {
  json.begin_object().member("name", name).member("dtype", dtype).member("shape", shape);
  json.end_object();
}

Shape ids_shape(const prompt::PreprocessedPrompt& prompt) {
  return {1, static_cast<int64_t>(prompt.expanded.ids.size())};
}

void add_prompt(JsonWriter& json, const prompt::PreprocessedPrompt& prompt) {
  json.key("prompt").begin_object();
  json.member("rendered", prompt.expanded.rendered).member("text", prompt.expanded.text);
  json.member("input_ids", Shape(prompt.expanded.ids));
  json.member("placeholder_id", prompt.placeholder_id);
  json.key("tokens_per_tile");
  prompt.tokens_per_tile > 0 ? json.value(prompt.tokens_per_tile) : json.null();
  json.key("tile_positions").begin_array();
  for (const auto& tiles : prompt.expanded.images) json.value(Shape(tiles));
  json.end_array().end_object();
}

void add_tensors(JsonWriter& json, const prompt::PreprocessReport& report) {
  json.key("tensors").begin_array();
  if (!report.pixel_values.empty()) add_tensor(json, "pixel_values", "f32", report.pixel_values);
  if (!report.video_values.empty()) {
    add_tensor(json, "pixel_values_videos", "f32", report.video_values);
  }
  if (!report.video_grid.empty()) add_tensor(json, "video_grid_thw", "i64", report.video_grid);
  if (!report.video_positions.empty()) {
    add_tensor(json, "video_position_ids", "i64", report.video_positions);
    add_tensor(json, "num_frames_per_video", "i64", report.frame_counts);
  }
  if (report.prompt && !report.prompt->group_seconds.empty()) {
    add_tensor(json, "second_per_grid_ts", "f32", {std::ssize(report.prompt->group_seconds)});
  }
  if (!report.pixel_attention_mask.empty()) {
    add_tensor(json, "pixel_attention_mask", "i64", report.pixel_attention_mask);
  }
  if (!report.image_grid.empty()) add_tensor(json, "image_grid_thw", "i64", report.image_grid);
  if (!report.spatial_shapes.empty()) {
    add_tensor(json, "spatial_shapes", "i64", report.spatial_shapes);
  }
  if (!report.image_sizes.empty()) add_tensor(json, "image_sizes", "i64", report.image_sizes);
  if (!report.image_positions.empty()) {
    add_tensor(json, "image_position_ids", "i64", report.image_positions);
  }
  if (!report.image_counts.empty()) {
    add_tensor(json, "batch_num_images", "i64", report.image_counts);
  }
  if (report.prompt) add_tensor(json, "input_ids", "i64", ids_shape(*report.prompt));
  if (report.prompt && !report.prompt->token_types.empty()) {
    add_tensor(json, report.prompt->token_types_name, "i64", ids_shape(*report.prompt));
  }
  json.end_array();
}

void add_videos(JsonWriter& json, const prompt::PreprocessReport& report) {
  json.key("videos").begin_array();
  for (const prompt::PreprocessedVideo& video : report.videos) {
    json.begin_object().member("path", video.path);
    json.member("width", video.size.width).member("height", video.size.height);
    json.member("frames", video.frames).member("taken", Shape(video.taken));
    json.member("groups", video.layout.groups);
    json.member("rows", video.grid.rows).member("columns", video.grid.columns);
    json.end_object();
  }
  json.end_array();
}

std::string preprocess_json(const PreprocessLine& o, const prompt::PreprocessReport& report) {
  JsonWriter json;
  json.begin_object().key("output");
  o.request.output.empty() ? json.null() : json.value(o.request.output);
  json.member("backend", o.backend);
  json.key("images").begin_array();
  for (const prompt::PreprocessedImage& image : report.images) {
    json.begin_object().member("path", image.path);
    json.member("width", image.size.width).member("height", image.size.height);
    json.member("rows", image.grid.rows).member("columns", image.grid.columns);
    json.member("tiles", image.tiles);
    if (!image.tokens.empty()) json.member("tokens", Shape(image.tokens));
    json.end_object();
  }
  json.end_array();
  if (!report.videos.empty()) add_videos(json, report);
  add_tensors(json, report);
  if (report.prompt) add_prompt(json, *report.prompt);
  return json.end_object().take();
}

std::string prompt_line(const prompt::PreprocessedPrompt& prompt) {
  size_t tiles = 0;
  for (const auto& image : prompt.expanded.images) tiles += image.size();
  return fmt::format("prompt: {} tokens, {} of them for {} tiles\n", prompt.expanded.ids.size(),
                     std::ranges::count(prompt.expanded.ids, prompt.placeholder_id), tiles);
}

std::vector<std::string> tensor_texts(const prompt::PreprocessReport& report) {
  std::vector<std::string> texts;
  const auto add = [&](const std::string& name, const Shape& shape) {
    if (!shape.empty()) texts.push_back(fmt::format("{} [{}]", name, fmt::join(shape, ", ")));
  };
  add("pixel_values f32", report.pixel_values);
  add("pixel_values_videos f32", report.video_values);
  add("video_grid_thw i64", report.video_grid);
  add("video_position_ids i64", report.video_positions);
  add("num_frames_per_video i64", report.frame_counts);
  if (report.prompt && !report.prompt->group_seconds.empty()) {
    add("second_per_grid_ts f32", {std::ssize(report.prompt->group_seconds)});
  }
  add("pixel_attention_mask i64", report.pixel_attention_mask);
  add("image_grid_thw i64", report.image_grid);
  add("spatial_shapes i64", report.spatial_shapes);
  add("image_sizes i64", report.image_sizes);
  add("batch_num_images i64", report.image_counts);
  add("image_position_ids i64", report.image_positions);
  if (report.prompt) add("input_ids i64", ids_shape(*report.prompt));
  if (report.prompt && !report.prompt->token_types.empty()) {
    add(report.prompt->token_types_name + " i64", ids_shape(*report.prompt));
  }
  return texts;
}

std::string preprocess_text(const PreprocessLine& o, const prompt::PreprocessReport& report) {
  std::string text;
  for (const auto& [path, size, grid, tiles, tokens, blocks] : report.images) {
    const bool has_whole = tiles > static_cast<size_t>(grid.rows * grid.columns);
    text += fmt::format("{}: {} x {}: ", printable(path), size.width, size.height);
    if (blocks != media::Grid{}) {
      text += fmt::format("{} rows of {} patches\n", grid.rows, grid.columns);
      continue;
    }
    text += grid.rows * grid.columns > 1
                ? fmt::format("{} tiles: {} rows of {}{}\n", tiles, grid.rows, grid.columns,
                              has_whole ? " and the whole image" : "")
                : "1 tile\n";
  }
  for (const prompt::PreprocessedVideo& video : report.videos) {
    text += fmt::format("{}: {} of {} frames of {} x {}", printable(video.path), video.taken.size(),
                        video.frames, video.size.width, video.size.height);
    text += video.grid == media::Grid{}
                ? std::string("\n")
                : fmt::format(": {} groups of {} rows of {} patches\n", video.layout.groups,
                              video.grid.rows, video.grid.columns);
  }
  if (report.prompt) text += prompt_line(*report.prompt);
  if (o.request.output.empty()) return text;
  return text + fmt::format("{}: {}\n", printable(o.request.output),
                            fmt::join(tensor_texts(report), ", "));
}

// Returns the prompt of --prompt, --chat or --messages; nullopt for none of them, kUsage for two.
Result<std::optional<PromptRequest>> prompt_of(const PreprocessLine& o) {
  using Form = PromptRequest::Form;
  const int given = int(!o.messages.empty()) + int(!o.chat.empty()) + int(!o.prompt.empty());
  if (given == 0) return std::optional<PromptRequest>();
  if (given > 1) {
    return fail(ErrorCode::kUsage, "--messages, --chat and --prompt exclude each other");
  }
  if (!o.messages.empty()) {
    std::string text = FERRY_TRY(read_text_file(o.messages, kMaxMessagesFileBytes));
    return std::optional(PromptRequest{Form::kMessages, std::move(text), printable(o.messages),
                                       text::chat::local_time()});
  }
  const bool chat = !o.chat.empty();
  const char* name = chat ? "--chat" : "--prompt";
  const std::string& text = chat ? o.chat : o.prompt;
  if (!utf8::is_valid(text)) return fail(ErrorCode::kUsage, std::string(name) + ": not UTF-8");
  return std::optional(
      PromptRequest{chat ? Form::kChat : Form::kPlain, text, name, text::chat::local_time()});
}

std::string sound_json(const PreprocessLine& o, const prompt::PreprocessedSound& sound) {
  JsonWriter json;
  json.begin_object().member("output", o.request.output).member("backend", o.backend);
  json.key("images").begin_array().end_array();
  json.key("audio").begin_object().member("path", sound.path);
  json.member("sampling_rate", sound.rate).member("channels", sound.channels);
  json.member("duration", sound.seconds).end_object();
  json.key("tensors").begin_array();
  add_tensor(json, sound.tensor, "f32", sound.shape);
  if (!sound.mask.empty()) {
    add_tensor(json, sound.mask_name, "bool", sound.mask);
  }
  return json.end_array().end_object().take();
}

Result<int> run_preprocess_sound(Context& context, const PreprocessLine& o) {
  const bool more = !o.request.images.empty() || !o.messages.empty() || !o.chat.empty() ||
                    !o.prompt.empty() || o.request.pan_and_scan || !o.request.videos.empty();
  if (more) return fail(ErrorCode::kUsage, "--audio takes no images, no videos and no prompt");
  if (o.request.output.empty()) return fail(ErrorCode::kUsage, "-o FILE is required");
  const auto settings_of = [&]() -> Result<media::SoundSettings> {
    if (o.request.bundle.empty()) return prompt::sound_settings(o.request.checkpoint);
    return prompt::sound_settings(
        FERRY_TRY(packer::Bundle::open(o.request.bundle, /*check_digests=*/false, context.pool())));
  };
  const media::SoundSettings settings = FERRY_TRY(settings_of());
  const prompt::PreprocessedSound sound =
      FERRY_TRY(prompt::preprocess_sound(o.audio, settings, o.request.output, context.pool()));
  if (context.json) {
    context.print_result(sound_json(o, sound), 0);
  } else if (!context.quiet) {
    context.print(fmt::format("{}: {:.2f} s, {} Hz, {} channel{}\n{}: {} f32 [{}]\n",
                              printable(sound.path), sound.seconds, sound.rate, sound.channels,
                              sound.channels == 1 ? "" : "s", printable(o.request.output),
                              sound.tensor, fmt::join(sound.shape, ", ")));
  }
  return 0;
}

Result<int> run_preprocess(Context& context, PreprocessLine o) {
  if (o.request.checkpoint.empty() == o.request.bundle.empty()) {
    return fail(ErrorCode::kUsage, o.request.bundle.empty()
                                       ? "--checkpoint DIR or --bundle DIR is required"
                                       : "--checkpoint and --bundle exclude each other");
  }
  for (const std::string& folder : {o.request.bundle, o.request.checkpoint}) {
    if (o.request.output.empty() || !checkpoint::is_bundle(folder)) continue;
    FERRY_RETURN_IF_ERROR(check_directory_of("--out", o.request.output, folder));
  }
  if (!o.audio.empty()) return run_preprocess_sound(context, o);
  o.request.prompt = FERRY_TRY(prompt_of(o));
  if (!o.request.prompt && o.request.images.empty() && o.request.videos.empty()) {
    return fail(ErrorCode::kUsage, "an IMAGE, a video or a prompt is required");
  }
  if (o.request.videos.empty() == o.request.video_rate.has_value()) {
    return fail(ErrorCode::kUsage, o.request.videos.empty()
                                       ? "--video-fps is for --video"
                                       : "--video needs --video-fps, the frames of a second");
  }
  if (!o.request.videos.empty() && o.backend == "pil") {
    return fail(ErrorCode::kUsage, "--video has the backend torchvision alone");
  }
  if (!o.request.prompt && o.request.output.empty()) {
    return fail(ErrorCode::kUsage, "-o FILE is required");
  }
  o.request.backend = o.backend == "pil" ? media::Backend::kPil : media::Backend::kTorchvision;
  const prompt::PreprocessReport report = FERRY_TRY(prompt::preprocess(o.request, context.pool()));
  if (context.json) {
    context.print_result(preprocess_json(o, report), 0);
  } else if (!context.quiet) {
    context.print(preprocess_text(o, report));
  }
  return 0;
}

}  // namespace

void add_preprocess(CommandLine& line) {
  auto o = std::make_shared<PreprocessLine>();
  line.verb("preprocess",
            "Images to the pixel values of a checkpoint's own processor, sounds to its log-mel "
            "frames or samples, and prompts with images to token ids")
      .positionals("IMAGE", o->request.images, "JPEG, PNG, WebP, GIF, BMP, PGM or PPM files")
      .option("--checkpoint DIR", o->request.checkpoint,
              "Directory with preprocessor_config.json, or a bundle")
      .finds_models()
      .option("--bundle DIR", o->request.bundle,
              "Instead: bundle with an encoder, which must take what the processor makes")
      .option("-o,--out FILE", o->request.output, "New safetensors file")
      .option("--audio FILE", o->audio,
              "Instead of images: a sound, WAV or FLAC, to the frames or samples that a model of "
              "speech takes")
      .option("--video FOLDER", o->request.videos,
              "Videos, each a folder with its frames as pictures, in the order of their names")
      .option("--video-fps N", o->request.video_rate, "How many frames of --video a second has")
      .option("--messages FILE", o->messages,
              "JSON file: messages whose contents are {\"type\": \"text\", \"text\": ...}, "
              "{\"type\": \"image\"} and {\"type\": \"video\"}")
      .option("--chat", o->chat, "Message of a user; the images and videos come before it")
      .option("--prompt", o->prompt, "Prompt without a chat template")
      .flag("--pan-and-scan", o->request.pan_and_scan,
            "Gemma 3: parts of a long image too, as the processor's do_pan_and_scan")
      .choice("--backend", o->backend, {"torchvision", "pil"},
              "Whose resampler and rounding is computed")
      .example("ferry preprocess cat.jpg --checkpoint checkpoint/ -o pixels.safetensors",
               "The pixel values that the checkpoint's own processor makes.")
      .example("ferry preprocess --audio talk.wav --checkpoint whisper/ -o features.safetensors",
               "The log-mel frames of the first window.")
      .example(
          "ferry preprocess cat.jpg --bundle bundle/ --chat 'What is this?' -o inputs.safetensors",
          "Token ids too, with the image before the message.")
      .action([o](Context& context) { return run_preprocess(context, *o); });
}

}  // namespace ferry::cli
