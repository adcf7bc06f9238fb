// The prompts of a comparison in the document of a parity report (docs/verifying.md, "Prompts").
#pragma once

#include "cli/token_texts.h"
#include "core/json_writer.h"
#include "proof/parity_report.h"

namespace ferry::cli {

// The member `prompts` of an open object.
void write_prompts(JsonWriter& json, const proof::ParityReport& report, TokenTexts& texts);

}  // namespace ferry::cli
