// Each function declares the options and the action of one verb, and is in verb_NAME.cc.
#pragma once

#include "cli/command_line.h"

namespace ferry::cli {

void add_inspect(CommandLine& line);
void add_audit(CommandLine& line);
void add_convert(CommandLine& line);
void add_imatrix(CommandLine& line);
void add_run(CommandLine& line);
void add_embed(CommandLine& line);
void add_classify(CommandLine& line);
void add_transcribe(CommandLine& line);
void add_tokenize(CommandLine& line);
void add_preprocess(CommandLine& line);
void add_execute(CommandLine& line);
void add_verify(CommandLine& line);
void add_check(CommandLine& line);
void add_batch(CommandLine& line);
void add_sign(CommandLine& line);
void add_diff(CommandLine& line);
void add_apply(CommandLine& line);
void add_adapter(CommandLine& line);
void add_card(CommandLine& line);
void add_help(CommandLine& line);
void add_completion(CommandLine& line);

}  // namespace ferry::cli
