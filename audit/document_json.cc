#include <algorithm>
#include <map>
#include <string_view>

#include "audit/document.h"
#include "core/json_writer.h"

namespace ferry::audit {
namespace {

constexpr size_t kMostNamed = 100;  // most names of items of a finding

class DocumentWriter {
 public:
  DocumentWriter(const AuditReport& report, bool with_digests)
      : report_(report), audit_(report.audit), with_digests_(with_digests) {}

  std::string write() {
    json_.begin_object().member("ferry_audit", 1);
    write_target();
    write_totals();
    write_files();
    write_rules();
    write_items();
    write_views();
    write_memory();
    write_account();
    write_findings();
    write_budget();
    write_diff();
    json_.end_object();
    return json_.take();
  }

 private:
  void write_target() {
    json_.key("target").begin_object();
    json_.member("name", audit_.name).member("type", audit_.type).member("bytes", audit_.bytes());
    json_.member("model_type", audit_.model_type).end_object();
  }

  void write_totals() {
    size_t tensors = 0;
    for (const Leaf& leaf : audit_.leaves) tensors += leaf.is_tensor() && leaf.part == 0 ? 1 : 0;
    json_.key("totals").begin_object();
    json_.member("bytes", audit_.bytes()).member("elements", audit_.elements());
    json_.member("files", audit_.files.size()).member("items", audit_.leaves.size());
    json_.member("tensors", tensors);
    json_.member("unaccounted", audit_.bytes_of(LeafKind::kUnaccounted)).end_object();
  }

  void write_files() {
    json_.key("files").begin_array();
    for (const AuditedFile& file : audit_.files) {
      json_.begin_object().member("path", file.path).member("bytes", file.bytes);
      json_.member("type", file.type).end_object();
    }
    json_.end_array();
  }

  void write_rules() {
    json_.key("rules").begin_array();
    for (const Leaf& leaf : audit_.leaves) {
      if (leaf.rule.empty() || !rules_.emplace(leaf.rule, rules_.size()).second) continue;
      json_.value(leaf.rule);
    }
    json_.end_array();
  }

  void write_items() {
    json_.key("items").begin_array();
    for (const Leaf& leaf : audit_.leaves) write_item(leaf);
    json_.end_array();
  }

  void text_member(std::string_view name, const std::string& text) {
    if (!text.empty()) json_.member(name, text);
  }

  void write_item(const Leaf& leaf) {
    json_.begin_object().member("file", leaf.file).member("offset", leaf.offset);
    json_.member("bytes", leaf.bytes).member("kind", name_of(leaf.kind));
    text_member("name", leaf.name);
    text_member("component", leaf.component);
    if (leaf.layer) json_.member("layer", *leaf.layer);
    text_member("dtype", leaf.dtype);
    text_member("encoding", leaf.encoding);
    if (leaf.is_tensor() && leaf.part == 0) json_.member("shape", leaf.shape);
    if (!leaf.rule.empty()) json_.member("rule", rules_.at(leaf.rule));
    text_member("use", leaf.use);
    if (!leaf.tied.empty()) write_names("tied", leaf.tied, leaf.tied.size());
    if (leaf.part > 0) json_.member("part", leaf.part);
    if (leaf.unused) json_.member("unused", true);
    text_member("content", leaf.content);
    if (with_digests_) text_member("sha256", leaf.sha256);
    json_.end_object();
  }

  void write_names(std::string_view key, const std::vector<std::string>& names, size_t most) {
    json_.key(key).begin_array();
    for (size_t i = 0; i < std::min(names.size(), most); ++i) json_.value(names[i]);
    json_.end_array();
  }

  void write_views() {
    json_.key("views").begin_object();
    for (const ViewKey key : {ViewKey::kKind, ViewKey::kFile, ViewKey::kComponent, ViewKey::kLayer,
                              ViewKey::kDtype, ViewKey::kRule}) {
      json_.key(name_of(key));
      write_rows(view(audit_, {key}, ViewOrder::kBytes));
    }
    json_.end_object();
    if (report_.by.empty()) return;
    json_.key("by").begin_array();
    for (const ViewKey key : report_.by) json_.value(name_of(key));
    json_.end_array().key("breakdown");
    write_rows(view(audit_, report_.by, report_.order));
  }

  void write_rows(const std::vector<ViewRow>& rows) {
    json_.begin_array();
    for (const ViewRow& row : rows) {
      json_.begin_object().member("key", row.key).member("bytes", row.bytes);
      json_.member("elements", row.elements).member("count", row.count);
      if (!row.rows.empty()) {
        json_.key("rows");
        write_rows(row.rows);
      }
      json_.end_object();
    }
    json_.end_array();
  }

  void write_memory() {
    json_.key("memory");
    if (!audit_.memory) {
      json_.null();
      return;
    }
    const Memory& memory = *audit_.memory;
    json_.begin_object().member("activation_bytes", memory.activation_bytes());
    json_.member("state_bytes", memory.state_bytes()).key("methods").begin_array();
    for (const AuditedMethod& method : memory.methods) {
      json_.begin_object().member("file", method.file).member("method", method.name);
      json_.member("activation_bytes", method.activation_bytes);
      json_.member("state_bytes", method.state_bytes).end_object();
    }
    json_.end_array().key("buffers").begin_array();
    for (const AuditedBuffer& buffer : memory.buffers) {
      json_.begin_object().member("file", buffer.file).member("name", buffer.name);
      json_.member("dtype", dtype_name(buffer.dtype)).member("shape", buffer.shape);
      json_.member("bytes", buffer.bytes).member("stored", buffer.stored).end_object();
    }
    json_.end_array().end_object();
  }

  void write_account() {
    json_.key("account");
    if (!audit_.account) {
      json_.null();
      return;
    }
    json_.begin_object().member("source_bytes", audit_.account->source_bytes);
    json_.member("bundle_bytes", audit_.account->bundle_bytes).key("steps").begin_array();
    for (const AccountStep& step : audit_.account->steps) {
      json_.begin_object().member("name", step.name).member("bytes", step.bytes).end_object();
    }
    json_.end_array().end_object();
  }

  void write_findings() {
    json_.key("findings").begin_array();
    for (const Finding& finding : audit_.findings) {
      json_.begin_object().member("id", finding.id);
      json_.member("severity", finding.warning ? "warning" : "note");
      json_.member("bytes", finding.bytes).member("count", finding.items.size());
      write_names("items", finding.items, kMostNamed);
      json_.member("message", finding.message).member("remedy", finding.remedy).end_object();
    }
    json_.end_array();
  }

  void write_budget() {
    json_.key("budget");
    if (report_.budget.empty()) {
      json_.null();
      return;
    }
    json_.begin_object().member("passed", report_.within_budget()).key("limits").begin_array();
    for (const LimitResult& result : report_.budget) {
      json_.begin_object().member("name", result.limit.name).member("of", result.limit.of);
      json_.member("growth", result.limit.of_growth).member("unit", "bytes");
      json_.member("stated", result.limit.stated);
      json_.member("size", result.size).member("limit", result.most).member("over", result.over());
      json_.member("count", result.matches).member("passed", result.passed()).end_object();
    }
    json_.end_array().end_object();
  }

  void write_side(std::string_view key, const std::string& name, uint64_t bytes) {
    json_.key(key).begin_object().member("name", name).member("bytes", bytes).end_object();
  }

  void write_count(std::string_view key, uint64_t count, uint64_t bytes) {
    json_.key(key).begin_object().member("count", count).member("bytes", bytes).end_object();
  }

  void write_diff() {
    json_.key("diff");
    if (!report_.diff) {
      json_.null();
      return;
    }
    const Diff& diff = *report_.diff;
    json_.begin_object();
    write_side("old", diff.old_name, diff.old_bytes);
    write_side("new", diff.new_name, diff.new_bytes);
    json_.member("delta", static_cast<int64_t>(diff.new_bytes - diff.old_bytes));
    write_count("equal", diff.equal_count, diff.equal_bytes);
    write_count("moved", diff.moved_count, diff.moved_bytes);
    json_.member("compared", diff.by_content ? "content" : "size");
    write_diff_views(diff);
    json_.key("rows").begin_array();
    for (const DiffRow& row : diff.rows) write_diff_row(row);
    json_.end_array().end_object();
  }

  void write_diff_views(const Diff& diff) {
    json_.key("views").begin_object();
    for (const auto& [key, rows] : diff.views) {
      json_.key(name_of(key)).begin_array();
      for (const DiffViewRow& row : rows) {
        json_.begin_object().member("key", row.key).member("old", row.old_bytes);
        json_.member("new", row.new_bytes);
        json_.member("delta", static_cast<int64_t>(row.new_bytes - row.old_bytes)).end_object();
      }
      json_.end_array();
    }
    json_.end_object();
  }

  void write_diff_row(const DiffRow& row) {
    json_.begin_object().member("change", row.change).member("name", row.name);
    json_.member("old", row.old_bytes).member("new", row.new_bytes).member("delta", row.delta());
    if (row.leaf) {
      json_.member("item", *row.leaf);
    } else {
      json_.member("kind", name_of(row.kind)).member("component", row.component);
    }
    text_member("old_name", row.old_name);
    text_member("note", row.note);
    json_.end_object();
  }

  const AuditReport& report_;
  const Audit& audit_;
  const bool with_digests_;
  JsonWriter json_;
  std::map<std::string_view, size_t> rules_;
};

}  // namespace

bool AuditReport::within_budget() const {
  return std::ranges::all_of(budget, &LimitResult::passed);
}

int AuditReport::exit_code() const {
  const bool accounted = audit.type != "bundle" || audit.bytes_of(LeafKind::kUnaccounted) == 0;
  return within_budget() && accounted ? 0 : 1;
}

std::string to_json(const AuditReport& report, bool with_digests) {
  return DocumentWriter(report, with_digests).write();
}

}  // namespace ferry::audit
