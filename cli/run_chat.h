// Implements `ferry run --interactive`, a chat whose messages are the lines of standard input.
#pragma once

#include "cli/context.h"
#include "cli/run_adapters.h"
#include "cli/run_options.h"
#include "cli/run_prompt.h"
#include "cli/run_report.h"
#include "core/result.h"
#include "runner/sampler.h"

namespace ferry::cli {

// `loaded` has the clock, the moments of loading and how tokens are chosen. Every turn renders the
// whole conversation. The decoder keeps the ids that it has run, unless the template or tokenizer
// gives other ids for them, or another adapter is chosen, with which the conversation is then run
// from its beginning. A line that makes no sense is refused, and the chat goes on. Returns 1
// when a message does not fit into the context.
Result<int> run_chat(Context& context, const RunOptions& options, PromptReader& prompts,
                     AdapterDecoder& decoder, runner::Sampler& sampler, const AnswerLimits& limits,
                     Generation loaded);

}  // namespace ferry::cli
