// Writes reports as text, CSV and Markdown.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "audit/document.h"
#include "audit/text_table.h"
#include "core/text.h"

namespace ferry::audit {
namespace {

constexpr size_t kLargest = 10;  // rows of the table of the largest tensors

// Returns the bits per element; empty if the row has no elements.
std::string bits_per_element(const ViewRow& row) {
  if (row.elements == 0) return "";
  return fmt::format(
      "{:.2f}", 8.0 * static_cast<double>(row.tensor_bytes) / static_cast<double>(row.elements));
}

void add_to(ViewRow& sum, const ViewRow& row) {
  sum.bytes += row.bytes;
  sum.elements += row.elements;
  sum.count += row.count;
  sum.tensor_bytes += row.tensor_bytes;
}

class ViewTable {
 public:
  ViewTable(const AuditReport& report, std::string title, size_t most)
      : total_(report.audit.bytes()),
        most_(most),
        table_({std::move(title), "bytes", "%", "elements", "bits each", "items"}) {}

  std::string text(const std::vector<ViewRow>& rows) {
    add_rows(rows, 0);
    ViewRow sum;
    for (const ViewRow& row : rows) add_to(sum, row);
    sum.key = "total";
    add_row(sum, 0);
    return table_.text();
  }

 private:
  void add_rows(const std::vector<ViewRow>& rows, size_t level) {
    ViewRow others;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i >= most_ && rows.size() > most_ + 1) {
        add_to(others, rows[i]);
        continue;
      }
      add_row(rows[i], level);
      add_rows(rows[i].rows, level + 1);
    }
    if (others.count == 0 && others.bytes == 0) return;
    others.key = fmt::format("[{} others]", rows.size() - most_);
    add_row(others, level);
  }

  void add_row(const ViewRow& row, size_t level) {
    const std::string key = row.key.empty() ? "-" : shown(row.key);
    table_.add({std::string(2 * level, ' ') + key, grouped(row.bytes),
                percent_of(row.bytes, total_), row.elements == 0 ? "" : grouped(row.elements),
                bits_per_element(row), grouped(row.count)});
  }

  const uint64_t total_;
  const size_t most_;
  TextTable table_;
};

class Report {
 public:
  explicit Report(const AuditReport& report) : report_(report), audit_(report.audit) {}

  std::string text() {
    add_head();
    if (report_.by.empty()) {
      add_view({ViewKey::kKind});
      add_view({ViewKey::kComponent});
      add_largest();
    } else {
      add_view(report_.by);
    }
    if (audit_.account && report_.by.empty()) add_account();
    if (report_.memory) add_memory();
    if (report_.diff) add_diff(*report_.diff);
    add_findings();
    add_budget();
    return std::move(out_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void add_head() {
    size_t tensors = 0, tied = 0;
    for (const Leaf& leaf : audit_.leaves) {
      tensors += leaf.is_tensor() && leaf.part == 0 ? 1 : 0;
      tied += leaf.tied.size();
    }
    line("{}: {}{}{}, {} ({} bytes), {} {}, {} tensors{}, {} elements", shown(audit_.name),
         audit_.type, audit_.model_type.empty() ? "" : " of ", shown(audit_.model_type),
         human_bytes(audit_.bytes()), grouped(audit_.bytes()), audit_.files.size(),
         audit_.files.size() == 1 ? "file" : "files", grouped(tensors),
         tied == 0 ? ""
                   : fmt::format(" ({} more {} of the same bytes)", grouped(tied),
                                 tied == 1 ? "name" : "names"),
         grouped(audit_.elements()));
    out_ += '\n';
  }

  void add_view(const std::vector<ViewKey>& keys) {
    std::string title;
    for (const ViewKey key : keys)
      title += (title.empty() ? "" : " > ") + std::string(name_of(key));
    out_ += ViewTable(report_, title, report_.rows).text(view(audit_, keys, report_.order));
    out_ += '\n';
  }

  void add_largest() {
    std::vector<const Leaf*> leaves;
    for (const Leaf& leaf : audit_.leaves) {
      if (leaf.is_tensor()) leaves.push_back(&leaf);
    }
    std::ranges::stable_sort(leaves, std::ranges::greater(), &Leaf::bytes);
    if (leaves.empty()) return;
    TextTable table({"largest tensors", "bytes", "%", "form", "shape", "notes"}, {0, 3, 4, 5});
    const size_t most = std::min(kLargest, report_.rows);
    for (size_t i = 0; i < std::min(most, leaves.size()); ++i) {
      const Leaf& leaf = *leaves[i];
      table.add({shown(leaf.name), grouped(leaf.bytes), percent_of(leaf.bytes, audit_.bytes()),
                 leaf.encoding.empty() ? leaf.dtype : leaf.encoding,
                 leaf.part > 0 ? fmt::format("part {}", leaf.part + 1) : to_string(leaf.shape),
                 notes_of(leaf)});
    }
    out_ += table.text();
    if (leaves.size() > most) line("and {} more", grouped(leaves.size() - most));
    out_ += '\n';
  }

  static std::string notes_of(const Leaf& leaf) {
    std::vector<std::string> notes;
    if (!leaf.tied.empty()) {
      notes.push_back("also " + shown(leaf.tied.front(), 40));
      if (leaf.tied.size() > 1) notes.back() += fmt::format(" and {} more", leaf.tied.size() - 1);
    }
    if (leaf.unused) notes.emplace_back("unused");
    if (!leaf.use.empty()) notes.push_back("for " + shown(leaf.use));
    return fmt::format("{}", fmt::join(notes, "; "));
  }

  void add_account() {
    TextTable table({"from the checkpoint to the bundle", "bytes"});
    table.add({"files of the checkpoint", grouped(audit_.account->source_bytes)});
    for (const AccountStep& step : audit_.account->steps) {
      table.add({step.name, signed_grouped(step.bytes)});
    }
    table.add({"files of the bundle", grouped(audit_.account->bundle_bytes)});
    out_ += table.text() + '\n';
  }

  void add_memory() {
    if (!audit_.memory) return;
    const Memory& memory = *audit_.memory;
    line("memory at run time, beside the files: {} of activations, {} of state",
         human_bytes(memory.activation_bytes()), human_bytes(memory.state_bytes()));
    TextTable methods({"file", "method", "activations", "state"}, {0, 1});
    for (const AuditedMethod& method : memory.methods) {
      methods.add({shown(audit_.files[method.file].path), shown(method.name),
                   grouped(method.activation_bytes), grouped(method.state_bytes)});
    }
    out_ += methods.text() + '\n';
    if (memory.buffers.empty()) return;
    TextTable buffers({"buffer", "bytes", "dtype", "shape", "contents"}, {0, 2, 3, 4});
    for (size_t i = 0; i < std::min(memory.buffers.size(), report_.rows); ++i) {
      const AuditedBuffer& buffer = memory.buffers[i];
      buffers.add({buffer.name.empty() ? "-" : shown(buffer.name), grouped(buffer.bytes),
                   std::string(dtype_name(buffer.dtype)), to_string(buffer.shape),
                   buffer.stored ? "stored" : ""});
    }
    out_ += buffers.text();
    if (memory.buffers.size() > report_.rows) {
      line("and {} more", memory.buffers.size() - report_.rows);
    }
    out_ += '\n';
  }

  void add_diff(const Diff& diff) {
    const auto delta = static_cast<int64_t>(diff.new_bytes - diff.old_bytes);
    line("against {}: {} -> {} bytes, {} ({}, {})", shown(diff.old_name), grouped(diff.old_bytes),
         grouped(diff.new_bytes), signed_grouped(delta), signed_human(delta),
         growth_of(delta, diff.old_bytes));
    line("{}: {} items, {} bytes{}", diff.by_content ? "equal" : "equal in size and form",
         grouped(diff.equal_count), grouped(diff.equal_bytes),
         diff.moved_count == 0 ? ""
                               : fmt::format("; moved between files: {} items, {} bytes",
                                             grouped(diff.moved_count), grouped(diff.moved_bytes)));
    if (!diff.rows.empty()) {
      TextTable table({"change", "name", "old", "new", "delta", "", "note"}, {0, 1, 6});
      for (size_t i = 0; i < std::min(diff.rows.size(), report_.rows); ++i) {
        const DiffRow& row = diff.rows[i];
        const std::string from = row.old_name.empty() ? "" : " <- " + shown(row.old_name, 40);
        table.add({row.change, shown(row.name) + from, grouped(row.old_bytes),
                   grouped(row.new_bytes), signed_grouped(row.delta()),
                   growth_of(row.delta(), row.old_bytes), shown(row.note, 80)});
      }
      out_ += table.text();
      if (diff.rows.size() > report_.rows) {
        line("and {} more", grouped(diff.rows.size() - report_.rows));
      }
    }
    out_ += '\n';
  }

  void add_findings() {
    for (const Finding& finding : audit_.findings) {
      line("{} {}: {}", finding.warning ? "warning" : "note", finding.id, finding.message);
      std::string names;
      const size_t most = std::min<size_t>(finding.items.size(), 3);
      for (size_t i = 0; i < most; ++i) {
        names += (i > 0 ? ", " : "  ") + shown(finding.items[i]);
      }
      if (finding.items.size() > most) {
        names += fmt::format(", and {} more", grouped(finding.items.size() - most));
      }
      if (!names.empty()) line("{}", names);
      line("  {}", finding.remedy);
    }
    if (!audit_.findings.empty()) out_ += '\n';
  }

  void add_budget() {
    if (report_.budget.empty()) return;
    TextTable table({"limit", "size", "at most", "over", ""}, {0, 4});
    for (const LimitResult& result : report_.budget) {
      table.add({shown(result.limit.name), signed_or_plain(result), grouped(result.most),
                 result.passed() ? "" : grouped(static_cast<uint64_t>(result.over())),
                 result.matches == 0 ? "matches nothing"
                 : result.passed()   ? ""
                                     : "EXCEEDED"});
    }
    out_ += table.text();
  }

  static std::string signed_or_plain(const LimitResult& result) {
    return result.limit.of_growth ? signed_grouped(result.size)
                                  : grouped(static_cast<uint64_t>(result.size));
  }

  const AuditReport& report_;
  const Audit& audit_;
  std::string out_;
};

}  // namespace

std::string to_text(const AuditReport& report) {
  std::string text = Report(report).text();
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

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
