#include "proof/bundle_perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numbers>
#include <utility>

#include "core/file.h"
#include "core/text.h"
#include "plan/bundle_options.h"
#include "prompt/image_input.h"
#include "proof/bundle_proof.h"
#include "proof/mode_proof.h"
#include "proof/perplexity.h"
#include "proof/prompts.h"
#include "proof/reference_check.h"
#include "runner/decoder.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::proof {
namespace {

constexpr uint64_t kMaxCorpusBytes = uint64_t{256} << 20;

Result<std::vector<int64_t>> encode(const packer::Bundle& bundle, const std::string& text,
                                    const std::string& path) {
  if (text::find_tokenizer_file(prompt::files_of(bundle)).empty()) {
    return fail_field(ErrorCode::kUsage, "text",
                      fmt::format(": this bundle has no {}, which encodes it: {}",
                                  text::kTokenizerFile, printable(bundle.path())));
  }
  text::Tokenizer tokenizer =
      FERRY_TRY(text::load_tokenizer(bundle.text_directory(), prompt::reader_of(bundle)));
  auto ids = tokenizer.encode(text, /*add_special=*/true);
  if (ids) return ids;
  return fail(ids.error().code, fmt::format("{}: {}", printable(path), ids.error().message));
}

// Reads the token sequences and fills `report` with the facts about the file.
Result<Prompts> read_sequences(const packer::Bundle& bundle, const PerplexityOptions& options,
                               PerplexityReport& report) {
  Prompts sequences;
  if (options.text) {
    const std::string text = FERRY_TRY(read_text_file(options.file, kMaxCorpusBytes));
    report.text_bytes = text.size();
    sequences.push_back(FERRY_TRY(encode(bundle, text, options.file)));
  } else {
    auto read = read_prompts(options.file);
    if (!read && read.error().code == ErrorCode::kBadInput) {
      return Failure(Error{.code = ErrorCode::kBadInput,
                           .message = read.error().message + "; for a file of text, give text",
                           .field = "text"});
    }
    sequences = FERRY_TRY(std::move(read));
  }
  report.sequences = sequences.size();
  for (const std::vector<int64_t>& ids : sequences) report.tokens += std::ssize(ids);
  return sequences;
}

Status check_ids(const Prompts& sequences, int64_t vocab_size, const std::string& path) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (const int64_t id : sequences[i]) {
      if (id >= 0 && id < vocab_size) continue;
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: sequence {}: token {} is outside of the vocabulary of {}",
                              printable(path), i + 1, id, vocab_size));
    }
  }
  return {};
}

// `longest` is the number of tokens that a sequence can have in every model of the comparison.
Result<WindowOptions> window_options(const PerplexityOptions& options, int64_t longest) {
  const int64_t window = options.window.value_or(longest);
  if (window < 2 || window > longest) {
    return fail_field(
        ErrorCode::kUsage, "window",
        fmt::format(" {}: must be from 2 to {}, the longest sequence", window, longest));
  }
  const int64_t stride = options.stride.value_or(window / 2);
  if (stride < 1 || stride > window) {
    return fail_field(ErrorCode::kUsage, "stride",
                      fmt::format(" {}: must be from 1 to the window, {}", stride, window));
  }
  return WindowOptions{window, stride};
}

// A bundle that is ready to run the windows.
struct Opened {
  packer::Bundle bundle;
  std::unique_ptr<runner::Decoder> decoder;

  static Result<Opened> load(const packer::Bundle& bundle, const runner::MethodOptions& method,
                             std::optional<runner::DecodeMode> mode, ThreadPool& pool) {
    const runner::DecodeOptions decode =
        mode ? decode_options_of(bundle.manifest(), *mode) : runner::DecodeOptions{};
    auto decoder = FERRY_TRY(runner::load_decoder(bundle, pool, method, decode));
    return Opened{bundle, std::move(decoder)};
  }
  WindowReader reader(const WindowedTokens& tokens) const {
    return {*decoder, bundle.manifest(), tokens, bundle.path()};
  }
  int64_t longest() const {
    return std::min(longest_sequence(bundle.manifest()), decoder->capacity());
  }
};

void keep(PerplexityReport& report, ComparedPerplexity compared, std::string other) {
  report.perplexity = compared.perplexity;
  report.comparison = std::move(compared.comparison);
  report.other = std::move(other);
}

Status compare_with_checkpoint(const packer::Bundle& bundle, const CheckpointOptions& given,
                               const Progress& progress, WindowReader& reader,
                               const WindowedTokens& tokens, ThreadPool& pool,
                               PerplexityReport& report) {
  const int64_t vocab = bundle.manifest().vocab_size;
  const plan::ConvertOptions options =
      FERRY_TRY(plan::options_of(bundle, {.path = given.checkpoint,
                                          .config = given.config,
                                          .lora = given.lora,
                                          .mmproj = given.mmproj}));
  const plan::Conversion conversion =
      FERRY_TRY(plan::plan_f32_layers(bundle, options, rows_of_part(vocab), pool));
  const std::string name = given.checkpoint + " in f32";
  PerplexityMeter meter(reader, tokens, vocab, progress, name);
  FERRY_RETURN_IF_ERROR(run_f32_windows(conversion, tokens, name, pool,
                                        [&](size_t i, int64_t at, std::span<const float> rows) {
                                          return meter.add_beside(i, at, rows);
                                        }));
  FERRY_RETURN_IF_ERROR(conversion.mapped.source->check_unchanged());
  keep(report, std::move(meter).result(), name);
  return {};
}

}  // namespace

std::optional<double> PerplexityReport::bits_per_byte() const {
  const bool all = windows.stride < windows.window;
  if (!text_bytes || *text_bytes == 0 || !all) return std::nullopt;
  return perplexity.nll.sum() / std::numbers::ln2 / static_cast<double>(*text_bytes);
}

bool PerplexityReport::within_limits() const {
  return std::ranges::all_of(limits, &CheckedLimit::within);
}

Result<PerplexityReport> measure_perplexity(const packer::Bundle& bundle,
                                            const PerplexityOptions& options,
                                            const BundleProofOptions& beside, ThreadPool& pool) {
  if (options.limits.any() && beside.against.empty() && beside.checkpoint.empty()) {
    return fail(ErrorCode::kUsage, "limits need another model to compare with");
  }
  PerplexityReport report;
  WindowedTokens tokens;
  const int64_t vocab = bundle.manifest().vocab_size;
  tokens.sequences = FERRY_TRY(read_sequences(bundle, options, report));
  FERRY_RETURN_IF_ERROR(check_ids(tokens.sequences, vocab, options.file));
  const Opened ours = FERRY_TRY(Opened::load(
      bundle, {.kv_bits = options.kv_bits, .memory = beside.memory}, beside.mode, pool));
  std::optional<Opened> other;
  if (!beside.against.empty()) {
    const packer::Bundle opened =
        FERRY_TRY(packer::Bundle::open(beside.against, /*check_digests=*/true, pool));
    FERRY_RETURN_IF_ERROR(check_same_model(bundle, opened));
    other = FERRY_TRY(Opened::load(opened, {.memory = beside.memory}, std::nullopt, pool));
  }
  const int64_t longest = other ? std::min(ours.longest(), other->longest()) : ours.longest();
  report.windows = FERRY_TRY(window_options(options, longest));
  tokens.windows = windows_of(tokens.sequences, report.windows);
  report.window_count = tokens.windows.size();
  if (tokens.windows.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("{}: no sequence has two tokens, so that there is "
                                               "nothing to predict",
                                               printable(options.file)));
  }
  report.kv_bits = options.kv_bits;
  report.token_by_token = !gives_all_logits(bundle.manifest());
  WindowReader reader = ours.reader(tokens);
  if (other) {
    WindowReader theirs = other->reader(tokens);
    keep(report, FERRY_TRY(compare_perplexity(reader, theirs, tokens, vocab, options.progress)),
         beside.against);
  } else if (!beside.checkpoint.empty()) {
    FERRY_RETURN_IF_ERROR(
        compare_with_checkpoint(bundle, beside, options.progress, reader, tokens, pool, report));
  } else {
    report.perplexity = FERRY_TRY(measure_perplexity(reader, tokens, vocab, options.progress));
  }
  if (report.comparison) report.limits = check_limits(*report.comparison, options.limits);
  return report;
}

}  // namespace ferry::proof
