// The document of an audit: docs/auditing.md specifies it.
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

// An audit and what it was asked.
struct AuditReport {
  Audit audit;
  std::vector<ViewKey> by = {};  // empty: the usual views
  ViewOrder order = ViewOrder::kBytes;
  size_t rows = 20;  // of a view or a list; the others are one row
  bool memory = false;
  std::vector<LimitResult> budget = {};
  std::optional<Diff> diff = {};

  bool within_budget() const;
  // 0, or 1 where a limit is exceeded, or bytes of a bundle are unaccounted for.
  int exit_code() const;
};

// The text of one object. Without digests it is about a third shorter.
std::string to_json(const AuditReport& report, bool with_digests);
// A row for each item, or for each row of the views that were asked for. RFC 4180.
std::string to_csv(const AuditReport& report);
// For a step summary of CI: verdict, budget, largest changes, sizes.
std::string to_markdown(const AuditReport& report);
// Tables for people.
std::string to_text(const AuditReport& report);

// The audit in a document that to_json() wrote, or in an envelope around it. `name` begins the
// messages. kBadInput for another document; kUnsupported for another version.
Result<Audit> read_document(std::string_view text, const std::string& name);

// The artifact at `path`, or the audit in it if it is a .json that is no index of a checkpoint.
Result<Audit> audit_or_document(const std::string& path, const AuditOptions& options,
                                ThreadPool& pool);

}  // namespace ferry::audit
