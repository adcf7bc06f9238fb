#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "checkpoint/hub_cache.h"
#include "cli/app_options.h"
#include "cli/help_text.h"
#include "cli/option_values.h"
#include "cli/suggestion.h"
#include "core/text.h"
#include "core/version.h"

namespace ferry::cli {
namespace {

constexpr int64_t kMostThreads = 1024;

// Rewords CLI11's messages about an option that is given too often or without its value.
std::string plain_words(std::string text) {
  constexpr std::string_view kTooOften = "At Most 1 required but received ";
  constexpr std::string_view kOneOf = "1 required ", kMissing = " missing";
  if (const size_t at = text.find(kTooOften); at != std::string::npos) {
    return fmt::format("{}given {} times; once is allowed", text.substr(0, at),
                       text.substr(at + kTooOften.size()));
  }
  const size_t at = text.find(kOneOf);
  if (at == std::string::npos || !text.ends_with(kMissing)) return text;
  const size_t begin = at + kOneOf.size();
  const std::string value = text.substr(begin, text.size() - kMissing.size() - begin);
  return fmt::format("{}{} is missing", text.substr(0, at), value.empty() ? "its value" : value);
}

Action print_action(std::string text) {
  return [text = std::move(text)](Context& context) -> Result<int> {
    context.print(text);
    return 0;
  };
}

// With --json the envelope has the version.
Action version_action() {
  return [](Context& context) -> Result<int> {
    if (context.json) {
      context.print_result({}, 0);
    } else {
      context.print(fmt::format("ferry {}\n", version()));
    }
    return 0;
  };
}

}  // namespace

OptionSpec& Verb::describe(CLI::Option* option, const std::string& name, const std::string& value,
                           const std::string& help) {
  OptionSpec& spec = spec_->options.emplace_back(described(name, value, help));
  spec.group = group_;
  spec.required = option->get_required();
  if (!spec.is_flag()) option->type_name(spec.value);
  last_option_ = option;
  last_text_ = nullptr;
  last_list_ = nullptr;
  return spec;
}

Verb& Verb::positional(const std::string& name, std::string& value, const std::string& help) {
  describe(app_->add_option(name, value)->required(), name, name, help);
  last_text_ = &value;
  return *this;
}
Verb& Verb::positional(const std::string& name, std::vector<std::string>& value,
                       const std::string& help) {
  describe(app_->add_option(name, value)->required(), name, name, help).repeated = true;
  last_list_ = &value;
  return *this;
}
Verb& Verb::optional_positional(const std::string& name, std::string& value,
                                const std::string& help) {
  describe(app_->add_option(name, value), name, name, help);
  last_text_ = &value;
  return *this;
}
Verb& Verb::positionals(const std::string& name, std::vector<std::string>& value,
                        const std::string& help) {
  describe(app_->add_option(name, value), name, name, help).repeated = true;
  last_list_ = &value;
  return *this;
}
Verb& Verb::positional_choice(const std::string& name, std::string& value,
                              const std::vector<std::string>& words, const std::string& help) {
  CLI::Option* option = app_->add_option(name, value)->required()->check(one_of(words));
  describe(option, name, name, help).words = words;
  return *this;
}
Verb& Verb::flag(const std::string& name, bool& value, const std::string& help) {
  describe(app_->add_flag(name, value), name, "", help);
  return *this;
}
Verb& Verb::option(const std::string& name, std::string& value, const std::string& help) {
  CLI::Option* option = app_->add_option(names_of(name), value);
  OptionSpec& spec = describe(option, name, "TEXT", help);
  spec.default_text = value;
  refuse_empty(option, spec.value);
  last_text_ = &value;
  return *this;
}
Verb& Verb::option(const std::string& name, std::optional<std::string>& value,
                   const std::string& help) {
  // CLI11 would read an empty argument into an optional as nullopt.
  const auto set = [&value](const std::string& text) { value = text; };
  describe(app_->add_option_function<std::string>(names_of(name), set), name, "TEXT", help);
  return *this;
}
Verb& Verb::option(const std::string& name, int64_t& value, const std::string& help) {
  describe(add_integer(app_, name, value), name, "N", help).default_text = fmt::format("{}", value);
  return *this;
}
Verb& Verb::option(const std::string& name, double& value, const std::string& help) {
  describe(add_real(app_, name, value), name, "X", help).default_text = fmt::format("{}", value);
  return *this;
}
Verb& Verb::option(const std::string& name, std::optional<int64_t>& value,
                   const std::string& help) {
  CLI::Option* option =
      name.ends_with(" SIZE") ? add_size(app_, name, value) : add_integer(app_, name, value);
  describe(option, name, "N", help);
  return *this;
}
Verb& Verb::option(const std::string& name, std::optional<double>& value, const std::string& help) {
  describe(add_real(app_, name, value), name, "X", help);
  return *this;
}
Verb& Verb::option(const std::string& name, std::vector<std::string>& value,
                   const std::string& help) {
  CLI::Option* option = app_->add_option(names_of(name), value)->allow_extra_args(false);
  OptionSpec& spec = describe(option, name, "TEXT", help);
  spec.repeated = true;
  refuse_empty(option, spec.value);
  last_list_ = &value;
  return *this;
}
Verb& Verb::choice(const std::string& name, std::string& value,
                   const std::vector<std::string>& words, const std::string& help) {
  CLI::Option* option = app_->add_option(names_of(name), value)->check(one_of(words));
  OptionSpec& spec = describe(option, name, fmt::format("{}", fmt::join(words, "|")), help);
  spec.default_text = value;
  spec.words = words;
  return *this;
}

Verb& Verb::notes_if_given(bool& given) {
  last_option_->each([&given](const std::string&) { given = true; });
  return *this;
}

Verb& Verb::finds_models() {
  if (last_text_ != nullptr) models_->texts.push_back(last_text_);
  if (last_list_ != nullptr) models_->lists.push_back(last_list_);
  return *this;
}

Verb& Verb::group(const std::string& title) {
  group_ = title;
  return *this;
}
Verb& Verb::description(const std::string& text) {
  spec_->description = text;
  return *this;
}
Verb& Verb::example(const std::string& line, const std::string& what) {
  spec_->examples.push_back({line, what});
  return *this;
}
Verb& Verb::exit_codes(std::vector<ExitCode> codes) {
  spec_->exit_codes = std::move(codes);
  return *this;
}

Verb Verb::verb(const std::string& name, const std::string& help) {
  VerbSpec& spec = spec_->verbs.emplace_back();
  spec.name = spec_->name + " " + name;
  spec.help = help;
  app_->require_subcommand(1);
  return {app_->add_subcommand(name)->fallthrough(), &spec, chosen_, models_};
}
void Verb::action(Action action) {
  app_->callback([chosen = chosen_, action = std::move(action)] { *chosen = action; });
}

struct CommandLine::Impl {
  explicit Impl(Context& the_context) : context(the_context) {}
  Context& context;
  CLI::App app{"", "ferry"};
  LineSpec spec;
  Action chosen;
  Verb::Models models;
  std::string task;
  Explain explanation;

  void add_flag(const std::string& name, bool& value, const std::string& help) {
    app.add_flag(name, value);
    spec.options.push_back(described(name, "", help));
  }
  // Returns the apps from the whole program down to the verb of the line.
  std::vector<CLI::App*> levels();
  std::vector<std::string> verb_words();
  std::string help();
  // Returns every name that may stand in the place of `word`.
  std::vector<std::string> known_names(const std::string& word);
  Error unknown(const std::vector<std::string>& words, bool hint);
  Error explain(const CLI::ParseError& error, const std::vector<std::string>& line);
  // Explains a line that begins with the name of another tool. The message is empty if it does not.
  Error explain_foreign(const std::vector<std::string>& line);
  // Puts paths in the place of names of models.
  Status find_models() const;
};

CommandLine::CommandLine(Context& context) : impl_(std::make_unique<Impl>(context)) {
  Impl& impl = *impl_;
  impl.spec.help =
      "Turns a model checkpoint into a program bundle, and proves that nothing was lost.";
  impl.spec.exit_codes = common_exit_codes();
  impl.add_flag("--json", context.json, "One JSON document on stdout and nothing else there");
  impl.add_flag("-q,--quiet", context.quiet, "No summaries, notes or progress");
  impl.add_flag("-v,--verbose", context.verbose,
                "Say on stderr what is done, and how long it took");
  impl.spec.options.push_back(
      described("--threads", "N", "Threads, 1 to 1024; default: all that the process may use"));
  add_integer(&impl.app, "--threads", context.threads)->check([](const std::string& text) {
    const std::optional<int64_t> threads = parse_integer(text);
    const bool good = !threads || (*threads >= 1 && *threads <= kMostThreads);
    return good ? std::string() : fmt::format("{} is not from 1 to {}", text, kMostThreads);
  });
  impl.spec.examples = {
      {"ferry convert Qwen/Qwen3-0.6B -o qwen3", "a bundle of a model in the Hugging Face cache"},
      {"ferry run qwen3 --chat 'Why is the sky blue?'", "an answer of the bundle"},
      {"ferry verify qwen3 --checkpoint Qwen/Qwen3-0.6B",
       "the proof that the bundle computes what the checkpoint does"}};
  impl.app.set_version_flag("-V,--version", std::string(version()));
  impl.spec.options.push_back(described("-V,--version", "", "Print the version"));
  impl.spec.options.push_back(described("-h,--help", "", "Print this help, or that of a verb"));
  impl.app.require_subcommand(1);
  impl.app.fallthrough();
}

CommandLine::~CommandLine() = default;

const LineSpec& CommandLine::spec() const { return impl_->spec; }

Verb CommandLine::verb(const std::string& name, const std::string& help) {
  VerbSpec& spec = impl_->spec.verbs.emplace_back();
  spec.name = name;
  spec.help = help;
  spec.task = impl_->task;
  return {impl_->app.add_subcommand(name)->fallthrough(), &spec, &impl_->chosen, &impl_->models};
}

void CommandLine::task(const std::string& title) { impl_->task = title; }
void CommandLine::explain_with(Explain explain) { impl_->explanation = std::move(explain); }

std::vector<CLI::App*> CommandLine::Impl::levels() {
  std::vector<CLI::App*> path = {&app};
  for (auto below = app.get_subcommands(); !below.empty();) {
    path.push_back(below.front());
    below = path.back()->get_subcommands();
  }
  return path;
}

std::vector<std::string> CommandLine::Impl::verb_words() {
  std::vector<std::string> words;
  for (const CLI::App* level : levels()) {
    if (level != &app) words.push_back(level->get_name());
  }
  return words;
}

std::string CommandLine::Impl::help() {
  const VerbSpec* verb = find_verb(spec, verb_words());
  return verb == nullptr ? help_text(spec) : help_text(spec, *verb);
}

std::vector<std::string> CommandLine::Impl::known_names(const std::string& word) {
  std::vector<std::string> names;
  const auto path = levels();
  if (!word.starts_with('-')) {
    for (const CLI::App* sub : path.back()->get_subcommands({})) names.push_back(sub->get_name());
    if (path.size() == 1) names.emplace_back("--version");
    return names;
  }
  for (const CLI::App* level : path) {
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

// `words` are the words of the line that nothing expects, in their order.
Error CommandLine::Impl::unknown(const std::vector<std::string>& words, bool hint) {
  const auto verb_like =
      std::ranges::find_if(words, [](const std::string& word) { return !word.starts_with('-'); });
  const bool no_verb = !levels().back()->get_subcommands({}).empty();
  if (no_verb && verb_like != words.end()) {
    return {ErrorCode::kUsage,
            fmt::format("there is no verb {}{}", quoted(*verb_like),
                        hint ? suggestion(*verb_like, known_names(*verb_like)) : std::string())};
  }
  std::vector<std::string> shown;
  std::string meant;
  for (const std::string& word : words) {
    shown.push_back(quoted(word));
    if (hint && meant.empty() && word.starts_with('-')) {
      const std::string name = word.substr(0, word.find('='));
      meant = suggestion(name, known_names(name));
    }
  }
  return {ErrorCode::kUsage, fmt::format("not expected: {}{}", fmt::join(shown, " "), meant)};
}

Error CommandLine::Impl::explain(const CLI::ParseError& error,
                                 const std::vector<std::string>& line) {
  std::vector<std::string> left = app.remaining(/*recurse=*/true);
  std::erase(left, "--");
  Error told{ErrorCode::kUsage, printable(plain_words(error.what()))};
  const bool no_verb = !levels().back()->get_subcommands({}).empty();
  // A line that lacks a value is one of ours.
  const bool is_ours = line.empty() || (left.empty() && !no_verb);
  std::vector<std::string> meant;
  if (explanation && !is_ours) meant = explanation(line);
  // -q may be another tool's word for something else, and the answer must be seen.
  if (!meant.empty()) context.quiet = false;
  told.details = meant;
  if (!left.empty()) {
    Error named = unknown(left, /*hint=*/meant.empty());
    told.message = std::move(named.message);
  } else if (no_verb && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    told.message = "a verb is required";
    told.details = verb_overview(spec, find_verb(spec, verb_words()));
  }
  std::string name;
  for (const std::string& word : verb_words()) name += word + " ";
  told.message += fmt::format(" (see ferry {}--help)", name);
  return told;
}

Status CommandLine::Impl::find_models() const {
  const auto find = [](std::string& text) -> Status {
    if (!text.empty()) text = FERRY_TRY(checkpoint::find_source(text));
    return {};
  };
  for (std::string* text : models.texts) FERRY_RETURN_IF_ERROR(find(*text));
  for (std::vector<std::string>* list : models.lists) {
    for (std::string& text : *list) FERRY_RETURN_IF_ERROR(find(text));
  }
  return {};
}

bool CommandLine::accepts(const std::vector<std::string>& words) {
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    impl_->app.parse(std::move(reversed));
    return true;
  } catch (const CLI::Success&) {  // a call for help or the version
    return true;
  } catch (const CLI::ParseError&) {
    return false;
  }
}

Error CommandLine::Impl::explain_foreign(const std::vector<std::string>& line) {
  const auto first =
      std::ranges::find_if(line, [](const std::string& word) { return word != "--json"; });
  if (!explanation || first == line.end() || first->starts_with('-')) return {};
  if (*first == "version" || find_verb(spec, {*first}) != nullptr) return {};
  Error told{ErrorCode::kUsage,
             fmt::format("there is no verb {} (see ferry --help)", quoted(*first)),
             explanation(line)};
  return told.details.empty() ? Error{} : told;
}

Result<Action> CommandLine::parse(int argc, char** argv) {
  Impl& impl = *impl_;
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto name_verb = [&] {
    impl.context.verb = fmt::format("{}", fmt::join(impl.verb_words(), " "));
  };
  // The parser may have stopped before it came to --json.
  const auto set_json = [&] { impl.context.json |= std::ranges::count(words, "--json") > 0; };
  // The parser would read -h of a line such as "llama-cli -hf MODEL" as a request for help.
  if (Error foreign = impl.explain_foreign(words); !foreign.message.empty()) {
    set_json();
    return Failure(std::move(foreign));
  }
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  if (!words.empty() && words.front() == "version") reversed.back() = "--version";
  try {
    impl.app.parse(std::move(reversed));
    name_verb();
  } catch (const CLI::CallForVersion&) {
    set_json();
    return version_action();
  } catch (const CLI::CallForHelp&) {
    // CLI11 finds -h in words such as -hf too.
    const auto other = std::ranges::find_if(
        words, [](const std::string& word) { return word.starts_with("-h") && word.size() > 2; });
    if (other == words.end() || !impl.explanation) return print_action(impl.help());
    Error told{ErrorCode::kUsage, "not expected: " + quoted(*other), impl.explanation(words)};
    if (told.details.empty()) return print_action(impl.help());
    set_json();
    name_verb();
    return Failure(std::move(told));
  } catch (const CLI::ParseError& error) {
    set_json();
    name_verb();
    return Failure(impl.explain(error, words));
  }
  if (impl.context.quiet && impl.context.verbose) {
    return fail(ErrorCode::kUsage, "--quiet and --verbose exclude each other");
  }
  FERRY_RETURN_IF_ERROR(impl.find_models());
  return impl.chosen;
}

}  // namespace ferry::cli
