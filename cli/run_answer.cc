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

Result<std::optional<int64_t>> AnswerMaker::begin() {
  const auto kept = static_cast<size_t>(g_.kept_tokens.value_or(0));
  before_ = decoder_.lookahead_counts();
  if (g_.profile != nullptr) g_.profile->begin("prompt");
  const std::span<const float> logits =
      FERRY_TRY(decoder_.forward(std::span(g_.prompt).subspan(kept)));
  if (g_.profile != nullptr) g_.profile->begin("new tokens");
  const std::optional<int64_t> token = FERRY_TRY(choose(logits));
  g_.stats.prompt_peak_rss = report::peak_rss();
  return token;
}

Result<std::optional<int64_t>> AnswerMaker::choose(std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(manifest_.vocab_size);
  if (logits.size() < vocab) {
    return bad_input("the bundle's logits are shorter than its vocabulary");
  }
  const std::span<const float> last = logits.last(vocab);
  const auto sampling_start = g_.clock.now();
  const Result<int64_t> token = sampler_.sample(last, g_.prompt, g_.tokens);
  if (!token) return Failure(in_bundle(options_, token.error()));
  g_.stats.sampling += g_.clock.now() - sampling_start;
  g_.tokens.push_back(*token);
  if (g_.tokens.size() == 1) g_.stats.prompt_eval_end = g_.clock.now();
  if (!options_.dump_logits.empty()) g_.logits.insert(g_.logits.end(), last.begin(), last.end());
  const bool is_end = !options_.ignore_eos && std::ranges::count(manifest_.eos_ids, *token) > 0;
  FERRY_RETURN_IF_ERROR(output_.push(*token, /*is_text=*/!is_end));
  g_.stop = is_end ? kStopEos : reason_to_stop(g_, decoder_, output_);
  return g_.stop.empty() ? std::optional(*token) : std::nullopt;
}

Result<Generation> AnswerMaker::end() {
  g_.stats.inference_end = g_.clock.now();
  g_.stats.peak_rss = report::peak_rss();
  g_.stats.prompt_tokens = std::ssize(g_.prompt) - g_.kept_tokens.value_or(0);
  g_.stats.generated_tokens = std::ssize(g_.tokens) - 1;
  g_.lookahead = counts_since(before_, decoder_.lookahead_counts());
  g_.text = FERRY_TRY(output_.finish());
  g_.stop_text = output_.stopped_by();
  return std::move(g_);
}

Result<Generation> generate(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const RunOptions& options, runner::Sampler& sampler,
                            AnswerOutput& output, Generation g) {
  AnswerMaker answer(decoder, manifest, options, sampler, output, std::move(g));
  const auto choose = [&](std::span<const float> logits) { return answer.choose(logits); };
  std::optional<int64_t> token = FERRY_TRY(answer.begin());
  while (token) {
    auto next = decoder.advance(*token, choose);
    if (!next && next.error().code == ErrorCode::kInterrupted) {
      answer.interrupt();
      break;
    }
    token = FERRY_TRY(std::move(next));
  }
  return answer.end();
}

}  // namespace ferry::cli
