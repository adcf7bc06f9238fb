// The output of `ferry convert` about a conversion: where every key went, the files, the memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "conversion/export.h"
#include "packer/weight_files.h"
#include "plan/conversion.h"

namespace ferry::cli {

// The outcome of a planned conversion.
struct ConversionOutcome {
  std::string source = {};              // as given
  std::string path = {};                // of the bundle; empty where none was asked for
  std::string dtype = {};               // as given
  std::vector<std::string> notes = {};  // for people, in their order
  double seconds = 0;
  bool up_to_date = false;  // nothing was written: the bundle was there
  // Weights that are not finite; none where no weight was read, as in a dry run.
  std::optional<std::vector<packer::NonFiniteWeight>> non_finite = std::nullopt;
};

// The outcome of a planned conversion to files of another format.
struct ExportOutcome : ConversionOutcome {
  std::string format = {};                      // name of the format
  std::vector<packer::WrittenFile> files = {};  // empty where none was written
};

// The result of `convert --json`, with or without --dry-run, also where keys do not fit.
std::string conversion_json(const plan::Conversion& conversion, const ConversionOutcome& outcome);

// A line for each weight that is not finite, at most a few.
std::vector<std::string> non_finite_notes(const std::vector<packer::NonFiniteWeight>& weights,
                                          const std::string& source);

// One line that says how many keys of the config nothing has used; for at least one.
std::string unused_keys_note(const std::vector<std::string>& keys);

// For people. With `table` every source key has a line: rule, targets, and what is done to it on
// the way; without it only those that are dropped.
std::string conversion_text(const plan::Conversion& conversion, bool table);

// The result and the lines of a conversion to files of another format.
std::string export_json(const conversion::Export& exported, const ExportOutcome& outcome);
std::string export_text(const conversion::Export& exported, bool table);

}  // namespace ferry::cli
