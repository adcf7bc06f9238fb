// Declares and checks the options of `ferry convert`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"
#include "conversion/export.h"
#include "core/result.h"
#include "packer/bundle_plan.h"
#include "plan/options.h"
#include "proof/weight_budget.h"
#include "signing/sign_statement.h"

namespace ferry::cli {

struct ConvertLine {
  plan::ConvertOptions convert;
  std::string out;
  std::string to = "bundle";
  std::string calibrate, calibrate_prefill;  // files of prompts
  std::string quantize_budget, quantize_plan;
  std::optional<proof::Budget> budget;         // `quantize_budget` as settle() has read it
  signing::SigningKey key;                     // signs the bundle if it names a key
  std::string part, join;                      // a conversion by several hosts
  std::optional<packer::BundlePart> one_part;  // `part` as settle() has read it
  std::string outtype = "auto", imatrix, name,
              tokenizer_pre;  // only for --to gguf, like the next field
  int64_t max_file_tensors = 0;
  bool dry_run = false, overwrite = false, if_changed = false, resume = false, no_sync = false;

  // The value of an option on the line. settle() sets the fields above from `given`.
  struct Given {
    bool is_given = false;  // for options with one text; `text` may be a default
    bool flag = false;
    std::optional<int64_t> integer;
    int64_t integer_or_default = 0;
    std::string text;
    std::vector<std::string> list;
  };
  std::map<std::string_view, Given> given = {};
};

// Declares all options of the verb.
void add_convert_options(Verb& verb, ConvertLine& line);

// Sets the fields of `line` from the options. Returns kUsage for options that make no sense, alone
// or together.
Status settle(ConvertLine& line);

// Returns the options of an export after settle(); nullopt if the line asks for a bundle.
std::optional<conversion::ExportOptions> export_options(const ConvertLine& line);

}  // namespace ferry::cli
