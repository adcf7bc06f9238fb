#include "audit/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

namespace ferry::audit {
namespace {

constexpr uint64_t kMostMoved = 100;

bool holds_values(LeafKind kind) {
  return kind == LeafKind::kWeight || kind == LeafKind::kConstant || kind == LeafKind::kBufferInit;
}

bool is_file(LeafKind kind) {
  return kind == LeafKind::kManifest || kind == LeafKind::kTokenizer ||
         kind == LeafKind::kReference || kind == LeafKind::kMetadata || kind == LeafKind::kOther;
}

// All leaves with one identity().
struct Entity {
  size_t leaf = 0;  // index of the first leaf
  uint64_t bytes = 0, leaves = 0;
};

// Returns the pair by which leaves are matched: tensors by name, in weight files and in programs
// alike; files by name, whatever their kind; the rest by kind.
std::pair<std::string, std::string> identity(const Leaf& leaf) {
  const std::string kind(name_of(leaf.kind));
  if (holds_values(leaf.kind)) return {"tensor", leaf.name};
  if (is_file(leaf.kind) && !leaf.name.empty()) return {"file", leaf.name};
  return {kind, leaf.name.empty() ? kind : leaf.name};
}

using Entities = std::map<std::pair<std::string, std::string>, Entity>;

Entities entities_of(const Audit& audit) {
  Entities out;
  for (size_t i = 0; i < audit.leaves.size(); ++i) {
    const Leaf& leaf = audit.leaves[i];
    Entity& entity = out[identity(leaf)];
    if (entity.leaves++ == 0) entity.leaf = i;
    entity.bytes += leaf.bytes;
  }
  return out;
}

std::string form_of(const Leaf& leaf) { return leaf.encoding.empty() ? leaf.dtype : leaf.encoding; }

// A move between files is of interest only if the weights of an artifact are in several files.
bool is_spread(const Audit& audit) {
  std::set<uint32_t> files;
  for (const Leaf& leaf : audit.leaves) {
    if (leaf.kind == LeafKind::kWeight) files.insert(leaf.file);
  }
  return files.size() > 1;
}

class Comparison {
 public:
  Comparison(const Audit& old_audit, const Audit& new_audit)
      : old_(old_audit),
        new_(new_audit),
        spread_(is_spread(old_audit) || is_spread(new_audit)),
        before_(entities_of(old_audit)),
        after_(entities_of(new_audit)) {}

  Diff run() {
    diff_.old_name = old_.name;
    diff_.new_name = new_.name;
    diff_.old_bytes = old_.bytes();
    diff_.new_bytes = new_.bytes();
    compare_views();
    match_names();
    match_contents();
    for (const auto& [identity, entity] : before_) add_removed(identity.second, entity);
    for (const auto& [identity, entity] : after_) add_new(identity.second, entity);
    std::ranges::stable_sort(diff_.rows, [](const DiffRow& a, const DiffRow& b) {
      const int64_t x = std::abs(a.delta()), y = std::abs(b.delta());
      return std::tuple(-x, std::string_view(a.name)) < std::tuple(-y, std::string_view(b.name));
    });
    return std::move(diff_);
  }

 private:
  void compare_views() {
    for (const ViewKey key :
         {ViewKey::kKind, ViewKey::kComponent, ViewKey::kLayer, ViewKey::kDtype}) {
      std::map<std::string, DiffViewRow> rows;
      for (const ViewRow& row : view(new_, {key}, ViewOrder::kBytes)) {
        rows[row.key].new_bytes = row.bytes;
      }
      for (const ViewRow& row : view(old_, {key}, ViewOrder::kBytes)) {
        rows[row.key].old_bytes = row.bytes;
      }
      std::vector<DiffViewRow> list;
      for (auto& [name, row] : rows) {
        row.key = name;
        list.push_back(row);
      }
      std::ranges::stable_sort(list, [](const DiffViewRow& a, const DiffViewRow& b) {
        return std::max(a.old_bytes, a.new_bytes) > std::max(b.old_bytes, b.new_bytes);
      });
      diff_.views.emplace_back(key, std::move(list));
    }
  }

  // Removes the entities that exist in both artifacts from before_ and after_.
  void match_names() {
    for (auto at = after_.begin(); at != after_.end();) {
      const auto found = before_.find(at->first);
      if (found == before_.end()) {
        ++at;
        continue;
      }
      add_pair(at->first.second, found->second, at->second);
      before_.erase(found);
      at = after_.erase(at);
    }
  }

  void match_contents() {
    std::map<std::string_view, Entities::iterator> by_digest;
    for (auto at = before_.begin(); at != before_.end(); ++at) {
      const std::string_view digest = digest_of(old_, at->second);
      if (!digest.empty() && at->second.bytes > 0) by_digest.emplace(digest, at);
    }
    for (auto at = after_.begin(); at != after_.end();) {
      const auto found = by_digest.find(digest_of(new_, at->second));
      if (found == by_digest.end()) {
        ++at;
        continue;
      }
      DiffRow row = row_of("renamed", at->first.second, at->second);
      row.old_name = found->second->first.second;
      row.old_bytes = found->second->second.bytes;
      diff_.rows.push_back(std::move(row));
      before_.erase(found->second);
      by_digest.erase(found);
      at = after_.erase(at);
    }
  }

  static std::string_view digest_of(const Audit& audit, const Entity& entity) {
    return entity.leaves == 1 ? std::string_view(audit.leaves[entity.leaf].sha256)
                              : std::string_view();
  }

  DiffRow row_of(const char* change, const std::string& name, const Entity& after) const {
    const Leaf& leaf = new_.leaves[after.leaf];
    return {.change = change,
            .name = name,
            .new_bytes = after.bytes,
            .kind = leaf.kind,
            .component = leaf.component,
            .leaf = after.leaf};
  }

  void add_pair(const std::string& name, const Entity& before, const Entity& after) {
    const Leaf &was = old_.leaves[before.leaf], &is = new_.leaves[after.leaf];
    const std::string_view x = digest_of(old_, before), y = digest_of(new_, after);
    const bool digests = !x.empty() && !y.empty();
    diff_.by_content = diff_.by_content || digests;
    std::string note = note_of(was, is);
    const bool same = before.bytes == after.bytes && note.empty() && (!digests || x == y);
    if (same && (!spread_ || !holds_values(is.kind) ||
                 old_.files[was.file].path == new_.files[is.file].path)) {
      ++diff_.equal_count;
      diff_.equal_bytes += after.bytes;
      return;
    }
    if (same) {
      note = fmt::format("{} -> {}", old_.files[was.file].path, new_.files[is.file].path);
      diff_.moved_bytes += after.bytes;
      if (diff_.moved_count++ >= kMostMoved) return;
    } else if (before.bytes == after.bytes && note.empty()) {
      note = "other contents";
    }
    DiffRow row = row_of(same ? "moved" : "changed", name, after);
    row.old_bytes = before.bytes;
    row.note = std::move(note);
    diff_.rows.push_back(std::move(row));
  }

  static std::string note_of(const Leaf& was, const Leaf& is) {
    std::string note;
    const auto add = [&](const std::string& x, const std::string& y) {
      if (x != y) note += fmt::format("{}{} -> {}", note.empty() ? "" : ", ", x, y);
    };
    add(form_of(was), form_of(is));
    add(was.is_tensor() ? to_string(was.shape) : "", is.is_tensor() ? to_string(is.shape) : "");
    if (holds_values(was.kind) && was.kind != is.kind) {
      add(std::string(name_of(was.kind)), std::string(name_of(is.kind)));
    }
    return note;
  }

  void add_new(const std::string& name, const Entity& entity) {
    DiffRow row = row_of("new", name, entity);
    row.note = tie_of(old_, name);
    if (!row.note.empty()) row.note = "was tied to " + row.note;
    diff_.rows.push_back(std::move(row));
  }

  void add_removed(const std::string& name, const Entity& entity) {
    const Leaf& leaf = old_.leaves[entity.leaf];
    DiffRow row{.change = "removed",
                .name = name,
                .old_bytes = entity.bytes,
                .kind = leaf.kind,
                .component = leaf.component};
    row.note = tie_of(new_, name);
    if (!row.note.empty()) row.note = "is tied to " + row.note;
    diff_.rows.push_back(std::move(row));
  }

  // Returns the name of the leaf whose bytes also have the name `name`; empty if there is none.
  static std::string tie_of(const Audit& audit, const std::string& name) {
    for (const Leaf& leaf : audit.leaves) {
      if (std::ranges::find(leaf.tied, name) != leaf.tied.end()) return leaf.name;
    }
    return {};
  }

  const Audit &old_, &new_;
  const bool spread_;
  Entities before_, after_;
  Diff diff_;
};

}  // namespace

int64_t DiffRow::delta() const {
  return static_cast<int64_t>(new_bytes) - static_cast<int64_t>(old_bytes);
}

Diff compare(const Audit& old_audit, const Audit& new_audit) {
  return Comparison(old_audit, new_audit).run();
}

}  // namespace ferry::audit
