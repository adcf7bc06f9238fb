// ferry check: everything that is wrong with a bundle.

#include <fmt/format.h>

#include <memory>

#include "cli/error_report.h"
#include "cli/verbs.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "packer/check.h"

namespace ferry::cli {
namespace {

std::string to_json(const packer::CheckReport& report) {
  JsonWriter json;
  json.begin_object();
  json.member("bundle", report.directory).member("ok", report.ok());
  json.member("files", report.files).member("bytes", report.bytes);
  json.key("problems").begin_array();
  for (const packer::CheckProblem& problem : report.problems) {
    json.begin_object();
    json.member("file", problem.file).member("message", problem.message);
    json.end_object();
  }
  json.end_array().end_object();
  return json.take();
}

Result<int> check(Context& context, const std::string& bundle) {
  const packer::CheckReport report = FERRY_TRY(packer::check_bundle(bundle, context.pool()));
  if (context.json) {
    context.print(to_json(report));
  } else if (report.ok() && !context.quiet) {
    context.print(fmt::format("{}: intact: {} files, {}\n", report.directory, report.files,
                              human_bytes(report.bytes)));
  }
  for (const packer::CheckProblem& problem : report.problems) {
    if (!context.json) print_error({problem.code, problem.message}, /*with_details=*/false);
  }
  return report.ok() ? 0 : 1;
}

}  // namespace

void add_check(CommandLine& line) {
  auto bundle = std::make_shared<std::string>();
  line.verb("check", "Re-hash and validate everything in a bundle")
      .positional("BUNDLE", *bundle, "Bundle directory")
      .action([bundle](Context& context) { return check(context, *bundle); });
}

}  // namespace ferry::cli
