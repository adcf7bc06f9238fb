// ferry run generates tokens or text with a bundle, and prints its speed to stderr.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/option_values.h"
#include "cli/report_file.h"
#include "cli/run_adapters.h"
#include "cli/run_answer.h"
#include "cli/run_chat.h"
#include "cli/run_options.h"
#include "cli/run_prompt.h"
#include "cli/run_prompts.h"
#include "cli/run_report.h"
#include "cli/run_state.h"
#include "cli/verbs.h"
#include "conversion/gguf_proof.h"
#include "core/result.h"
#include "core/text.h"
#include "core/utf8.h"
#include "formats/safetensors/writer.h"
#include "packer/bundle_reader.h"
#include "runner/decoder.h"
#include "runner/sampler.h"

namespace ferry::cli {
namespace {

Result<runner::LookaheadOptions> parse_lookahead(const RunOptions& o) {
  constexpr std::string_view kExpected = "N,W,G such as 3,2,2";
  runner::LookaheadOptions lookahead = {.seed = static_cast<uint64_t>(o.seed.value_or(0))};
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

Result<runner::DecodeOptions> decode_options(const RunOptions& o) {
  runner::DecodeOptions decode;
  if (!o.mode.empty()) decode.mode = FERRY_TRY(parse_mode(o.mode));
  if (!o.lookahead.empty() && decode.mode != runner::DecodeMode::kLookahead) {
    return fail(ErrorCode::kUsage, "--lookahead is for --mode lookahead");
  }
  decode.lookahead = FERRY_TRY(parse_lookahead(o));
  if (!o.draft.empty() && o.lookup) {
    return fail(ErrorCode::kUsage, "--draft and --lookup: give one of them");
  }
  if (!o.draft.empty() && o.bundle.empty()) {
    return fail(ErrorCode::kUsage, "--draft is for bundles and GGUF files");
  }
  if (!o.lookup) return decode;
  decode.lookup = *o.lookup;
  if (decode.lookup < 1 || decode.lookup > runner::kMostLookup) {
    return fail(ErrorCode::kUsage,
                fmt::format("--lookup {}: expected 1 to {}", decode.lookup, runner::kMostLookup));
  }
  // Programs without a bundle do not say what state they keep.
  if (o.bundle.empty()) return fail(ErrorCode::kUsage, "--lookup is for bundles and GGUF files");
  return decode;
}

// Returns kUsage for options of a single answer together with --interactive or --prompts.
Status check_several(const RunOptions& o, const char* option) {
  const std::pair<const char*, const std::string&> single[] = {
      {"--dump-logits", o.dump_logits}, {"--stats-json", o.stats_json},
      {"--thresholds", o.thresholds},   {"--profile", o.profile},
      {"--save-state", o.save_state},   {"--load-state", o.load_state}};
  for (const auto& [name, value] : single) {
    if (value.empty()) continue;
    return fail(ErrorCode::kUsage, fmt::format("{} does not take {}", option, name));
  }
  return {};
}

Status check_stops(const RunOptions& o) {
  if (!o.stops.empty() && !o.tokens.empty()) {
    return fail(ErrorCode::kUsage, "--stop needs a prompt of text, not --tokens");
  }
  for (const std::string& stop : o.stops) {
    if (stop.empty()) return fail(ErrorCode::kUsage, "--stop: an empty text");
    if (!utf8::is_valid(stop)) return fail(ErrorCode::kUsage, "--stop: not UTF-8");
  }
  return {};
}

// Call this after read_prompt_texts().
Status check_texts(const RunOptions& o) {
  const std::pair<std::string, const std::string&> texts[] = {
      {"--system", o.system},
      {"--chat", o.chat},
      {o.prompt_file.empty() ? "--prompt" : printable(o.prompt_file), o.prompt}};
  for (const auto& [name, text] : texts) {
    if (!utf8::is_valid(text)) return fail(ErrorCode::kUsage, fmt::format("{}: not UTF-8", name));
  }
  return {};
}

Status check_prompt(const RunOptions& o) {
  const std::pair<const char*, bool> prompts[] = {
      {"--prompt", !o.prompt.empty()},     {"--prompt-file", !o.prompt_file.empty()},
      {"--prompts", !o.prompts.empty()},   {"--chat", !o.chat.empty()},
      {"--messages", !o.messages.empty()}, {"--tokens", !o.tokens.empty()},
      {"--interactive", o.interactive}};
  std::vector<const char*> given;
  for (const auto& [name, is_given] : prompts) {
    if (is_given) given.push_back(name);
  }
  if (given.empty()) {
    struct stat info {};
    if (!o.bundle.empty() && ::stat(o.bundle.c_str(), &info) != 0) {
      return os_error(o.bundle, "cannot open", errno);
    }
    return fail(ErrorCode::kUsage,
                "one of --prompt, --prompt-file, --prompts, --chat, --messages, --tokens and "
                "--interactive is required, and not empty");
  }
  if (given.size() > 1) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} and {}: each gives the prompt; give one of them",
                            fmt::join(given.begin(), given.end() - 1, ", "), given.back()));
  }
  if (!o.system.empty() && o.chat.empty() && !o.interactive && o.prompts.empty()) {
    return fail(ErrorCode::kUsage, "--system is for --chat, --prompts and --interactive");
  }
  FERRY_RETURN_IF_ERROR(check_stops(o));
  if (!o.images.empty() && !o.tokens.empty()) {
    return fail(ErrorCode::kUsage, "--image needs a prompt of text, not --tokens");
  }
  if (!o.images.empty() && !o.prompts.empty()) {
    return fail(ErrorCode::kUsage, "--prompts does not take --image");
  }
  if (!o.sounds.empty() && (!o.tokens.empty() || !o.prompts.empty())) {
    return fail(ErrorCode::kUsage, "--audio needs --prompt, --chat, --messages or --interactive");
  }
  if (!o.videos.empty() && (!o.tokens.empty() || !o.prompts.empty())) {
    return fail(ErrorCode::kUsage, "--video needs --prompt, --chat, --messages or --interactive");
  }
  if (!o.videos.empty() && !o.video_fps) {
    return fail(ErrorCode::kUsage, "--video needs --video-fps, the frames of a second");
  }
  if (o.video_fps && o.videos.empty() && !o.interactive) {
    return fail(ErrorCode::kUsage, "--video-fps is for --video");
  }
  if (o.tokens.empty()) return {};
  const auto ids = parse_numbers("--tokens", o.tokens, kTokensExpected);
  return ids ? Status() : Failure(ids.error());
}

// Several sequences at a time are decoded token by token.
Status check_parallel(const RunOptions& o) {
  if (!o.parallel) return {};
  constexpr auto kMost = static_cast<int64_t>(runner::kMostSequences);
  if (o.prompts.empty()) return fail(ErrorCode::kUsage, "--parallel is for --prompts");
  if (*o.parallel < 1 || *o.parallel > kMost) {
    return fail(ErrorCode::kUsage,
                fmt::format("--parallel {}: expected 1 to {}", *o.parallel, kMost));
  }
  if (o.lookup) return fail(ErrorCode::kUsage, "--parallel does not take --lookup");
  if (!o.draft.empty()) return fail(ErrorCode::kUsage, "--parallel does not take --draft");
  if (!o.mode.empty()) return fail(ErrorCode::kUsage, "--parallel does not take --mode");
  return {};
}

Status check_run(const RunOptions& o) {
  FERRY_RETURN_IF_ERROR(check_prompt(o));
  FERRY_RETURN_IF_ERROR(check_parallel(o));
  if (o.interactive) FERRY_RETURN_IF_ERROR(check_several(o, "--interactive"));
  if (!o.prompts.empty()) FERRY_RETURN_IF_ERROR(check_several(o, "--prompts"));
  if (o.max_new && *o.max_new < 1 && *o.max_new != -1) {
    return fail(ErrorCode::kUsage, "--max-new must be at least 1, or -1 for no limit");
  }
  FERRY_RETURN_IF_ERROR(check_sampling(o));
  FERRY_RETURN_IF_ERROR(check_state(o));
  FERRY_RETURN_IF_ERROR(check_new_file("--dump-logits", o.dump_logits, o.bundle));
  FERRY_RETURN_IF_ERROR(check_new_file("--profile", o.profile, o.bundle));
  return check_new_file("--stats-json", o.stats_json, o.bundle);
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

// Prints a note if options of sampling are given that have no effect at temperature 0.
void note_greedy(Context& context, const RunOptions& o, const runner::SamplingOptions& settled) {
  if (settled.temperature != 0) return;
  const runner::SamplingOptions usual;
  const std::pair<const char*, bool> drawing[] = {
      {"--top-k", o.top_k.value_or(usual.top_k) != usual.top_k},
      {"--top-p", o.top_p.value_or(usual.top_p) != usual.top_p},
      {"--min-p", o.min_p.value_or(usual.min_p) != usual.min_p}};
  std::vector<const char*> given;
  for (const auto& [name, is_given] : drawing) {
    if (is_given) given.push_back(name);
  }
  if (given.empty()) return;
  context.note(
      fmt::format("{}: no effect at temperature 0, where the likeliest token is taken; "
                  "--temperature 1 draws",
                  fmt::join(given, ", ")));
}

// -- the verb

// Reads the file of --thresholds, and checks that a run with these options measures what they
// limit.
Result<std::optional<report::Thresholds>> load_thresholds(const RunOptions& options) {
  if (options.thresholds.empty()) return std::optional<report::Thresholds>();
  auto thresholds = FERRY_TRY(report::Thresholds::load(options.thresholds));
  if (thresholds.needs_text() && !options.tokens.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("{}: expect_text needs a prompt of text",
                                               printable(options.thresholds)));
  }
  return std::optional(std::move(thresholds));
}

Status write_outputs(const Generation& g, const RunOptions& options) {
  if (!options.dump_logits.empty()) FERRY_RETURN_IF_ERROR(dump_logits(g, options.dump_logits));
  if (!options.stats_json.empty()) FERRY_RETURN_IF_ERROR(write_stats(g, options.stats_json));
  if (!options.profile.empty()) FERRY_RETURN_IF_ERROR(write_profile(g, options.profile));
  return {};
}

// Answers the only prompt.
Result<int> answer_one(Context& context, const RunOptions& options,
                       const std::optional<report::Thresholds>& thresholds,
                       const packer::Bundle& bundle, PromptReader& prompts,
                       runner::Decoder& decoder, const AnswerLimits& limits, Generation g) {
  g.stats.inference_start = g.stats.load_end;
  Prompt prompt = FERRY_TRY(prompts.read(options));
  for (size_t i = 0; i < prompts.sounds(); ++i) {
    const std::string note = prompts.cut_note(i);
    if (!note.empty()) context.note(note);
  }
  if (!prompt.rows.empty()) {
    // The tokens say nothing about the pixels.
    if (!options.save_state.empty() || !options.load_state.empty()) {
      return fail(ErrorCode::kUsage,
                  "--save-state and --load-state take neither images nor sounds");
    }
    FERRY_RETURN_IF_ERROR(decoder.set_image_rows(prompt.rows));
  }
  if (!prompt.source.empty()) FERRY_RETURN_IF_ERROR(decoder.set_source(prompt.source));
  g.prompt = std::move(prompt.ids);
  g.max_new = limits.of(std::ssize(g.prompt), !options.chat.empty() || !options.messages.empty());
  const packer::Manifest& manifest = bundle.manifest();
  StateFiles states(options, bundle);
  FERRY_RETURN_IF_ERROR(states.load(decoder, g));
  AnswerOutput output(prompts.tokenizer(), options.stops, printer(context));
  g.sampling.rules.most = g.max_new;
  runner::Sampler sampler = FERRY_TRY(runner::Sampler::make(g.sampling));
  g = FERRY_TRY(generate(decoder, manifest, options, sampler, output, std::move(g)));
  FERRY_RETURN_IF_ERROR(write_outputs(g, options));
  FERRY_RETURN_IF_ERROR(states.save(decoder, g));
  if (thresholds && g.stop != kStopInterrupted) {
    g.judgements = thresholds->judge(g.stats, manifest, g.text);
  }
  print_result(context, g, prompts.tokenizer() != nullptr, options.stats);
  return conclude(context, g);
}

// Returns the options by which the PromptReader is opened.
RunOptions reading(const RunOptions& options, const std::vector<PromptLine>& lines) {
  RunOptions reading = options;
  if (!lines.empty()) require(lines, reading);
  return reading;
}

Result<int> run_bundle(Context& context, RunOptions options) {
  FERRY_RETURN_IF_ERROR(check_run(options));
  runner::DecodeOptions decode = FERRY_TRY(decode_options(options));
  FERRY_RETURN_IF_ERROR(read_prompt_texts(options));
  FERRY_RETURN_IF_ERROR(check_texts(options));
  std::vector<PromptLine> lines;
  if (!options.prompts.empty()) lines = FERRY_TRY(read_prompt_lines(options));
  const auto thresholds = FERRY_TRY(load_thresholds(options));
  runner::Profile profile;
  const runner::KvBits bits = FERRY_TRY(kv_bits(options.kv_bits));
  const runner::MethodOptions method = {.own_bf16 = !options.exact,
                                        .kv_bits = bits,
                                        .memory = FERRY_TRY(memory_limit(options.memory)),
                                        .profile = options.profile.empty() ? nullptr : &profile};
  Generation g;
  g.profile = method.profile;
  g.bundle = options.bundle.empty() ? options.loose.text_decoder : options.bundle;
  g.stats.load_start = g.clock.now();
  const packer::Bundle opened =
      FERRY_TRY(open_bundle({options.bundle, options.config, options.mmproj, !options.skip_digests,
                             options.exact, options.lookup.has_value() || !options.draft.empty(),
                             !options.ignore_eos, context.progress("checking digests")},
                            options.loose, context.pool()));
  const packer::Bundle bundle = FERRY_TRY(opened.with_adapter(options.adapter));
  g.adapter = options.adapter;
  if (thresholds) FERRY_RETURN_IF_ERROR(thresholds->check_components(bundle.manifest()));
  const RunDefaults settled = FERRY_TRY(settle(options, bundle));
  g.sampling = settled.sampling;
  note_greedy(context, options, g.sampling);
  PromptReader prompts =
      FERRY_TRY(PromptReader::open(bundle, reading(options, lines), context.pool(), method));
  const PromptRun run = {options, lines, bundle.manifest(), prompts, settled.limits, g};
  if (options.parallel) {
    runner::DecoderGroup group = FERRY_TRY(runner::DecoderGroup::load(
        bundle, context.pool(), method, std::min<size_t>(lines.size(), *options.parallel)));
    g.stats.load_end = g.clock.now();
    return run_prompts(context, run, group);
  }
  std::optional<packer::Bundle> draft;
  if (!options.draft.empty()) {
    draft = FERRY_TRY(open_bundle(
        {.directory = options.draft,
         .check_digests = !options.skip_digests || conversion::is_gguf_file(options.draft),
         .needs_eos = false,
         .progress = context.progress("checking digests")},
        {}, context.pool()));
    decode.draft = &*draft;
  }
  AdapterDecoder decoder = FERRY_TRY(AdapterDecoder::load(bundle, context.pool(), method, decode));
  g.stats.load_end = g.clock.now();
  if (!lines.empty()) return run_prompts(context, run, decoder);
  if (options.interactive) {
    runner::Sampler sampler = FERRY_TRY(runner::Sampler::make(g.sampling));
    return run_chat(context, options, prompts, decoder, sampler, settled.limits, std::move(g));
  }
  return answer_one(context, options, thresholds, bundle, prompts, decoder.decoder(),
                    settled.limits, std::move(g));
}

}  // namespace

void add_run(CommandLine& line) {
  auto o = std::make_shared<RunOptions>();
  Verb verb = line.verb("run", "Generate text or tokens with a bundle");
  verb.optional_positional("BUNDLE", o->bundle, "Bundle directory, or GGUF file").finds_models();
  add_loose_options(verb, "to run", o->loose);
  verb.option("--prompt", o->prompt,
              "Prompt as text, for the bundle's tokenizer; - reads standard input")
      .option("--prompt-file", o->prompt_file, "File with the prompt as text")
      .option(
          "--prompts FILE", o->prompts,
          "File with a prompt in each line: text, a JSON string, or an object with prompt, chat, "
          "messages or tokens, and where wanted adapter; - reads standard input. The model is "
          "loaded once")
      .option("--parallel", o->parallel,
              "Answer up to N prompts of --prompts at a time, which takes the memory of N caches "
              "and less time; the answers are the same. For stateful bundles and GGUF files")
      .option("--chat", o->chat,
              "Message of a user, for the bundle's chat template; - reads standard input")
      .option("--system", o->system, "System message before that of --chat or --interactive")
      .option("--messages", o->messages,
              "JSON file: a chat, {\"messages\": [...], \"add_generation_prompt\": bool}, for the "
              "bundle's chat template; - reads standard input")
      .flag("--interactive", o->interactive,
            "A chat: every line of standard input is a message; /image FILE adds an image to the "
            "next one, /audio FILE a sound, /video FOLDER a video, /adapter NAME chooses another "
            "adapter, /quit ends")
      .option("--adapter NAME", o->adapter,
              "Adapter of the bundle to run it with (convert --adapters, adapter add)")
      .option("--image", o->images,
              "Image files for a prompt of text, in order; placeholders in the text say where, "
              "else they come first. With --interactive those of the first message")
      .option("--audio", o->sounds,
              "Sound files, WAV or FLAC, before the text of the prompt, for a language model that "
              "hears (Voxtral, Gemma 4). With --interactive those of the first message")
      .option(
          "--video FOLDER", o->videos,
          "Videos for a prompt of text, in order, each a folder with its frames as pictures, by "
          "name. With --interactive those of the first message")
      .option("--video-fps N", o->video_fps, "How many frames of --video a second has")
      .flag("--pan-and-scan", o->pan_and_scan,
            "Gemma 3: parts of a long image too, as the processor's do_pan_and_scan")
      .option("--tokens", o->tokens, "Prompt as token ids: 1,2,3")
      .option("--max-new", o->max_new,
              "Tokens to generate at most; -1: until an end token or the end of the context. "
              "Default: that of generation_config.json, else -1 for chats and 256 for others")
      .option("--stop", o->stops,
              "Text that ends the answer, which ends before it; may be repeated")
      .option("--repetition-penalty", o->repetition_penalty,
              "Divides positive logits of tokens of the prompt and the answer, multiplies negative "
              "ones; 1: none")
      .flag("--greedy", o->greedy,
            "Always the likeliest token, whatever generation_config.json says about sampling")
      .option("--temperature", o->temperature,
              "0: always the likeliest token. Default of this and the next three: "
              "generation_config.json, where it has do_sample; else 0")
      .option("--top-k", o->top_k, "Sample from the K likeliest tokens; 0: from all")
      .option("--top-p", o->top_p,
              "Sample from the likeliest tokens that together have this probability")
      .option("--min-p", o->min_p,
              "Sample from tokens with at least this share of the likeliest one's probability")
      .option("--seed", o->seed,
              "Of the sampler, without effect at temperature 0, and of the guesses of lookahead, "
              "which have no effect on the answer; default: drawn, and told by --stats and --json")
      .option("--mode", o->mode,
              "How a static bundle decodes: kv (token by token), hybrid (prompts in chunks, the "
              "default) or lookahead (the same, and several tokens from one call)")
      .option("--lookahead", o->lookahead,
              "Of --mode lookahead: N,W,G, the tokens of an n-gram, the window, and the n-grams "
              "that are kept for each token; default: 3,2,2")
      .option(
          "--lookup", o->lookup,
          "Guess up to N next tokens from the same words earlier in the text, and check them in "
          "one call; the answer is the same. For GGUF files, and stateful bundles with --logits "
          "all")
      .option("--draft BUNDLE", o->draft,
              "Guess the next tokens with a smaller model of the same tokenizer, a bundle or GGUF "
              "file, and check them in one call; the answer is the same. As for --lookup")
      .option("--save-state FILE", o->save_state,
              "Write the tokens that were run and their caches to FILE, which is replaced, for "
              "--load-state. For stateful bundles and GGUF files")
      .option("--load-state FILE", o->load_state,
              "Do not run the tokens of the prompt again that it begins with and that this state "
              "has; the state of another bundle is refused")
      .option("--dump-logits", o->dump_logits,
              "New safetensors file for the logits that each token was chosen from")
      .flag("--stats", o->stats,
            "Print all statistics, with the lines of ExecuTorch's runners, instead of one line")
      .option("--stats-json", o->stats_json,
              "New JSON file for the statistics, with the keys of ExecuTorch's runners")
      .option("--profile", o->profile,
              "New file for where the time went, by operator and weight: a page with a flame graph "
              "if its name ends with .html, else folded stacks")
      .option("--thresholds", o->thresholds,
              "JSON file of bounds on rates, times, memory, file sizes and text; exit code 1 where "
              "one is missed")
      .option("--kv-bits N", o->kv_bits,
              "Hold keys and values in 8 or 4 bits, or keys in 8 and values in 4 with 8,4: about "
              "1/4 or 1/7 of the memory of f32, for longer contexts. Loses precision, in 4 bits "
              "notably. For stateful bundles and GGUF files; default: as the program states")
      .option("--memory", o->memory,
              "Bytes that planned memory may have; default: what the system has available")
      .option("--config FILE", o->config,
              "Of a GGUF file: config.json for what its metadata do not tell, as for convert")
      .option("--mmproj FILE", o->mmproj,
              "Of a GGUF file: the projector with its vision encoder, as for convert")
      .flag("--ignore-eos", o->ignore_eos, "Do not stop at the model's end tokens")
      .flag("--exact", o->exact,
            "Compute as verify does: matrices of a GGUF file as f32, instead of multiplying its "
            "blocks with activations of 8 bits, which takes the memory of f32; products of bf16 "
            "in f32, instead of the processor's own. Slower")
      .flag("--skip-digests", o->skip_digests,
            "Trust the bundle's bytes: load without hashing them")
      .example("ferry run bundle/ --chat 'Why is the sky blue?' --temperature 0.7",
               "Text on stdout as it comes; a line of statistics on stderr.")
      .example("ferry run bundle/ --prompts questions.txt --json > answers.json",
               "Answers every line of a file; the model is loaded once.")
      .example("ferry run bundle/ --tokens 1,2,3 --max-new 16 --json", "Without a tokenizer.")
      .example("ferry run model.gguf --chat Hello", "Through a bundle in memory.")
      .exit_codes(
          {{"1", "a threshold is missed, or a message of a chat does not fit the context"},
           {"6",
            "a file of --dump-logits or --stats-json exists, or that of --save-state is no state"}})
      .action([o](Context& context) { return run_bundle(context, *o); });
}

}  // namespace ferry::cli
