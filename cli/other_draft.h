// OtherDraft is what a line of another tool says, in no tool's words; add_commands() writes it down
// in Ferry's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/line_spec.h"
#include "cli/other_names.h"

namespace ferry::cli {

// Words of lines without the program's name, such as {"run", "m.gguf", "--max-new", "8"}.
struct MeantLine {
  std::vector<std::vector<std::string>> commands = {};
  std::vector<std::string> left_out = {};  // words that have no equivalent
  std::vector<std::string> notes = {};     // sentences for the user
};

struct OtherDraft {
  std::string verb = {};  // of Ferry
  unsigned tools = 0;     // that the line may be of
  bool is_own = false;    // the line names a verb of Ferry
  std::string source = {}, revision = {}, file = {}, out = {};
  std::vector<std::string> positionals = {};  // beside the source
  std::vector<std::string> options = {};      // words of our options
  std::string dtype = {}, out_type = {}, scheme = {}, embedding = {}, group = {}, bits = {};
  bool quantizes = false;
  std::string prompt = {}, tokenizer = {}, text = {};
  MeantLine meant = {};

  bool is(unsigned some) const { return (tools & some) != 0 && (tools & ~some) == 0; }
  bool has(const std::string& option) const;
};

// Adds the commands to `draft.meant`, and notes.
void add_commands(OtherDraft& draft);

}  // namespace ferry::cli
