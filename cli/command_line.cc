#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "cli/numbers.h"
#include "core/text.h"
#include "core/version.h"

namespace ferry::cli {
namespace {

constexpr int64_t kMostThreads = 1024;

// Our own readers of numbers: those of CLI11 take octal, and the nearest number that there is.
template <class T, class Value>
CLI::Option* add_number(CLI::App* app, const std::string& name, Value& value,
                        std::optional<T> (*parse)(std::string_view), const char* expected,
                        const std::string& help) {
  const auto store = [name, &value, parse, expected](const CLI::results_t& words) {
    const std::optional<T> number = parse(words.back());
    if (!number) {
      throw CLI::ValidationError(name, fmt::format("{} is not {}", words.back(), expected));
    }
    value = *number;
    return true;
  };
  return app->add_option(name, store, help)->expected(1);
}

template <class Value>
CLI::Option* add_integer(CLI::App* app, const std::string& name, Value& value,
                         const std::string& help) {
  return add_number<int64_t>(app, name, value, parse_integer, "a whole number below 2^63", help)
      ->type_name("INT");
}

template <class Value>
CLI::Option* add_real(CLI::App* app, const std::string& name, Value& value,
                      const std::string& help) {
  return add_number<double>(app, name, value, parse_real, "a finite number", help)
      ->type_name("FLOAT");
}

// " (did you mean --out?)", or nothing where no name is near.
std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 40;
  size_t best_distance = word.size() > kLongest ? 0 : word.size() / 3 + 1;
  std::string best;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(word, name);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = name;
  }
  return best.empty() ? std::string() : fmt::format(" (did you mean {}?)", best);
}

Action print_action(std::string text) {
  return [text = std::move(text)](Context& context) -> Result<int> {
    context.print(text);
    return 0;
  };
}

}  // namespace

Verb& Verb::positional(const std::string& name, std::string& value, const std::string& help) {
  app_->add_option(name, value, help)->required();
  return *this;
}
Verb& Verb::positional(const std::string& name, std::vector<std::string>& value,
                       const std::string& help) {
  app_->add_option(name, value, help)->required();
  return *this;
}
Verb& Verb::optional_positional(const std::string& name, std::string& value,
                                const std::string& help) {
  app_->add_option(name, value, help);
  return *this;
}
Verb& Verb::positionals(const std::string& name, std::vector<std::string>& value,
                        const std::string& help) {
  app_->add_option(name, value, help);
  return *this;
}
Verb& Verb::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
  return *this;
}
Verb& Verb::option(const std::string& name, std::string& value, const std::string& help) {
  app_->add_option(name, value, help)->capture_default_str();
  return *this;
}
Verb& Verb::option(const std::string& name, int64_t& value, const std::string& help) {
  add_integer(app_, name, value, help)->default_str(fmt::format("{}", value));
  return *this;
}
Verb& Verb::option(const std::string& name, double& value, const std::string& help) {
  add_real(app_, name, value, help)->default_str(fmt::format("{}", value));
  return *this;
}
Verb& Verb::option(const std::string& name, std::optional<int64_t>& value,
                   const std::string& help) {
  add_integer(app_, name, value, help);
  return *this;
}
Verb& Verb::option(const std::string& name, std::optional<double>& value, const std::string& help) {
  add_real(app_, name, value, help);
  return *this;
}
Verb& Verb::option(const std::string& name, std::vector<std::string>& value,
                   const std::string& help) {
  app_->add_option(name, value, help)->allow_extra_args(false);
  return *this;
}
Verb& Verb::choice(const std::string& name, std::string& value,
                   const std::vector<std::string>& words, const std::string& help) {
  app_->add_option(name, value, help)->capture_default_str()->check(CLI::IsMember(words));
  return *this;
}
Verb Verb::verb(const std::string& name, const std::string& help) {
  CLI::App* sub = app_->add_subcommand(name, help);
  app_->require_subcommand(1);
  app_->footer(fmt::format("ferry {} VERB --help lists the options of a verb.", app_->get_name()));
  sub->footer("Of every verb: --json --quiet --threads N (see ferry --help)");
  return Verb(sub->fallthrough(), chosen_);
}
void Verb::action(Action action) {
  app_->callback([chosen = chosen_, action = std::move(action)] { *chosen = action; });
}

struct CommandLine::Impl {
  explicit Impl(Context& the_context) : context(the_context) {}
  Context& context;
  CLI::App app{"Turns a model checkpoint into a program bundle, and proves that nothing was lost.",
               "ferry"};
  Action chosen;

  // The verb of the line, or the whole program where there is none.
  CLI::App& verb() {
    CLI::App* deepest = &app;
    while (!deepest->get_subcommands().empty()) deepest = deepest->get_subcommands().front();
    return *deepest;
  }
  // "batch run".
  std::string verb_name() {
    std::string name;
    for (const CLI::App* level = &verb(); level != &app; level = level->get_parent()) {
      name = level->get_name() + (name.empty() ? "" : " " + name);
    }
    return name;
  }
  // Whether a verb is still to be named.
  bool lacks_verb() { return !verb().get_subcommands({}).empty(); }
  // Every name that may stand where `word` stands.
  std::vector<std::string> known_names(const std::string& word);
  Error unknown(const std::vector<std::string>& words);
  Error explain(const CLI::ParseError& error);
};

CommandLine::CommandLine(Context& context) : impl_(std::make_unique<Impl>(context)) {
  CLI::App& app = impl_->app;
  app.set_version_flag("--version", fmt::format("ferry {}\n", version()));
  app.add_flag("--json", context.json, "One JSON document on stdout and nothing else there");
  app.add_flag("--quiet", context.quiet, "No summaries, warnings or progress");
  add_integer(&app, "--threads", context.threads,
              "Threads, 1 to 1024; default: all that the process may use")
      ->check([](const std::string& text) {
        const std::optional<int64_t> threads = parse_integer(text);
        const bool good = !threads || (*threads >= 1 && *threads <= kMostThreads);
        return good ? std::string() : fmt::format("{} is not from 1 to {}", text, kMostThreads);
      });
  app.require_subcommand(1);
  app.fallthrough();
  app.footer("ferry VERB --help lists the options of a verb.");
}

CommandLine::~CommandLine() = default;

Verb CommandLine::verb(const std::string& name, const std::string& help) {
  CLI::App* sub = impl_->app.add_subcommand(name, help);
  sub->footer("Of every verb: --json --quiet --threads N (see ferry --help)");
  return Verb(sub->fallthrough(), &impl_->chosen);
}

std::vector<std::string> CommandLine::Impl::known_names(const std::string& word) {
  std::vector<std::string> names;
  if (!word.starts_with('-')) {
    for (const CLI::App* sub : verb().get_subcommands({})) names.push_back(sub->get_name());
    return names;
  }
  for (CLI::App* level : {&app, &verb()}) {
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

// Words that nothing expects, in the order of the line.
Error CommandLine::Impl::unknown(const std::vector<std::string>& words) {
  const bool no_verb = lacks_verb();
  const auto verb_like =
      std::ranges::find_if(words, [](const std::string& word) { return !word.starts_with('-'); });
  if (no_verb && verb_like != words.end()) {
    return {ErrorCode::kUsage, fmt::format("there is no verb {}{}", quoted(*verb_like),
                                           suggestion(*verb_like, known_names(*verb_like)))};
  }
  std::vector<std::string> shown;
  std::string meant;
  for (const std::string& word : words) {
    shown.push_back(quoted(word));
    if (meant.empty() && word.starts_with('-')) {
      const std::string name = word.substr(0, word.find('='));
      meant = suggestion(name, known_names(name));
    }
  }
  return {ErrorCode::kUsage, fmt::format("not expected: {}{}", fmt::join(shown, " "), meant)};
}

Error CommandLine::Impl::explain(const CLI::ParseError& error) {
  std::vector<std::string> left = app.remaining(/*recurse=*/true);
  std::erase(left, "--");
  Error told{ErrorCode::kUsage, printable(error.what())};
  if (!left.empty()) {
    told = unknown(left);
  } else if (lacks_verb() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    told.message = "a verb is required";
  }
  const std::string name = &verb() == &app ? "" : verb_name() + " ";
  told.message += fmt::format(" (see ferry {}--help)", name);
  return told;
}

Result<Action> CommandLine::parse(int argc, char** argv) {
  try {
    impl_->app.parse(argc, argv);
    impl_->context.verb = impl_->verb_name();
  } catch (const CLI::CallForVersion& version) {
    return print_action(version.what());
  } catch (const CLI::CallForHelp&) {
    return print_action(impl_->app.help());
  } catch (const CLI::ParseError& error) {
    // The line may not have been read as far as --json.
    const std::span<char*> words(argv, static_cast<size_t>(argc));
    if (std::ranges::count(words, std::string_view("--json")) > 0) impl_->context.json = true;
    return tl::unexpected<Error>(impl_->explain(error));
  }
  return impl_->chosen;
}

}  // namespace ferry::cli
