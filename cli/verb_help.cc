// ferry help and ferry completion print help, man pages and completion scripts.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/completion.h"
#include "cli/help_text.h"
#include "cli/suggestion.h"
#include "cli/verbs.h"
#include "core/file.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "dialects/support_matrix.h"

namespace ferry::cli {
namespace {

struct HelpLine {
  bool families = false;
  std::vector<std::string> verb;
  bool man = false;
  std::string man_pages;  // directory to write pages to
};

// Prints the text, or with --json a document with the text.
int give(Context& context, const std::string& text) {
  if (!context.json) {
    context.print(text);
  } else {
    JsonWriter json;
    context.print_result(json.begin_object().member("text", text).end_object().take(), 0);
  }
  return 0;
}

Status write_page(const LineSpec& line, const VerbSpec* verb, const std::string& directory) {
  const std::string text = man_page(line, verb);
  const std::string path = fmt::format("{}/{}.1", directory, man_name(verb));
  OutputFile file = FERRY_TRY(OutputFile::create(path, text.size()));
  FERRY_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(text))));
  return file.sync_and_close();
}

Status write_pages(const LineSpec& line, const std::string& directory) {
  FERRY_RETURN_IF_ERROR(write_page(line, nullptr, directory));
  for (const VerbSpec* verb : all_verbs(line)) {
    FERRY_RETURN_IF_ERROR(write_page(line, verb, directory));
  }
  return {};
}

Result<int> help(Context& context, const LineSpec& line, const HelpLine& o) {
  if (!o.man_pages.empty()) {
    FERRY_RETURN_IF_ERROR(write_pages(line, o.man_pages));
    return give(context, {});
  }
  const VerbSpec* verb = find_verb(line, o.verb);
  if (verb == nullptr && !o.verb.empty()) {
    std::vector<std::string> names;
    for (const VerbSpec& known : line.verbs) names.push_back(known.name);
    return fail(ErrorCode::kUsage, fmt::format("there is no verb {}{}",
                                               quoted(fmt::format("{}", fmt::join(o.verb, " "))),
                                               suggestion(o.verb.front(), names)));
  }
  if (o.families) return give(context, converters::support_matrix());
  if (o.man) return give(context, man_page(line, verb));
  return give(context, verb == nullptr ? help_text(line) : help_text(line, *verb));
}

Result<int> completion(Context& context, const LineSpec& line, const std::string& shell) {
  return give(context, shell == "bash"  ? bash_completion(line)
                       : shell == "zsh" ? zsh_completion(line)
                                        : fish_completion(line));
}

}  // namespace

void add_help(CommandLine& line) {
  auto o = std::make_shared<HelpLine>();
  line.verb("help", "Show what the program or a verb does, with examples and exit codes")
      .positionals("VERB", o->verb, "The verb, such as convert")
      .flag("--man", o->man, "As the source of a man page")
      .option("--man-pages DIR", o->man_pages, "Write the man pages of all verbs as new files")
      .flag("--families", o->families, "Model families, as a table of what is read and written")
      .example("ferry help convert", "The same as ferry convert --help.")
      .example("ferry help --man convert | man -l -", "The man page, where it is not installed.")
      .action([o, &spec = line.spec()](Context& context) { return help(context, spec, *o); });
}

void add_completion(CommandLine& line) {
  auto shell = std::make_shared<std::string>();
  line.verb("completion", "Print a script that completes the command line in a shell")
      .positional_choice("SHELL", *shell, {"bash", "zsh", "fish"}, "The shell")
      .description("An installed Ferry has these scripts where the shells find them.")
      .example("source <(ferry completion bash)", "For the bash that is running.")
      .example("ferry completion zsh > ~/.zsh/completions/_ferry",
               "For zsh, where that directory is in fpath.")
      .action([shell, &spec = line.spec()](Context& context) {
        return completion(context, spec, *shell);
      });
}

}  // namespace ferry::cli
