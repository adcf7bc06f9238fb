// ferry run: generates tokens or text with a bundle, and says on stderr how fast that was.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cli/decode_mode.h"
#include "cli/error_report.h"
#include "cli/loose_programs.h"
#include "cli/numbers.h"
#include "cli/present_time.h"
#include "cli/run_report.h"
#include "cli/verbs.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "core/utf8.h"
#include "formats/safetensors/writer.h"
#include "packer/bundle_reader.h"
#include "pipeline/image_input.h"
#include "runner/decoder.h"
#include "runner/sampler.h"
#include "runner/vision_encoder.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/text_stream.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::cli {
namespace {

struct Options {
  LooseOptions loose;
  std::vector<std::string> images;
  std::string bundle, tokens, prompt, chat, dump_logits, stats_json, thresholds;
  int64_t max_new = 16;
  std::string mode, lookahead;
  runner::SamplingOptions sampling;
  int64_t seed = 0;
  std::optional<int64_t> memory;
  bool ignore_eos = false, skip_digests = false;
};

Result<std::vector<int64_t>> parse_numbers(std::string_view option, std::string_view text,
                                           std::string_view expected) {
  std::vector<int64_t> numbers;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (rest != end && *rest != ',')) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{} {}: expected {}", option, quoted(text), expected));
    }
    numbers.push_back(number);
    if (rest == end) return numbers;
    at = rest + 1;
  }
}

Result<runner::LookaheadOptions> parse_lookahead(const Options& o) {
  constexpr std::string_view kExpected = "N,W,G such as 3,2,2";
  runner::LookaheadOptions lookahead = {.seed = static_cast<uint64_t>(o.seed)};
  if (o.lookahead.empty()) return lookahead;
  const auto numbers = FERRY_TRY(parse_numbers("--lookahead", o.lookahead, kExpected));
  if (numbers.size() != 3) {
    return fail(ErrorCode::kUsage,
                fmt::format("--lookahead {}: expected {}", quoted(o.lookahead), kExpected));
  }
  lookahead.ngram = numbers[0];
  lookahead.window = numbers[1];
  lookahead.gcap = numbers[2];
  return lookahead;
}

Result<runner::DecodeOptions> decode_options(const Options& o) {
  runner::DecodeOptions decode;
  if (!o.mode.empty()) decode.mode = FERRY_TRY(parse_mode(o.mode));
  if (!o.lookahead.empty() && decode.mode != runner::DecodeMode::kLookahead) {
    return fail(ErrorCode::kUsage, "--lookahead is for --mode lookahead");
  }
  decode.lookahead = FERRY_TRY(parse_lookahead(o));
  return decode;
}

Status check_options(const Options& o) {
  if (!o.tokens.empty() + !o.prompt.empty() + !o.chat.empty() != 1) {
    return fail(ErrorCode::kUsage,
                "one of --prompt, --chat and --tokens is required, and not empty");
  }
  if (!o.images.empty() && !o.tokens.empty()) {
    return fail(ErrorCode::kUsage, "--image needs --prompt or --chat");
  }
  if (o.max_new < 1) return fail(ErrorCode::kUsage, "--max-new must be at least 1");
  FERRY_RETURN_IF_ERROR(check_new_file(o.dump_logits));
  return check_new_file(o.stats_json);
}

Result<runner::Sampler> make_sampler(const Options& options) {
  runner::SamplingOptions sampling = options.sampling;
  sampling.seed = static_cast<uint64_t>(options.seed);
  return runner::Sampler::make(sampling);
}

// The text of generated tokens: given out as it comes, and kept.
class TextOutput {
 public:
  // nullptr: no text is wanted.
  TextOutput(const text::Tokenizer* tokenizer, std::function<void(std::string_view)> print)
      : print_(std::move(print)) {
    if (tokenizer != nullptr) stream_.emplace(*tokenizer);
  }
  Status push(int64_t token) {
    if (stream_) give(FERRY_TRY(stream_->push(token)));
    return {};
  }
  Result<std::string> finish() {
    if (stream_) give(FERRY_TRY(stream_->finish()));
    return std::move(text_);
  }

 private:
  void give(const std::string& text) {
    text_ += text;
    if (print_ && !text.empty()) print_(text);
  }
  std::function<void(std::string_view)> print_;
  std::optional<text::TextStream> stream_;
  std::string text_;
};

// Why `g` ends with its last token, or nothing while it goes on. The context is a limit: what does
// not fit is not generated.
std::string_view reason_to_stop(const Generation& g, const runner::Decoder& decoder,
                                const packer::Manifest& manifest, const Options& options) {
  if (!options.ignore_eos && std::ranges::count(manifest.eos_ids, g.tokens.back()) > 0)
    return kStopEos;
  if (std::ssize(g.tokens) >= options.max_new) return "max_new";
  if (decoder.position() >= decoder.capacity()) return "context";
  return {};
}

Error in_bundle(const Options& options, Error error) {
  const std::string& file = options.bundle.empty() ? options.loose.text_decoder : options.bundle;
  error.message = fmt::format("{}: {}", printable(file), error.message);
  return error;
}

// The next token by the logits before it: it goes to `g` and to `text`. Returns nothing if it is
// the last one.
Result<std::optional<int64_t>> choose_token(std::span<const float> logits, Generation& g,
                                            const runner::Decoder& decoder,
                                            const packer::Manifest& manifest,
                                            const Options& options, runner::Sampler& sampler,
                                            TextOutput& text) {
  const auto vocab = static_cast<size_t>(manifest.vocab_size);
  if (logits.size() < vocab)
    return bad_input("the bundle's logits are shorter than its vocabulary");
  const std::span<const float> last = logits.last(vocab);
  const auto sampling_start = g.clock.now();
  const Result<int64_t> token = sampler.sample(last);
  if (!token) return tl::unexpected<Error>(in_bundle(options, token.error()));
  g.stats.sampling += g.clock.now() - sampling_start;
  g.tokens.push_back(*token);
  if (g.tokens.size() == 1) g.stats.prompt_eval_end = g.clock.now();
  if (!options.dump_logits.empty()) g.logits.insert(g.logits.end(), last.begin(), last.end());
  g.stop = reason_to_stop(g, decoder, manifest, options);
  if (g.stop != kStopEos) FERRY_RETURN_IF_ERROR(text.push(*token));
  return g.stop.empty() ? std::optional(*token) : std::nullopt;
}

// An interrupt ends the answer with what there is of it, if there is anything.
Result<Generation> generate(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const Options& options, runner::Sampler& sampler, TextOutput& text,
                            Generation g) {
  const auto choose = [&](std::span<const float> logits) {
    return choose_token(logits, g, decoder, manifest, options, sampler, text);
  };
  const std::span<const float> logits = FERRY_TRY(decoder.forward(g.prompt));
  std::optional<int64_t> token = FERRY_TRY(choose(logits));
  g.stats.prompt_peak_rss = pipeline::peak_rss();
  while (token) {
    auto next = decoder.advance(*token, choose);
    if (!next && next.error().code == ErrorCode::kInterrupted) {
      g.stop = kStopInterrupted;
      break;
    }
    token = FERRY_TRY(std::move(next));
  }
  g.stats.inference_end = g.clock.now();
  g.stats.peak_rss = pipeline::peak_rss();
  g.stats.prompt_tokens = std::ssize(g.prompt);
  g.stats.generated_tokens = std::ssize(g.tokens) - 1;
  g.lookahead = decoder.lookahead_counts();
  g.text = FERRY_TRY(text.finish());
  return g;
}

Status dump_logits(const Generation& g, const std::string& path) {
  const auto prompt = static_cast<int64_t>(g.prompt.size());
  const auto count = static_cast<int64_t>(g.tokens.size());
  const int64_t vocab = static_cast<int64_t>(g.logits.size()) / count;
  return formats::write_safetensors(
      path, {{{"input_ids", DType::kI64, {1, prompt}}, std::as_bytes(std::span(g.prompt))},
             {{"logits", DType::kF32, {count, vocab}}, std::as_bytes(std::span(g.logits))},
             {{"tokens", DType::kI64, {count}}, std::as_bytes(std::span(g.tokens))}});
}

// -- the verb

// The thresholds of the options; they can be judged by what a run with these options gives.
Result<std::optional<pipeline::Thresholds>> load_thresholds(const Options& options) {
  if (options.thresholds.empty()) return std::optional<pipeline::Thresholds>();
  auto thresholds = FERRY_TRY(pipeline::Thresholds::load(options.thresholds));
  if (thresholds.needs_text() && !options.tokens.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("{}: expect_text needs --prompt or --chat",
                                               printable(options.thresholds)));
  }
  return std::optional(std::move(thresholds));
}

Status write_files(const Generation& g, const Options& options) {
  if (!options.dump_logits.empty()) FERRY_RETURN_IF_ERROR(dump_logits(g, options.dump_logits));
  if (!options.stats_json.empty()) FERRY_RETURN_IF_ERROR(write_stats(g, options.stats_json));
  return {};
}

void print_result(Context& context, const Generation& g, bool with_text) {
  if (context.json) {
    context.print(run_document(g, with_text));
    return;
  }
  context.print(with_text ? "\n" : fmt::format("{}\n", fmt::join(g.tokens, ",")));
  context.flush();  // before what stderr says of it
  context.aside(stats_lines(g));
}

// The exit code, and on stderr why it is not 0.
int conclude(Context& context, const Generation& g) {
  if (const Status status = check_interrupt(); g.stop == kStopInterrupted && !status) {
    print_error(status.error(), /*with_details=*/false);
    return exit_code(status.error());
  }
  if (print_missed(g.judgements)) return 1;
  if (!g.judgements.empty()) {
    context.note(fmt::format("no threshold of {} is missed", g.judgements.size()));
  }
  return 0;
}

// The tokenizer of the bundle, if the prompt is text.
Result<std::optional<text::Tokenizer>> open_tokenizer(const packer::Bundle& bundle,
                                                      const Options& options) {
  if (!options.tokens.empty()) return std::optional<text::Tokenizer>();
  if (!bundle.has_text(text::kTokenizerFile)) {
    return fail(
        ErrorCode::kUsage,
        bundle.text_directory().empty()
            ? fmt::format("{}: a prompt of text needs --tokenizer", printable(bundle.path()))
            : fmt::format("{}: this bundle has no {}: use --tokens",
                          printable(bundle.text_directory()), text::kTokenizerFile));
  }
  const std::string text = FERRY_TRY(bundle.text(text::kTokenizerFile, text::kMaxTokenizerFile));
  const std::string path = bundle.text_directory() + "/" + text::kTokenizerFile;
  return std::optional<text::Tokenizer>(FERRY_TRY(text::Tokenizer::parse(text, printable(path))));
}

// The template writes the special tokens itself.
Result<std::string> chat_prompt(const packer::Bundle& bundle, const Options& options) {
  const auto read = [&](const std::string& name, uint64_t limit) -> Result<std::string> {
    return bundle.has_text(name) ? bundle.text(name, limit) : Result<std::string>(std::string());
  };
  const text::ChatTemplate chat =
      FERRY_TRY(text::ChatTemplate::load(bundle.text_directory(), read));
  return chat.render_message(options.chat, present_time());
}

Result<std::vector<int64_t>> encode_prompt(text::Tokenizer& tokenizer, const packer::Bundle& bundle,
                                           const Options& options) {
  const bool chat = !options.chat.empty();
  const std::string option = chat ? "--chat: " : "--prompt: ";
  if (!utf8::is_valid(options.chat)) return fail(ErrorCode::kUsage, option + "not UTF-8");
  const std::string prompt = chat ? FERRY_TRY(chat_prompt(bundle, options)) : options.prompt;
  auto ids = tokenizer.encode(prompt, /*add_special=*/!chat);
  if (!ids) return fail(ErrorCode::kUsage, option + ids.error().message);
  if (ids->empty()) return fail(ErrorCode::kUsage, option + "no tokens");
  return ids;
}

// A prompt as the decoder takes it: ids, and rows of images at some positions.
struct Prompt {
  std::vector<int64_t> ids;
  std::vector<pipeline::EncodedImage> images;
  std::vector<runner::EmbeddingRows> rows;  // views of `images`
};

Result<Prompt> encode_image_prompt(pipeline::ImageInput& input, const Options& options) {
  const bool chat = !options.chat.empty();
  const std::string option = chat ? "--chat" : "--prompt";
  if (!utf8::is_valid(chat ? options.chat : options.prompt)) {
    return fail(ErrorCode::kUsage, option + ": not UTF-8");
  }
  Prompt prompt;
  if (!options.images.empty()) prompt.images = FERRY_TRY(input.encode(options.images));
  const std::vector<text::ImageLayout> layouts = pipeline::layouts_of(prompt.images);
  text::ImagePrompt& prompts = input.prompts();
  text::ExpandedPrompt expanded =
      FERRY_TRY(chat ? prompts.chat(prompts.user_message(options.chat, layouts.size()), option,
                                    present_time(), layouts)
                     : prompts.plain(options.prompt, option, layouts));
  prompt.rows = pipeline::rows_of(expanded, prompt.images);
  prompt.ids = std::move(expanded.ids);
  if (prompt.ids.empty()) return fail(ErrorCode::kUsage, option + ": no tokens");
  return prompt;
}

// Of a bundle that takes images, where the prompt is text and the bundle has the processor that
// turns it into tokens, or images are given.
Result<std::optional<pipeline::ImageInput>> open_image_input(const packer::Bundle& bundle,
                                                             const Options& options,
                                                             ThreadPool& pool,
                                                             const runner::MethodOptions& method) {
  const bool has_processor =
      runner::VisionEncoder::is_in(bundle) && bundle.has_text("processor_config.json");
  if (options.images.empty() && (!has_processor || !options.tokens.empty())) {
    return std::optional<pipeline::ImageInput>();
  }
  pipeline::ImageInput input = FERRY_TRY(pipeline::ImageInput::open(bundle));
  if (!options.images.empty()) FERRY_RETURN_IF_ERROR(input.load_encoder(pool, method));
  return std::optional(std::move(input));
}

Result<int> run(Context& context, const Options& options) {
  FERRY_RETURN_IF_ERROR(check_options(options));
  runner::Sampler sampler = FERRY_TRY(make_sampler(options));
  Generation g;
  if (!options.tokens.empty()) {
    g.prompt = FERRY_TRY(parse_numbers("--tokens", options.tokens, "ids such as 1,2,3"));
  }
  const runner::DecodeOptions decode = FERRY_TRY(decode_options(options));
  const auto thresholds = FERRY_TRY(load_thresholds(options));
  const runner::MethodOptions method = {.memory = FERRY_TRY(memory_limit(options.memory))};
  g.stats.load_start = g.clock.now();
  const packer::Bundle bundle = FERRY_TRY(open_bundle(
      {options.bundle, !options.skip_digests, !options.ignore_eos}, options.loose, context.pool()));
  if (thresholds) FERRY_RETURN_IF_ERROR(thresholds->check_components(bundle.manifest()));
  std::optional<pipeline::ImageInput> input =
      FERRY_TRY(open_image_input(bundle, options, context.pool(), method));
  std::optional<text::Tokenizer> tokenizer = FERRY_TRY(open_tokenizer(bundle, options));
  const std::unique_ptr<runner::Decoder> decoder =
      FERRY_TRY(runner::load_decoder(bundle, context.pool(), method, decode));
  g.stats.load_end = g.clock.now();
  g.stats.inference_start = g.stats.load_end;
  Prompt prompt;  // its features stay until the answer is complete
  if (input) {
    prompt = FERRY_TRY(encode_image_prompt(*input, options));
    FERRY_RETURN_IF_ERROR(decoder->set_image_rows(prompt.rows));
    g.prompt = std::move(prompt.ids);
  } else if (tokenizer) {
    g.prompt = FERRY_TRY(encode_prompt(*tokenizer, bundle, options));
  }
  TextOutput text(tokenizer ? &*tokenizer : nullptr, [&](std::string_view part) {
    if (context.json) return;
    context.print(part);
    context.flush();
  });
  g = FERRY_TRY(generate(*decoder, bundle.manifest(), options, sampler, text, std::move(g)));
  FERRY_RETURN_IF_ERROR(write_files(g, options));
  if (thresholds && g.stop != kStopInterrupted) {
    g.judgements = thresholds->judge(g.stats, bundle.manifest(), g.text);
  }
  print_result(context, g, tokenizer.has_value());
  return conclude(context, g);
}

}  // namespace

void add_run(CommandLine& line) {
  auto o = std::make_shared<Options>();
  Verb verb = line.verb("run", "Generate text or tokens with a bundle");
  verb.optional_positional("BUNDLE", o->bundle, "Bundle directory");
  add_loose_options(verb, o->loose);
  verb.option("--prompt", o->prompt, "Prompt as text, for the bundle's tokenizer")
      .option("--chat", o->chat, "Message of a user, for the bundle's chat template")
      .option("--image", o->images,
              "Image files for --prompt or --chat, in order; placeholders in the text say where, "
              "else they come first")
      .option("--tokens", o->tokens, "Prompt as token ids: 1,2,3")
      .option("--max-new", o->max_new, "Tokens to generate at most")
      .option("--temperature", o->sampling.temperature, "0: always the likeliest token")
      .option("--top-k", o->sampling.top_k, "Sample from the K likeliest tokens; 0: from all")
      .option("--top-p", o->sampling.top_p,
              "Sample from the likeliest tokens that together have this probability")
      .option("--seed", o->seed,
              "Of the sampler, without effect at temperature 0, and of the guesses of lookahead, "
              "which have no effect on the answer")
      .option("--mode", o->mode,
              "How a static bundle decodes: kv (token by token), hybrid (prompts in chunks, the "
              "default) or lookahead (the same, and several tokens from one call)")
      .option("--lookahead", o->lookahead,
              "Of --mode lookahead: N,W,G, the tokens of an n-gram, the window, and the n-grams "
              "that are kept for each token; default: 3,2,2")
      .option("--dump-logits", o->dump_logits,
              "New safetensors file for the logits that each token was chosen from")
      .option("--stats-json", o->stats_json,
              "New JSON file for the statistics, with the keys of ExecuTorch's runners")
      .option("--thresholds", o->thresholds,
              "JSON file of bounds on rates, times, memory, file sizes and text; exit code 1 where "
              "one is missed")
      .option("--memory", o->memory,
              "Bytes that planned memory may have; default: what the system has available")
      .flag("--ignore-eos", o->ignore_eos, "Do not stop at the model's end tokens")
      .flag("--skip-digests", o->skip_digests,
            "Trust the bundle's bytes: load without hashing them")
      .action([o](Context& context) { return run(context, *o); });
}

}  // namespace ferry::cli
