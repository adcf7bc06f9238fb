// Writes the result of an audit as JSON, CSV, Markdown and text, and reads the JSON again
// (docs/auditing.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/audit.h"
#include "audit/budget.h"
#include "audit/diff.h"
#include "audit/views.h"
#include "core/result.h"

namespace ferry::audit {

// An audit, and the options that decide how reports show it.
struct AuditReport {
  Audit audit;
  std::vector<ViewKey> by = {};  // keys of the one view to show; empty: the default views
  ViewOrder order = ViewOrder::kBytes;
  size_t rows = 20;  // most rows of a view or list; further ones are summed up in one row
  bool memory = false;
  std::vector<LimitResult> budget = {};
  std::optional<Diff> diff = {};

  bool within_budget() const;
  // Returns 1 if a limit is exceeded or a bundle has unaccounted bytes, else 0.
  int exit_code() const;
};

// Returns the text of one JSON object. Without digests the text is about a third shorter.
std::string to_json(const AuditReport& report, bool with_digests);
// Returns CSV (RFC 4180) with a row for each leaf, or for each row of the view if AuditReport::by
// has keys.
std::string to_csv(const AuditReport& report);
// Returns verdict, budget, largest changes and sizes, for the summary page of a CI job.
std::string to_markdown(const AuditReport& report);
// Returns tables for a terminal.
std::string to_text(const AuditReport& report);

// Reads the JSON of to_json(), also as the member "result" of an envelope. Error messages begin
// with `name`. Returns kBadInput for another document, and kUnsupported for another version of the
// document.
Result<Audit> read_document(std::string_view text, const std::string& name);

// Reads the audit from `path` if that is a .json file that is not the index of a checkpoint, else
// audits `path`.
Result<Audit> audit_or_document(const std::string& path, const AuditOptions& options,
                                ThreadPool& pool);

}  // namespace ferry::audit
