// Writes reports as CSV and Markdown.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "audit/document.h"
#include "audit/text_table.h"
#include "core/text.h"

namespace ferry::audit {
namespace {

// -- CSV

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

void append_row(std::string& out, const std::vector<std::string>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) out += (i > 0 ? "," : "") + csv_field(cells[i]);
  out += "\r\n";
}

std::string csv_of_items(const Audit& audit) {
  std::string out;
  append_row(out,
             {"file", "offset", "bytes", "kind", "name", "component", "layer", "dtype", "encoding",
              "shape", "elements", "rule", "use", "tied", "part", "unused", "sha256"});
  for (const Leaf& leaf : audit.leaves) {
    append_row(out,
               {printable(audit.files[leaf.file].path), std::to_string(leaf.offset),
                std::to_string(leaf.bytes), std::string(name_of(leaf.kind)), printable(leaf.name),
                leaf.component, leaf.layer ? std::to_string(*leaf.layer) : "", leaf.dtype,
                leaf.encoding, fmt::format("{}", fmt::join(leaf.shape, "x")),
                std::to_string(leaf.elements), printable(leaf.rule), printable(leaf.use),
                printable(fmt::format("{}", fmt::join(leaf.tied, " "))), std::to_string(leaf.part),
                leaf.unused ? "1" : "0", leaf.sha256});
  }
  return out;
}

void append_views(std::string& out, const std::vector<ViewRow>& rows,
                  std::vector<std::string>& keys) {
  for (const ViewRow& row : rows) {
    keys.push_back(printable(row.key));
    if (row.rows.empty()) {
      std::vector<std::string> cells = keys;
      for (uint64_t number : {row.bytes, row.elements, row.count}) {
        cells.push_back(std::to_string(number));
      }
      append_row(out, cells);
    }
    append_views(out, row.rows, keys);
    keys.pop_back();
  }
}

std::string csv_of_views(const AuditReport& report) {
  std::string out;
  std::vector<std::string> head, keys;
  for (const ViewKey key : report.by) head.emplace_back(name_of(key));
  for (const char* name : {"bytes", "elements", "items"}) head.emplace_back(name);
  append_row(out, head);
  append_views(out, view(report.audit, report.by, report.order), keys);
  return out;
}

// -- Markdown

// Returns an untrusted name as inline code that cannot break a cell of a Markdown table.
std::string code(std::string_view name) {
  std::string out = "`";
  for (const char c : shown(name, 80)) {
    if (c == '|') out += '\\';
    out += c == '`' ? '\'' : c;
  }
  return out + "`";
}

class Markdown {
 public:
  explicit Markdown(const AuditReport& report) : report_(report), audit_(report.audit) {}

  std::string text() {
    add_head();
    add_budget();
    if (report_.diff) add_diff(*report_.diff);
    add_view(ViewKey::kKind);
    add_view(ViewKey::kComponent);
    add_findings();
    return std::move(out_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  std::string verdict() const {
    const auto failed = std::ranges::count_if(
        report_.budget, [](const LimitResult& result) { return !result.passed(); });
    if (audit_.bytes_of(LeafKind::kUnaccounted) > 0 && audit_.type == "bundle") {
      return "❌ bytes that nothing accounts for";
    }
    if (report_.budget.empty()) return human_bytes(audit_.bytes());
    if (failed == 0) return "✅ within budget";
    return fmt::format("❌ {} of {} limits exceeded", failed, report_.budget.size());
  }

  void add_head() {
    line("### {}: {}", code(audit_.name), verdict());
    line("");
    std::string growth;
    if (report_.diff) {
      const auto delta = static_cast<int64_t>(report_.diff->new_bytes - report_.diff->old_bytes);
      growth = fmt::format(", {} ({}) against {}", signed_human(delta),
                           growth_of(delta, report_.diff->old_bytes), code(report_.diff->old_name));
    }
    line("{} ({} bytes){}", human_bytes(audit_.bytes()), grouped(audit_.bytes()), growth);
    line("");
  }

  void add_budget() {
    if (report_.budget.empty()) return;
    line("| limit | size | at most | over | |");
    line("|---|---:|---:|---:|---|");
    for (const LimitResult& result : report_.budget) {
      const std::string size = result.limit.of_growth
                                   ? signed_human(result.size)
                                   : human_bytes(static_cast<uint64_t>(result.size));
      line("| {} | {} | {} | {} | {} |", code(result.limit.name), size, human_bytes(result.most),
           result.passed() ? "" : human_bytes(static_cast<uint64_t>(result.over())),
           result.passed() ? "✅" : "❌");
    }
    line("");
  }

  void add_diff(const Diff& diff) {
    if (diff.rows.empty()) {
      line("No item differs.");
      line("");
      return;
    }
    line("| change | name | old | new | delta | note |");
    line("|---|---|---:|---:|---:|---|");
    for (size_t i = 0; i < std::min(diff.rows.size(), report_.rows); ++i) {
      const DiffRow& row = diff.rows[i];
      line("| {} | {} | {} | {} | {} | {} |", row.change, code(row.name), grouped(row.old_bytes),
           grouped(row.new_bytes), signed_grouped(row.delta()),
           row.note.empty() ? "" : code(row.note));
    }
    line("");
    if (diff.rows.size() > report_.rows) {
      line("and {} more", grouped(diff.rows.size() - report_.rows));
      line("");
    }
  }

  void add_view(ViewKey key) {
    line("| {} | bytes | % |", name_of(key));
    line("|---|---:|---:|");
    for (const ViewRow& row : view(audit_, {key}, ViewOrder::kBytes)) {
      line("| {} | {} | {} |", row.key.empty() ? "-" : code(row.key), grouped(row.bytes),
           percent_of(row.bytes, audit_.bytes()));
    }
    line("");
  }

  void add_findings() {
    for (const Finding& finding : audit_.findings) {
      line("- {} **{}**: {}; {}", finding.warning ? "⚠️" : "ℹ️", finding.id,
           finding.message, finding.remedy);
    }
  }

  const AuditReport& report_;
  const Audit& audit_;
  std::string out_;
};

}  // namespace

std::string to_csv(const AuditReport& report) {
  return report.by.empty() ? csv_of_items(report.audit) : csv_of_views(report);
}

std::string to_markdown(const AuditReport& report) { return Markdown(report).text(); }

}  // namespace ferry::audit
