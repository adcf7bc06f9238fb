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
  json.member("path", report.directory).member("bundle", report.directory);
  json.member("files", report.files).member("bytes", report.bytes);
  json.key("problems").begin_array();
  for (const packer::CheckProblem& problem : report.problems) {
    json.begin_object();
    json.member("path", problem.file).member("file", problem.file);
    json.member("message", problem.message);
    json.member("code", code_name(problem.code));
    write_position(json, place_of({problem.code, problem.message}));
    json.end_object();
  }
  json.end_array().end_object();
  return json.take();
}

Result<int> check(Context& context, const std::string& bundle) {
  const packer::CheckReport report = FERRY_TRY(packer::check_bundle(bundle, context.pool()));
  if (context.json) {
    context.print_result(to_json(report), report.ok() ? 0 : 1);
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
      .example("ferry check bundle/", "Hashes every byte and validates all structure.")
      .exit_codes({{"0", "the bundle is intact"}, {"1", "the bundle is damaged"}})
      .action([bundle](Context& context) { return check(context, *bundle); });
}

}  // namespace ferry::cli
