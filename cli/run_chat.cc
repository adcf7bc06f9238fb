#include "cli/run_chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/envelope.h"
#include "cli/line_reader.h"
#include "cli/run_answer.h"
#include "core/text.h"
#include "core/utf8.h"

namespace ferry::cli {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr const char* kMessage = "message";  // start of errors about a message
constexpr std::string_view kImage = "/image", kAudio = "/audio", kVideo = "/video",
                           kAdapter = "/adapter", kQuit = "/quit";

void show_prompt() {
  if (::isatty(STDIN_FILENO) == 0) return;
  std::fputs("> ", stderr);
  std::fflush(stderr);
}

class Chat {
 public:
  Chat(Context& context, const RunOptions& options, PromptReader& prompts, AdapterDecoder& adapted,
       runner::Sampler& sampler, const AnswerLimits& limits, Generation loaded)
      : context_(context),
        options_(options),
        manifest_(adapted.bundle().manifest()),
        prompts_(prompts),
        adapted_(adapted),
        sampler_(sampler),
        limits_(limits),
        loaded_(std::move(loaded)) {
    if (!options.system.empty()) messages_.push_back({"system", options.system});
  }

  Result<int> run();

 private:
  bool is_over() const { return exit_.has_value(); }
  Status handle(const std::string& line);
  Status command(std::string_view line);
  Status add_image(const std::string& path);
  Status add_sound(const std::string& path);
  // Ends the sequence, whose images or sounds have other rows now.
  Status forget();
  Status add_video(const std::string& path);
  // Chooses another adapter. The decoder has run nothing with it yet.
  Status choose_adapter(const std::string& name);
  Result<Prompt> read_prompt();
  Status turn(const std::string& text);
  // Prints an error that is about the last line. Returns an error that is not.
  Status refuse(const Error& error);
  // Ends a chat whose prompt does not fit into the context.
  void end_full(const Generation& g);
  // Restarts the decoder's sequence unless `prompt` extends it. Returns how many ids the decoder
  // keeps.
  Result<int64_t> keep_prefix(const Prompt& prompt);
  Status answer(Prompt prompt, Generation g);

  Context& context_;
  const RunOptions& options_;
  const packer::Manifest& manifest_;
  PromptReader& prompts_;
  AdapterDecoder& adapted_;
  runner::Sampler& sampler_;
  const AnswerLimits& limits_;
  Generation loaded_;
  std::vector<prompt::ChatMessage> messages_;
  // The numbers of images, sounds and videos that belong to messages_.
  size_t images_sent_ = 0, sounds_sent_ = 0, videos_sent_ = 0;
  std::vector<int64_t> executed_;  // ids that the decoder has run
  std::optional<int> exit_;
};

Status Chat::refuse(const Error& error) {
  if (error.code == ErrorCode::kInterrupted || error.code == ErrorCode::kInternal) {
    return Failure(error);
  }
  context_.refuse(error);
  return {};
}

Status Chat::add_image(const std::string& path) {
  FERRY_RETURN_IF_ERROR(prompts_.load_encoder());
  return FERRY_TRY(prompts_.add_image(path)) ? forget() : Status();
}

Status Chat::forget() {
  adapted_.decoder().restart();
  executed_.clear();
  return adapted_.decoder().set_image_rows({});
}

Status Chat::add_sound(const std::string& path) {
  if (FERRY_TRY(prompts_.add_sound(path))) FERRY_RETURN_IF_ERROR(forget());
  const std::string note = prompts_.cut_note(prompts_.sounds() - 1);
  if (!note.empty()) context_.note(note);
  return {};
}

Status Chat::add_video(const std::string& path) {
  if (!options_.video_fps) {
    return fail(ErrorCode::kUsage, "/video needs --video-fps, the frames of a second");
  }
  FERRY_RETURN_IF_ERROR(prompts_.load_encoder());
  return prompts_.add_video(path, options_.video_fps);
}

Status Chat::choose_adapter(const std::string& name) {
  if (const Status known = adapted_.check(name); !known) return refuse(known.error());
  if (name == adapted_.adapter()) return {};
  FERRY_RETURN_IF_ERROR(adapted_.choose(name));
  executed_.clear();
  loaded_.adapter = name;
  context_.note(name.empty() ? "no adapter" : fmt::format("adapter {}", name));
  return {};
}

Status Chat::command(std::string_view line) {
  const std::string_view name = line.substr(0, line.find_first_of(kBlanks));
  const std::string path(trimmed(line.substr(name.size())));
  if (name == kAdapter) return choose_adapter(path);
  if (name == kQuit && path.empty()) {
    exit_ = 0;
    return {};
  }
  if ((name != kImage && name != kAudio && name != kVideo) || path.empty()) {
    return refuse({ErrorCode::kUsage,
                   fmt::format("{}: no command; there are /image FILE, /audio FILE, /video FOLDER, "
                               "/adapter NAME and /quit",
                               quoted(line))});
  }
  const Status added = name == kImage   ? add_image(path)
                       : name == kAudio ? add_sound(path)
                                        : add_video(path);
  return added ? added : refuse(added.error());
}

Result<int64_t> Chat::keep_prefix(const Prompt& prompt) {
  // Answers to videos whose frames have places in time were placed otherwise than they are as part
  // of a prompt.
  const bool timed = std::ranges::any_of(
      prompt.rows, [](const runner::EmbeddingRows& rows) { return rows.grid_frames > 1; });
  const bool extends = !timed && executed_.size() < prompt.ids.size() &&
                       std::ranges::equal(executed_, std::span(prompt.ids).first(executed_.size()));
  if (!extends) {
    adapted_.decoder().restart(std::ssize(prompt.ids));
    executed_.clear();
  }
  if (prompts_.images() + prompts_.sounds() + prompts_.videos() > 0) {
    FERRY_RETURN_IF_ERROR(adapted_.decoder().set_image_rows(prompt.rows));
  }
  return std::ssize(executed_);
}

void Chat::end_full(const Generation& g) {
  const std::string line =
      fmt::format("ferry: the context of {} tokens is full: the conversation has {}\n",
                  adapted_.decoder().capacity(), g.prompt.size());
  if (context_.json) print_result(context_, g, /*with_text=*/true, options_.stats);
  context_.flush();
  std::fputs(line.c_str(), stderr);
  exit_ = 1;
}

Status Chat::answer(Prompt prompt, Generation g) {
  g.kept_tokens = FERRY_TRY(keep_prefix(prompt));
  g.prompt = std::move(prompt.ids);
  AnswerOutput output(prompts_.tokenizer(), options_.stops, printer(context_));
  g.max_new = limits_.of(std::ssize(g.prompt), /*is_chat=*/true);
  g = FERRY_TRY(generate(adapted_.decoder(), manifest_, options_, sampler_, output, std::move(g)));
  executed_ = g.prompt;
  executed_.insert(executed_.end(), g.tokens.begin(), g.tokens.end());
  executed_.resize(static_cast<size_t>(adapted_.decoder().position()));  // the last id has not run
  messages_.push_back({"assistant", g.text});
  images_sent_ = prompts_.images();
  sounds_sent_ = prompts_.sounds();
  videos_sent_ = prompts_.videos();
  print_result(context_, g, /*with_text=*/true, options_.stats);
  if (g.stop == kStopInterrupted) exit_ = conclude(context_, g);
  return {};
}

// Makes the prompt for an answer to the last of messages_.
Result<Prompt> Chat::read_prompt() {
  Prompt prompt = FERRY_TRY(prompts_.messages(messages_, kMessage));
  const Status known =
      runner::check_tokens(prompt.ids, manifest_.vocab_size, 0, std::ssize(prompt.ids));
  if (known) return prompt;
  return fail(known.error().code, fmt::format("{}: {}", kMessage, known.error().message));
}

Status Chat::turn(const std::string& text) {
  Generation g = loaded_;
  g.stats.inference_start = g.clock.now();
  messages_.push_back({"user", text, prompts_.images() - images_sent_,
                       prompts_.sounds() - sounds_sent_, prompts_.videos() - videos_sent_});
  Result<Prompt> prompt = read_prompt();
  if (!prompt) {
    messages_.pop_back();
    return refuse(prompt.error());
  }
  if (std::ssize(prompt->ids) <= adapted_.decoder().capacity())
    return answer(std::move(*prompt), g);
  g.prompt = std::move(prompt->ids);
  g.kept_tokens = 0;
  g.stop = kStopContext;
  end_full(g);
  return {};
}

Status Chat::handle(const std::string& line) {
  if (trimmed(line).empty()) return {};
  if (!utf8::is_valid(line))
    return refuse({ErrorCode::kUsage, fmt::format("{}: not UTF-8", kMessage)});
  return line.starts_with('/') ? command(line) : turn(line);
}

Result<int> Chat::run() {
  for (const std::string& path : options_.images) FERRY_RETURN_IF_ERROR(add_image(path));
  for (const std::string& path : options_.sounds) FERRY_RETURN_IF_ERROR(add_sound(path));
  for (const std::string& path : options_.videos) FERRY_RETURN_IF_ERROR(add_video(path));
  LineReader input;
  while (!is_over()) {
    show_prompt();
    const std::optional<std::string> line = FERRY_TRY(input.next());
    if (!line) break;
    FERRY_RETURN_IF_ERROR(handle(*line));
    if (!context_.flush()) return fail(ErrorCode::kIo, "standard output: cannot write");
  }
  return exit_.value_or(0);
}

}  // namespace

Result<int> run_chat(Context& context, const RunOptions& options, PromptReader& prompts,
                     AdapterDecoder& decoder, runner::Sampler& sampler, const AnswerLimits& limits,
                     Generation loaded) {
  return Chat(context, options, prompts, decoder, sampler, limits, std::move(loaded)).run();
}

}  // namespace ferry::cli
