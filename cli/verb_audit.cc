// ferry audit shows the purpose of every byte of an artifact, and compares it with a budget and
// with another artifact.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "audit/document.h"
#include "checkpoint/checkpoint_input.h"
#include "cli/report_file.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "report/html_page.h"

namespace ferry::cli {
namespace {

struct AuditOptions {
  std::string target, by, sort = "bytes", diff, budget, html;
  int64_t rows = 20;
  bool memory = false, digests = false, csv = false, markdown = false;
};

Status check_audit(const AuditOptions& options, const Context& context) {
  const int forms = (context.json ? 1 : 0) + (options.csv ? 1 : 0) + (options.markdown ? 1 : 0);
  if (forms > 1) {
    return fail(ErrorCode::kUsage, "--json, --csv and --md: only one of them can be the result");
  }
  if (options.memory && (options.csv || options.markdown)) {
    return fail(ErrorCode::kUsage, "--memory: not with --csv and --md, which are about files");
  }
  if (options.markdown && (!options.by.empty() || options.sort != "bytes")) {
    return fail(ErrorCode::kUsage, "--by and --sort: not with --md, a summary of a fixed form");
  }
  if (options.rows < 1) return fail(ErrorCode::kUsage, "--rows must be 1 or more");
  return {};
}

Result<audit::AuditReport> make_audit(const AuditOptions& options, Context& context) {
  audit::AuditReport report;
  report.order = FERRY_TRY(audit::view_order(options.sort));
  if (!options.by.empty()) report.by = FERRY_TRY(audit::view_keys(options.by));
  report.rows = static_cast<size_t>(options.rows);
  report.memory = options.memory;
  std::vector<audit::Limit> limits;
  if (!options.budget.empty()) limits = FERRY_TRY(audit::read_budget(options.budget));
  audit::AuditOptions how{.digests = options.digests};
  if (options.digests) how.progress = context.progress("reading");
  report.audit = FERRY_TRY(audit::audit_path(options.target, how, context.pool()));
  std::optional<audit::Audit> other;
  if (!options.diff.empty()) {
    other = FERRY_TRY(audit::audit_or_document(options.diff, how, context.pool()));
    report.diff = audit::compare(*other, report.audit);
  }
  report.budget = FERRY_TRY(audit::evaluate(limits, report.audit, other ? &*other : nullptr));
  return report;
}

// The reason of exit code 1 is printed even with --quiet, as errors are.
void print_failure(const std::string& line) { fmt::print(stderr, "ferry: {}\n", line); }

// Prints the result to stdout. If that is JSON or CSV for programs, exceeded limits are printed to
// stderr too.
void print_report(const AuditOptions& options, const audit::AuditReport& report, Context& context) {
  if (context.json) {
    context.print_result(audit::to_json(report, /*with_digests=*/true), report.exit_code());
  } else if (options.csv) {
    context.print(audit::to_csv(report));
  } else {
    context.print(options.markdown ? audit::to_markdown(report) : audit::to_text(report));
  }
  for (const audit::LimitResult& result : report.budget) {
    if (!result.passed()) print_failure(audit::failure_line(result));
  }
  const uint64_t unaccounted = report.audit.bytes_of(audit::LeafKind::kUnaccounted);
  if (unaccounted == 0) return;
  const std::string line = fmt::format("{} bytes are not accounted for", unaccounted);
  report.audit.type == "bundle" ? print_failure(line) : context.note(line);
}

Result<int> run_audit(const AuditOptions& options, Context& context) {
  FERRY_RETURN_IF_ERROR(check_audit(options, context));
  if (!options.html.empty()) {
    FERRY_RETURN_IF_ERROR(check_audit_page(
        "--html", options.html, checkpoint::is_bundle(options.target) ? options.target : ""));
  }
  auto made = make_audit(options, context);
  // The details of an error list keys for conversions, which have no meaning here.
  if (!made) return fail(made.error().code, made.error().message);
  if (!options.html.empty()) {
    const std::string page =
        report::html_page(report::PageKind::kAudit, "Audit of " + made->audit.name,
                          audit::to_json(*made, /*with_digests=*/false));
    FERRY_RETURN_IF_ERROR(write_atomically(options.html, page, IfExists::kReplace));
  }
  print_report(options, *made, context);
  return made->exit_code();
}

}  // namespace

void add_audit(CommandLine& line) {
  auto options = std::make_shared<AuditOptions>();
  line.verb("audit", "Show where every byte of an artifact goes, and hold it to a budget")
      .positional("TARGET", options->target,
                  "Bundle, checkpoint, folder of programs, or a file of a known kind")
      .finds_models()
      .option("--by VIEWS", options->by,
              "Views, nested: kind, file, component, layer, dtype, rule, tensor; 'layer,component'")
      .choice("--sort", options->sort, {"bytes", "name", "count", "elements"}, "Order of rows")
      .option("-n,--rows", options->rows, "Rows of a table; the others are one row")
      .flag("--memory", options->memory, "Show what programs plan at run time too")
      .flag("--digests", options->digests,
            "Read all bytes: digests, equal tensors, values that fewer bits would hold")
      .option("--diff PATH", options->diff,
              "Another artifact, or the --json of an audit, to compare with")
      .finds_models()
      .option("--budget FILE", options->budget,
              "JSON file of limits, or limits: total=900MB,padding=0.5%")
      .flag("--csv", options->csv, "Rows as CSV")
      .flag("--md", options->markdown, "A summary in Markdown, for CI")
      .option("--html FILE", options->html,
              "Write a page to look at to this file; a page of an audit is replaced")
      .example("ferry audit model-bundle --by component,dtype",
               "The rows of every view add up to the size of the files.")
      .example("ferry audit new-bundle --diff audit.json --budget budget.json --md",
               "A step of CI; audit.json is what --json gave for the old bundle.")
      .exit_codes({{"0", "accounted for, and within the budget"},
                   {"1", "a limit is exceeded, or bytes of a bundle are not accounted for"},
                   {"6", "a file of the name of --html, which is no page of an audit"}})
      .action([options](Context& context) { return run_audit(*options, context); });
}

}  // namespace ferry::cli
