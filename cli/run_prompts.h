// Implements `ferry run --prompts`: many prompts, each answered alone, by programs that are loaded
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/context.h"
#include "cli/run_adapters.h"
#include "cli/run_options.h"
#include "cli/run_prompt.h"
#include "cli/run_report.h"
#include "core/result.h"
#include "packer/manifest.h"
#include "runner/decoder_group.h"

namespace ferry::cli {

struct PromptLine {
  enum class Kind { kText, kChat, kMessages, kTokens };
  size_t line = 0;  // from 1
  Kind kind = Kind::kText;
  std::string text;             // the prompt, the user's message, or the messages as JSON
  std::vector<int64_t> tokens;  // of kTokens
  std::optional<std::string> adapter = {};  // name; nullopt: that of --adapter

  bool is_chat() const { return kind == Kind::kChat || kind == Kind::kMessages; }
};

// Parses a file of prompts, one a line: text, or a JSON string, or a JSON object with one of the
// members `prompt`, `chat`, `messages` and `tokens`, and where wanted `adapter`. Lines without text
// are left out. Returns kBadInput, with `name` and the line, for anything else, and if there is no
// prompt.
Result<std::vector<PromptLine>> parse_prompts(std::string_view file, const std::string& name);

// Reads the file of --prompts, or standard input for "-".
Result<std::vector<PromptLine>> read_prompt_lines(const RunOptions& options);

// Sets --prompt, --chat or --tokens of `options` to what PromptReader::open() needs for these
// lines.
void require(const std::vector<PromptLine>& lines, RunOptions& options);

struct PromptRun {
  const RunOptions& options;
  const std::vector<PromptLine>& lines;
  const packer::Manifest& manifest;
  PromptReader& prompts;
  const AnswerLimits& limits;
  // The clock, the moments of loading, and how tokens are chosen. Every answer begins with the
  // seed, so that it is the one that the prompt gets alone.
  const Generation& loaded;
};

// Reads all prompts before it answers the first one. A line may choose another adapter.
Result<int> run_prompts(Context& context, const PromptRun& run, AdapterDecoder& adapted);
// Answers as many prompts at a time as the group has sequences, all with the adapter of --adapter.
// The answers are the same.
Result<int> run_prompts(Context& context, const PromptRun& run, runner::DecoderGroup& group);

}  // namespace ferry::cli
