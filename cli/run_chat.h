// ferry run --interactive: a chat, whose messages are the lines of standard input.
#pragma once

#include "cli/context.h"
#include "cli/run_options.h"
#include "cli/run_prompt.h"
#include "cli/run_report.h"
#include "core/result.h"
#include "packer/manifest.h"
#include "runner/decoder.h"
#include "runner/sampler.h"

namespace ferry::cli {

// `loaded` has the clock and the moments of loading. Every turn renders the whole conversation;
// what the decoder has run of it stays, unless the template or the tokenizer made other ids of it.
// Lines that make no sense are refused, and the chat goes on. Returns 1 where a message does not
// fit into the context any more.
Result<int> run_chat(Context& context, const RunOptions& options, const packer::Manifest& manifest,
                     PromptReader& prompts, runner::Decoder& decoder, runner::Sampler& sampler,
                     Generation loaded);

}  // namespace ferry::cli
