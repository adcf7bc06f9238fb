#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace ferry::cli {
namespace {

template <class T>
void add(CLI::App* app, const std::string& name, T& value, const std::string& help) {
  app->add_option(name, value, help)->capture_default_str();
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
Verb& Verb::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
  return *this;
}
Verb& Verb::option(const std::string& name, std::string& value, const std::string& help) {
  add(app_, name, value, help);
  return *this;
}
Verb& Verb::option(const std::string& name, int64_t& value, const std::string& help) {
  add(app_, name, value, help);
  return *this;
}
Verb& Verb::option(const std::string& name, double& value, const std::string& help) {
  add(app_, name, value, help);
  return *this;
}
Verb& Verb::option(const std::string& name, std::optional<int64_t>& value,
                   const std::string& help) {
  app_->add_option(name, value, help);
  return *this;
}
Verb& Verb::option(const std::string& name, std::optional<double>& value, const std::string& help) {
  app_->add_option(name, value, help);
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
void Verb::action(Action action) {
  app_->callback([chosen = chosen_, action = std::move(action)] { *chosen = action; });
}

struct CommandLine::Impl {
  CLI::App app{"Turns a model checkpoint into a program bundle, and proves that nothing was lost.",
               "ferry"};
  Action chosen;
};

CommandLine::CommandLine(Context& context) : impl_(std::make_unique<Impl>()) {
  CLI::App& app = impl_->app;
  app.set_version_flag("--version", "ferry " FERRY_VERSION "\n");
  app.add_flag("--json", context.json, "One JSON document on stdout and nothing else there");
  app.add_flag("--quiet", context.quiet, "No summaries, warnings or progress");
  app.add_option("--threads", context.threads, "Threads; default: all that the process may use")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}));
  app.require_subcommand(1);
  app.fallthrough();
}

CommandLine::~CommandLine() = default;

Verb CommandLine::verb(const std::string& name, const std::string& help) {
  CLI::App* sub = impl_->app.add_subcommand(name, help);
  return Verb(sub->fallthrough(), &impl_->chosen);
}

Result<Action> CommandLine::parse(int argc, char** argv) {
  try {
    impl_->app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    return print_action(version.what());
  } catch (const CLI::CallForHelp&) {
    return print_action(impl_->app.help());
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    for (char& c : message) {
      if (c == '\n') c = ' ';
    }
    return fail(ErrorCode::kUsage, message + " (see ferry --help)");
  }
  return impl_->chosen;
}

}  // namespace ferry::cli
