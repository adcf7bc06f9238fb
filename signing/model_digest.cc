#include "signing/model_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "core/utf8.h"
#include "signing/model_listing.h"
#include "signing/model_tree.h"

namespace ferry::signing {
namespace {

// A signature that lists more ranges is too long to be verified.
constexpr uint64_t kMostRanges = 1'000'000;

Result<std::vector<std::string>> plain_paths(const std::vector<std::string>& given) {
  std::vector<std::string> paths(kAlwaysIgnored.begin(), kAlwaysIgnored.end());
  for (std::string path : given) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    if (!is_canonical_name(path) || has_pattern(path)) {
      return fail(
          ErrorCode::kUsage,
          fmt::format("cannot ignore {}: a path to ignore is relative to the model, without "
                      "'.', '..' and patterns",
                      quoted(path)));
    }
    paths.push_back(std::move(path));
  }
  std::ranges::sort(paths);
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

// The error names all symbolic links and all names that are not UTF-8.
Status check_entries(const ModelTree& tree, const std::vector<ModelEntry>& entries) {
  std::vector<std::string> problems;
  for (const ModelEntry& entry : entries) {
    const char* problem = entry.kind == EntryKind::kIgnored   ? nullptr
                          : entry.kind == EntryKind::kLink    ? "is a symbolic link"
                          : entry.kind == EntryKind::kSpecial ? "is not a regular file"
                          : !utf8::is_valid(entry.name)       ? "has a name that is not UTF-8"
                                                              : nullptr;
    if (problem == nullptr) continue;
    problems.push_back(fmt::format("{}: {}", printable(tree.path_of(entry.name)), problem));
  }
  if (problems.empty()) return {};
  Error error{ErrorCode::kBadInput, problems.front() + ": a signature cannot cover it"};
  if (problems.size() > 1) error.details = std::move(problems);
  return Failure(std::move(error));
}

// Adds one range, or one for each shard. An empty file has no shards.
void add_ranges(const ModelEntry& file, uint64_t shard_size, std::vector<FileRange>& ranges) {
  if (shard_size == 0) {
    ranges.push_back({file.name, 0, file.bytes, file.bytes});
    return;
  }
  for (uint64_t begin = 0; begin < file.bytes && ranges.size() <= kMostRanges;) {
    const uint64_t bytes = std::min(shard_size, file.bytes - begin);
    ranges.push_back({file.name, begin, bytes, file.bytes});
    begin += bytes;
  }
}

}  // namespace

Result<ListedModel> list_for_signing(const std::string& path, const DigestOptions& options) {
  ListedModel model;
  model.ignore_paths = FERRY_TRY(plain_paths(options.ignore_paths));
  model.tree = FERRY_TRY(ModelTree::open(path));
  const std::vector<std::string> none;
  const auto entries =
      FERRY_TRY(model.tree.list(IgnoredPaths(model.ignore_paths, none), std::nullopt));
  FERRY_RETURN_IF_ERROR(check_entries(model.tree, entries));
  for (const ModelEntry& entry : entries) {
    if (entry.kind == EntryKind::kIgnored) {
      model.ignored.push_back(entry.name);
      continue;
    }
    model.files += 1;
    model.bytes += entry.bytes;
    add_ranges(entry, options.shard_size, model.ranges);
    if (model.ranges.size() <= kMostRanges) continue;
    return bad_input(fmt::format("{}: more than {} files or shards", printable(path), kMostRanges));
  }
  if (model.ranges.empty()) {
    return bad_input(fmt::format("{}: there is nothing in it to sign", printable(path)));
  }
  return model;
}

Result<std::vector<Resource>> hash_listed(const ListedModel& model, const DigestOptions& options,
                                          ThreadPool& pool) {
  const auto digests =
      FERRY_TRY(hash_ranges(model.tree, model.ranges, HashType::kSha256, pool, options.progress));
  std::vector<Resource> resources;
  for (size_t i = 0; i < digests.size(); ++i) {
    const FileRange& range = model.ranges[i];
    resources.push_back({range.name, range.offset, range.offset + range.bytes, digests[i]});
  }
  const bool shards = options.shard_size > 0;
  std::ranges::sort(resources, {}, [&](const Resource& r) { return full_name(r, shards); });
  return resources;
}

ModelDigest summarise(ListedModel model, const std::vector<Resource>& resources,
                      const DigestOptions& options) {
  ModelDigest digest{options.name.empty() ? model.tree.name() : options.name,
                     hex_of(root_digest(resources))};
  for (const Resource& resource : resources) {
    digest.parts.push_back({full_name(resource, options.shard_size > 0), hex_of(resource.digest),
                            resource.end - resource.begin});
  }
  digest.ignored = std::move(model.ignored);
  digest.ignore_paths = std::move(model.ignore_paths);
  digest.files = model.files;
  digest.bytes = model.bytes;
  return digest;
}

Result<ModelDigest> model_digest(const std::string& path, const DigestOptions& options,
                                 ThreadPool& pool) {
  ListedModel model = FERRY_TRY(list_for_signing(path, options));
  const auto resources = FERRY_TRY(hash_listed(model, options, pool));
  return summarise(std::move(model), resources, options);
}

}  // namespace ferry::signing
