#include "cli/run_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "report/generation_stats.h"

namespace ferry::cli {
namespace {

// Returns the reason why `g` ends with its last token; empty if it goes on. An answer ends when the
// context is full.
std::string_view reason_to_stop(const Generation& g, const runner::Decoder& decoder,
                                const AnswerOutput& output) {
  if (output.stopped_by()) return kStopText;
  if (std::ssize(g.tokens) >= g.max_new) return "max_new";
  if (decoder.position() >= decoder.capacity()) return kStopContext;
  return {};
}

Error in_bundle(const RunOptions& options, Error error) {
  const std::string& file = options.bundle.empty() ? options.loose.text_decoder : options.bundle;
  error.message = fmt::format("{}: {}", printable(file), error.message);
  return error;
}

// Samples the next token from the logits, and adds it to `g` and `output`. Returns nullopt if the
// answer ends with it.
Result<std::optional<int64_t>> choose_token(std::span<const float> logits, Generation& g,
                                            const runner::Decoder& decoder,
                                            const packer::Manifest& manifest,
                                            const RunOptions& options, runner::Sampler& sampler,
                                            AnswerOutput& output) {
  const auto vocab = static_cast<size_t>(manifest.vocab_size);
  if (logits.size() < vocab)
    return bad_input("the bundle's logits are shorter than its vocabulary");
  const std::span<const float> last = logits.last(vocab);
  const auto sampling_start = g.clock.now();
  const Result<int64_t> token = sampler.sample(last, g.prompt, g.tokens);
  if (!token) return Failure(in_bundle(options, token.error()));
  g.stats.sampling += g.clock.now() - sampling_start;
  g.tokens.push_back(*token);
  if (g.tokens.size() == 1) g.stats.prompt_eval_end = g.clock.now();
  if (!options.dump_logits.empty()) g.logits.insert(g.logits.end(), last.begin(), last.end());
  const bool is_end = !options.ignore_eos && std::ranges::count(manifest.eos_ids, *token) > 0;
  FERRY_RETURN_IF_ERROR(output.push(*token, /*is_text=*/!is_end));
  g.stop = is_end ? kStopEos : reason_to_stop(g, decoder, output);
  return g.stop.empty() ? std::optional(*token) : std::nullopt;
}

using MaybeCounts = std::optional<runner::LookaheadCounts>;

// Returns the counts of this answer. The decoder counts from the start of its sequence.
MaybeCounts counts_since(const MaybeCounts& before, MaybeCounts now) {
  if (!before || !now) return now;
  now->generated -= before->generated;
  now->accepted -= before->accepted;
  return now;
}

}  // namespace

AnswerOutput::AnswerOutput(const text::Tokenizer* tokenizer, std::vector<std::string> stops,
                           std::function<void(std::string_view)> print)
    : print_(std::move(print)), stops_(std::move(stops)) {
  if (tokenizer != nullptr) stream_.emplace(*tokenizer);
}

Status AnswerOutput::push(int64_t token, bool is_text) {
  if (stream_) {
    if (is_text) give(stops_.push(FERRY_TRY(stream_->push(token))));
    return {};
  }
  if (print_) print_(fmt::format("{}{}", first_ ? "" : ",", token));
  first_ = false;
  return {};
}

Result<std::string> AnswerOutput::finish() {
  if (!stream_) return std::string();
  give(stops_.push(FERRY_TRY(stream_->finish())));
  give(stops_.finish());
  return std::move(text_);
}

void AnswerOutput::give(std::string_view text) {
  text_ += text;
  if (print_ && !text.empty()) print_(text);
}

std::function<void(std::string_view)> printer(Context& context) {
  return [&context](std::string_view part) {
    if (context.json) return;
    context.print(part);
    context.flush();
  };
}

Result<Generation> generate(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const RunOptions& options, runner::Sampler& sampler,
                            AnswerOutput& output, Generation g) {
  const auto choose = [&](std::span<const float> logits) {
    return choose_token(logits, g, decoder, manifest, options, sampler, output);
  };
  const auto fresh = std::span(g.prompt).subspan(static_cast<size_t>(g.kept_tokens.value_or(0)));
  const MaybeCounts before = decoder.lookahead_counts();
  if (g.profile != nullptr) g.profile->begin("prompt");
  const std::span<const float> logits = FERRY_TRY(decoder.forward(fresh));
  if (g.profile != nullptr) g.profile->begin("new tokens");
  std::optional<int64_t> token = FERRY_TRY(choose(logits));
  g.stats.prompt_peak_rss = report::peak_rss();
  while (token) {
    auto next = decoder.advance(*token, choose);
    if (!next && next.error().code == ErrorCode::kInterrupted) {
      g.stop = kStopInterrupted;
      break;
    }
    token = FERRY_TRY(std::move(next));
  }
  g.stats.inference_end = g.clock.now();
  g.stats.peak_rss = report::peak_rss();
  g.stats.prompt_tokens = std::ssize(fresh);
  g.stats.generated_tokens = std::ssize(g.tokens) - 1;
  g.lookahead = counts_since(before, decoder.lookahead_counts());
  g.text = FERRY_TRY(output.finish());
  g.stop_text = output.stopped_by();
  return g;
}

}  // namespace ferry::cli
