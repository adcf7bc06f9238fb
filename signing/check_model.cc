#include "signing/check_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "core/file.h"
#include "core/text.h"
#include "signing/model_hash.h"
#include "signing/model_statement.h"
#include "signing/model_tree.h"

namespace ferry::signing {
namespace {

// Compares the files of a model with the resources of a statement.
class Comparison {
 public:
  Comparison(const ModelTree& tree, const ModelStatement& statement, const CheckOptions& options)
      : tree_(tree), statement_(statement), options_(options) {
    for (const Resource& resource : statement.resources)
      listed_[resource.name].push_back(&resource);
    for (auto& [name, resources] : listed_) {
      std::ranges::sort(resources, {}, [](const Resource* resource) { return resource->begin; });
      names_.push_back(name);
    }
  }

  Status run(std::optional<FileIdentity> signature, ThreadPool& pool) {
    const auto entries =
        FERRY_TRY(tree_.list(IgnoredPaths(statement_.ignore_paths, names_), signature));
    for (const ModelEntry& entry : entries) place(entry);
    for (const std::string& name : names_) {
      if (!found_.contains(name)) add(name, FileStatus::kMissing, "is missing");
    }
    FERRY_RETURN_IF_ERROR(compare_digests(pool));
    std::ranges::sort(files_, {}, &CheckedFile::name);
    return {};
  }

  std::vector<CheckedFile> take_files() { return std::move(files_); }
  uint64_t hashed_files() const { return hashed_files_; }
  uint64_t hashed_bytes() const { return hashed_bytes_; }

 private:
  using Listed = std::vector<const Resource*>;  // resources of one file, in ascending order

  void add(const std::string& name, FileStatus status, std::string what = {}) {
    files_.push_back({name, status, std::move(what)});
  }

  void place(const ModelEntry& entry) {
    const auto listed = listed_.find(entry.name);
    if (entry.kind == EntryKind::kIgnored) return add(entry.name, FileStatus::kIgnored);
    if (entry.kind != EntryKind::kFile) {
      found_.emplace(entry.name, true);
      const char* what = entry.kind == EntryKind::kLink
                             ? "is a symbolic link, which is not followed"
                             : "is not a regular file";
      return add(entry.name, listed == listed_.end() ? FileStatus::kExtra : FileStatus::kChanged,
                 what);
    }
    if (listed == listed_.end()) return place_unlisted(entry);
    found_.emplace(entry.name, true);
    if (statement_.shard_size > 0 && !tiles(listed->second, entry.bytes)) {
      return add(
          entry.name, FileStatus::kChanged,
          fmt::format("has {} bytes, which the signed shards do not cover exactly", entry.bytes));
    }
    plan(entry, listed->second);
  }

  void place_unlisted(const ModelEntry& entry) {
    if (statement_.shard_size > 0 && entry.bytes == 0) return add(entry.name, FileStatus::kOk);
    if (options_.ignore_unsigned_files) return add(entry.name, FileStatus::kUnsigned);
    add(entry.name, FileStatus::kExtra, "is not in the signature");
  }

  // Returns whether shards of the stated size cover [0, bytes).
  bool tiles(const Listed& shards, uint64_t bytes) const {
    uint64_t at = 0;
    for (const Resource* shard : shards) {
      if (shard->begin != at || at >= bytes) return false;
      if (shard->end - at != std::min(statement_.shard_size, bytes - at)) return false;
      at = shard->end;
    }
    return at == bytes;
  }

  void plan(const ModelEntry& entry, const Listed& resources) {
    hashed_files_ += 1;
    hashed_bytes_ += entry.bytes;
    for (const Resource* resource : resources) {
      const bool shard = statement_.shard_size > 0;
      const uint64_t begin = shard ? resource->begin : 0;
      ranges_.push_back(
          {entry.name, begin, (shard ? resource->end : entry.bytes) - begin, entry.bytes});
      wanted_.push_back(resource);
    }
  }

  Status compare_digests(ThreadPool& pool) {
    const auto digests =
        FERRY_TRY(hash_ranges(tree_, ranges_, statement_.hash, pool, options_.progress));
    for (size_t begin = 0, end; begin < ranges_.size(); begin = end) {
      std::string changed;  // describes the first range that differs
      for (end = begin; end < ranges_.size() && ranges_[end].name == ranges_[begin].name; ++end) {
        if (digests[end] == wanted_[end]->digest || !changed.empty()) continue;
        changed = "differs from what was signed";
        if (statement_.shard_size > 0) {
          changed +=
              fmt::format(" (first in bytes {} to {})", wanted_[end]->begin, wanted_[end]->end);
        }
      }
      const FileStatus status = changed.empty() ? FileStatus::kOk : FileStatus::kChanged;
      add(ranges_[begin].name, status, std::move(changed));
    }
    return {};
  }

  const ModelTree& tree_;
  const ModelStatement& statement_;
  const CheckOptions& options_;
  std::map<std::string, Listed, std::less<>> listed_;
  std::vector<std::string> names_;  // the keys of listed_
  std::map<std::string, bool> found_;
  std::vector<FileRange> ranges_;        // the ranges to hash; ranges of one file are consecutive
  std::vector<const Resource*> wanted_;  // one for each range
  std::vector<CheckedFile> files_;
  uint64_t hashed_files_ = 0, hashed_bytes_ = 0;
};

void describe(const ModelStatement& statement, ModelCheck& check) {
  check.model = statement.model;
  check.root = hex_of(root_digest(statement.resources));
  check.method = statement.shard_size > 0 ? "shards" : "files";
  check.hash_type = name_of(statement.hash);
  check.ignore_paths = statement.ignore_paths;
}

void judge(ModelCheck& check) {
  const uint64_t differences = check.count(FileStatus::kChanged) +
                               check.count(FileStatus::kMissing) + check.count(FileStatus::kExtra);
  if (differences == 0) return;
  check.rejection =
      Rejection{Stage::kManifest,
                fmt::format("{}: not what was signed: {} changed, {} missing, {} extra",
                            printable(check.path), check.count(FileStatus::kChanged),
                            check.count(FileStatus::kMissing), check.count(FileStatus::kExtra))};
}

}  // namespace

std::string_view name_of(FileStatus status) {
  switch (status) {
    case FileStatus::kOk:
      return "ok";
    case FileStatus::kChanged:
      return "changed";
    case FileStatus::kMissing:
      return "missing";
    case FileStatus::kExtra:
      return "extra";
    case FileStatus::kUnsigned:
      return "unsigned";
    case FileStatus::kIgnored:
      return "ignored";
  }
  return "ok";
}

uint64_t ModelCheck::count(FileStatus status) const {
  return static_cast<uint64_t>(std::ranges::count(files, status, &CheckedFile::status));
}

Result<ModelCheck> check_model(const std::string& path, const std::string& signature,
                               const Trust& trust, const CheckOptions& options, ThreadPool& pool) {
  ModelCheck check;
  check.path = path;
  check.signature = signature;
  const std::string text = FERRY_TRY(read_text_file(signature, kMaxSignatureBytes));
  Verdict verdict = FERRY_TRY(verify_envelope(text, signature, trust));
  if (verdict.rejection) {
    check.rejection = std::move(verdict.rejection);
    return check;
  }
  check.signer = verdict.signer;
  const ModelTree tree = FERRY_TRY(ModelTree::open(path));
  const auto statement = read_statement(verdict.payload, printable(signature),
                                        tree.is_file() ? tree.name() : std::string());
  if (!statement && statement.error().code == ErrorCode::kBadInput) {
    check.rejection = Rejection{Stage::kStatement, statement.error().message};
    return check;
  }
  if (!statement) return Failure(statement.error());
  describe(*statement, check);
  Comparison comparison(tree, *statement, options);
  FERRY_RETURN_IF_ERROR(comparison.run(identity_of(signature), pool));
  check.files = comparison.take_files();
  check.hashed_files = comparison.hashed_files();
  check.hashed_bytes = comparison.hashed_bytes();
  judge(check);
  return check;
}

}  // namespace ferry::signing
