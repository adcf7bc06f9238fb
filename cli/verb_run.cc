// ferry run: generates tokens or text with a bundle, and says on stderr how fast that was.

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "cli/decode_mode.h"
#include "cli/error_report.h"
#include "cli/loose_programs.h"
#include "cli/numbers.h"
#include "cli/present_time.h"
#include "cli/verbs.h"
#include "core/interrupt.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "core/utf8.h"
#include "formats/safetensors/writer.h"
#include "packer/bundle_reader.h"
#include "runner/decoder.h"
#include "runner/sampler.h"
#include "text/chat_template/chat_template.h"
#include "text/tokenizer/text_stream.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::string_view kEos = "eos";
constexpr std::string_view kInterruption = "interrupted";

struct Options {
  LooseOptions loose;
  std::string bundle, tokens, prompt, chat, dump_logits;
  int64_t max_new = 16;
  std::string mode, lookahead;
  runner::SamplingOptions sampling;
  int64_t seed = 0;
  std::optional<int64_t> memory;
  bool ignore_eos = false, skip_digests = false;
};

// The moments that the rates are made of.
struct Times {
  Clock::time_point load_start, load_end, start, prompt_end, end;
  Seconds sampling{0};
};

struct Generation {
  std::vector<int64_t> prompt, tokens;
  std::string text;           // of the tokens; only with a tokenizer
  std::vector<float> logits;  // (tokens, vocab): the row that each token was chosen from
  // Why there are no more: "eos", "max_new", "context" (it is full) or "interrupted".
  std::string_view stop;
  std::optional<runner::LookaheadCounts> lookahead;
  Times times;
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
  if (o.max_new < 1) return fail(ErrorCode::kUsage, "--max-new must be at least 1");
  return {};
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
  if (!options.ignore_eos && std::ranges::count(manifest.eos_ids, g.tokens.back()) > 0) return kEos;
  if (std::ssize(g.tokens) >= options.max_new) return "max_new";
  if (decoder.position() >= decoder.capacity()) return "context";
  return {};
}

Error in_bundle(const Options& options, Error error) {
  error.message = fmt::format("{}: {}", printable(options.bundle), error.message);
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
  const auto sampling_start = Clock::now();
  const Result<int64_t> token = sampler.sample(last);
  if (!token) return tl::unexpected<Error>(in_bundle(options, token.error()));
  g.times.sampling += Clock::now() - sampling_start;
  g.tokens.push_back(*token);
  if (!options.dump_logits.empty()) g.logits.insert(g.logits.end(), last.begin(), last.end());
  g.stop = reason_to_stop(g, decoder, manifest, options);
  if (g.stop != kEos) FERRY_RETURN_IF_ERROR(text.push(*token));
  return g.stop.empty() ? std::optional(*token) : std::nullopt;
}

// An interrupt ends the answer with what there is of it, if there is anything.
Result<Generation> generate(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const Options& options, runner::Sampler& sampler, TextOutput& text,
                            Generation g) {
  const auto choose = [&](std::span<const float> logits) {
    return choose_token(logits, g, decoder, manifest, options, sampler, text);
  };
  g.times.start = Clock::now();
  const std::span<const float> logits = FERRY_TRY(decoder.forward(g.prompt));
  g.times.prompt_end = Clock::now();
  std::optional<int64_t> token = FERRY_TRY(choose(logits));
  while (token) {
    auto next = decoder.advance(*token, choose);
    if (!next && next.error().code == ErrorCode::kInterrupted) {
      g.stop = kInterruption;
      break;
    }
    token = FERRY_TRY(std::move(next));
  }
  g.times.end = Clock::now();
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

// -- output

struct Stats {
  size_t prompt, generated;
  size_t decoded;  // tokens that took a forward of their own: the first came with the prompt
  double load, total, prompt_eval, generation, first_token, sampling;  // seconds
  explicit Stats(const Generation& g)
      : prompt(g.prompt.size()),
        generated(g.tokens.size()),
        decoded(generated - 1),
        load(Seconds(g.times.load_end - g.times.load_start).count()),
        total(Seconds(g.times.end - g.times.start).count()),
        prompt_eval(Seconds(g.times.prompt_end - g.times.start).count()),
        generation(Seconds(g.times.end - g.times.prompt_end).count()),
        first_token(prompt_eval),
        sampling(g.times.sampling.count()) {}
};

// The most memory that the process has had at once, in bytes; mapped weights count once read.
int64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// NaN, which is null in JSON, where there is none.
double rate(size_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : std::nan("");
}

// As official runners log it.
std::string lookahead_line(const Generation& g) {
  if (!g.lookahead) return {};
  return fmt::format("Lookahead Decoding: n_generated = {} / n_accept = {}\n",
                     g.lookahead->generated, g.lookahead->accepted);
}

std::string stats_lines(const Generation& g) {
  const Stats s(g);
  const auto line = [](const std::string& what, double seconds, size_t tokens) {
    return fmt::format("{}: {:.3f} s, Rate: {:.3f} tokens/s\n", what, seconds,
                       rate(tokens, seconds));
  };
  const std::string decoding =
      s.decoded == 0 ? std::string()
                     : line(fmt::format("Decoded {} tokens after the first", s.decoded),
                            s.generation, s.decoded);
  return fmt::format("Prompt Tokens: {}  Generated Tokens: {}  Stopped by: {}\n", s.prompt,
                     s.generated, g.stop) +
         fmt::format("Model Load Time: {:.3f} s\n", s.load) +
         line("Total inference time", s.total, s.generated) +
         line("Prompt evaluation", s.prompt_eval, s.prompt) + decoding +
         fmt::format("Time to first generated token: {:.3f} s\n", s.first_token) +
         fmt::format("Sampling time over {} tokens: {:.3f} s\n", s.generated, s.sampling) +
         lookahead_line(g) +
         fmt::format("Peak RSS: {:.1f} MiB\n", static_cast<double>(peak_rss()) / (1 << 20));
}

std::string to_json(const Generation& g, bool with_text) {
  const Stats s(g);
  JsonWriter json;
  json.begin_object();
  if (const Status status = check_interrupt(); g.stop == kInterruption && !status) {
    write_error(json, status.error());
  }
  json.member("prompt_tokens", g.prompt).member("tokens", g.tokens);
  if (with_text) json.member("text", g.text);
  json.member("stop", g.stop).member("stopped_by_eos", g.stop == kEos);
  json.key("stats").begin_object();
  json.member("prompt_tokens", s.prompt).member("generated_tokens", s.generated);
  json.member("decoded_tokens", s.decoded);
  json.member("model_load_s", s.load).member("inference_s", s.total);
  json.member("prompt_eval_s", s.prompt_eval).member("generation_s", s.generation);
  json.member("first_token_s", s.first_token).member("sampling_s", s.sampling);
  json.member("prefill_token_per_sec", rate(s.prompt, s.prompt_eval));
  json.member("decode_token_per_sec", rate(s.decoded, s.generation));
  if (g.lookahead) {
    json.member("lookahead_generated", g.lookahead->generated);
    json.member("lookahead_accepted", g.lookahead->accepted);
  }
  json.member("peak_rss_bytes", peak_rss());
  json.end_object().end_object();
  return json.take();
}

// -- the verb

// The tokenizer of the bundle, if the prompt is text.
Result<std::optional<text::Tokenizer>> open_tokenizer(const packer::Bundle& bundle,
                                                      const Options& options) {
  if (!options.tokens.empty()) return std::optional<text::Tokenizer>();
  if (!bundle.has_text(text::kTokenizerFile)) {
    return fail(ErrorCode::kUsage,
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
  const text::ChatTemplate chat = FERRY_TRY(text::ChatTemplate::load(bundle.text_directory(), read));
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

Result<int> run(Context& context, const Options& options) {
  FERRY_RETURN_IF_ERROR(check_options(options));
  runner::Sampler sampler = FERRY_TRY(make_sampler(options));
  Generation g;
  if (!options.tokens.empty()) {
    g.prompt = FERRY_TRY(parse_numbers("--tokens", options.tokens, "ids such as 1,2,3"));
  }
  const runner::DecodeOptions decode = FERRY_TRY(decode_options(options));
  const runner::MethodOptions method = {.memory = FERRY_TRY(memory_limit(options.memory))};
  g.times.load_start = Clock::now();
  const packer::Bundle bundle =
      FERRY_TRY(open_bundle({options.bundle, !options.skip_digests, !options.ignore_eos},
                            options.loose, context.pool()));
  std::optional<text::Tokenizer> tokenizer = FERRY_TRY(open_tokenizer(bundle, options));
  const std::unique_ptr<runner::Decoder> decoder =
      FERRY_TRY(runner::load_decoder(bundle, context.pool(), method, decode));
  g.times.load_end = Clock::now();
  if (tokenizer) g.prompt = FERRY_TRY(encode_prompt(*tokenizer, bundle, options));
  TextOutput text(tokenizer ? &*tokenizer : nullptr, [&](std::string_view part) {
    if (context.json) return;
    context.print(part);
    context.flush();
  });
  g = FERRY_TRY(generate(*decoder, bundle.manifest(), options, sampler, text, std::move(g)));
  if (!options.dump_logits.empty()) FERRY_RETURN_IF_ERROR(dump_logits(g, options.dump_logits));
  if (context.json) {
    context.print(to_json(g, tokenizer.has_value()));
  } else {
    context.print(tokenizer ? "\n" : fmt::format("{}\n", fmt::join(g.tokens, ",")));
    context.flush();  // before what stderr says of it
    context.aside(stats_lines(g));
  }
  const Status status = g.stop == kInterruption ? check_interrupt() : Status();
  if (status) return 0;
  print_error(status.error(), /*with_details=*/false);
  return exit_code(status.error());
}

}  // namespace

void add_run(CommandLine& line) {
  auto o = std::make_shared<Options>();
  Verb verb = line.verb("run", "Generate text or tokens with a bundle");
  verb.optional_positional("BUNDLE", o->bundle, "Bundle directory");
  add_loose_options(verb, o->loose);
  verb
      .option("--prompt", o->prompt, "Prompt as text, for the bundle's tokenizer")
      .option("--chat", o->chat, "Message of a user, for the bundle's chat template")
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
      .option("--memory", o->memory,
              "Bytes that planned memory may have; default: what the system has available")
      .flag("--ignore-eos", o->ignore_eos, "Do not stop at the model's end tokens")
      .flag("--skip-digests", o->skip_digests,
            "Trust the bundle's bytes: load without hashing them")
      .action([o](Context& context) { return run(context, *o); });
}

}  // namespace ferry::cli
