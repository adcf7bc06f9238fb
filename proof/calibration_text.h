// read_calibration_text() makes the token sequences that weights are calibrated with.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "plan/conversion.h"
#include "proof/sequences.h"

namespace ferry::proof {

struct CalibrationText {
  Sequences sequences;
  std::string digest;  // "sha256:" and the digest of all ids and pixels, which a manifest records
};

// The text that is in the program: about 31,000 tokens of essays, stories, manuals and code
// (proof/default_text).
std::string_view default_calibration_text();

// The value of `file` that stands for this text.
inline constexpr std::string_view kDefaultCalibration = "default";

// A file of this name has a chat in each line, as ChatTemplate::render() takes it.
inline constexpr std::string_view kChatsSuffix = ".jsonl";

// `file` is kDefaultCalibration, a text file for the checkpoint's tokenizer, or has the token ids
// of a sequence in each line (read_prompts), or chats, which the checkpoint's template renders; to
// templates the day is always 26 July 2024. A text is cut into sequences of 256 tokens, or of the
// context length if that is less; each begins as the tokenizer begins a text. At most 65,536 tokens
// are taken, and whole sequences of token ids. kUsage if the checkpoint has no tokenizer for a
// text, kBadInput for fewer than 64 tokens, for malformed chats and for ids outside of the
// vocabulary. `option` is the one that names the file, for messages.
Result<CalibrationText> read_calibration_text(const plan::ConvertOptions& options,
                                              const std::string& file, ThreadPool& pool,
                                              const std::string& option = "calibrate-weights");

}  // namespace ferry::proof
