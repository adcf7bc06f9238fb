#include "proof/calibration_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/file.h"
#include "core/sha256.h"
#include "core/text.h"
#include "plan/mapped_model.h"
#include "plan/tokenizer_notes.h"
#include "proof/calibration_chats.h"

namespace ferry::proof {
namespace {

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
  const auto begin = std::ranges::search(special, bare).begin();
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
