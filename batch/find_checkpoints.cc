#include "batch/find_checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include "core/directory.h"
#include "core/json_writer.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/utf8.h"
#include "formats/known_files.h"

namespace ferry::batch {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::string_view kBundleFile = "manifest.json";
constexpr std::array<std::string_view, 7> kTensorSuffixes = {".safetensors", ".bin", ".pt",  ".pth",
                                                             ".ckpt",        ".h5",  ".hdf5"};

struct Names {
  std::vector<std::string> files, folders;
  bool has(std::string_view name) const {
    return std::ranges::binary_search(files, name, std::less<>());
  }
};

std::string joined(const std::string& directory, const std::string& name) {
  return directory.ends_with('/') ? directory + name : directory + "/" + name;
}

Result<Names> names_in(const std::string& path) {
  const Directory directory = FERRY_TRY(Directory::open(path));
  Names names;
  for (const std::string& name : FERRY_TRY(directory.names())) {
    if (name.starts_with('.')) continue;
    const std::string full = joined(path, name);
    struct stat itself = {}, target = {};
    if (::lstat(full.c_str(), &itself) != 0 || ::stat(full.c_str(), &target) != 0) continue;
    if (S_ISREG(target.st_mode)) names.files.push_back(name);
    if (S_ISDIR(itself.st_mode)) names.folders.push_back(name);
  }
  return names;
}

bool is_tensor_file(const std::string& name) {
  return std::ranges::any_of(kTensorSuffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool is_single_checkpoint(const Names& names, const std::string& file) {
  return file.ends_with(".gguf") || (names.has("config.json") && is_tensor_file(file));
}

// `inside`: `path` is inside a checkpoint, where folders with a config.json but without weights are
// normal.
Status find_below(const std::string& path, int depth, bool inside, FoundCheckpoints& found) {
  if (depth > kMaxDepth) {
    return bad_input(fmt::format("{}: more than {} folders deep", printable(path), kMaxDepth));
  }
  const Names names = FERRY_TRY(names_in(path));
  if (names.has(kBundleFile)) return {};
  const bool whole = std::ranges::any_of(formats::kKnownFiles,
                                         [&](std::string_view known) { return names.has(known); });
  const size_t before = found.checkpoints.size();
  if (whole) found.checkpoints.push_back(path);
  for (const std::string& file : names.files) {
    if (!whole && is_single_checkpoint(names, file)) {
      found.checkpoints.push_back(joined(path, file));
    }
  }
  const bool any = found.checkpoints.size() > before;
  if (!any && !inside && names.has("config.json")) found.without_weights.push_back(path);
  for (const std::string& folder : names.folders) {
    FERRY_RETURN_IF_ERROR(find_below(joined(path, folder), depth + 1, inside || any, found));
  }
  return {};
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// -- ids

// Returns "llama.step-1" for "llama/step 1".
std::string id_text(std::string_view path) {
  std::string id;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    id += plain ? c : c == '/' ? '.' : '-';
  }
  id.erase(0, std::min(id.find_first_not_of(".-"), id.size()));
  return id;
}

std::string short_digest(std::string_view text) {
  constexpr size_t kDigits = 8;
  return to_hex(sha256(std::as_bytes(std::span<const char>(text)))).substr(0, kDigits);
}

struct Found {
  std::string path, below;  // below: path below the searched directory, or that one's name
};

// Returns one id for each path. If two paths would have equal ids, both ids end in a digest of the
// path, so that an id does not depend on the order.
std::vector<std::string> ids_of(const std::vector<Found>& all) {
  std::map<std::string, size_t> uses;
  for (const Found& found : all) ++uses[id_text(found.below)];
  std::vector<std::string> ids;
  for (const Found& found : all) {
    constexpr size_t kLongest = 180;
    std::string id = id_text(found.below);
    const bool unique = uses[id] == 1 && !id.empty() && id.size() <= kLongest;
    if (!unique) id = fmt::format("{}-{}", id.substr(0, kLongest), short_digest(found.path));
    if (!is_task_id(id)) id = "checkpoint" + id;  // the id is only '-' and a digest
    ids.push_back(std::move(id));
  }
  return ids;
}

// -- the text

void write_words(JsonWriter& json, const std::vector<std::string>& words) {
  json.key("args").begin_array();
  for (const std::string& word : words) json.value(word);
  json.end_array();
}

void write_verify(JsonWriter& json, const Verify& verify) {
  json.key("verify").begin_object();
  if (verify.embedded) json.member("embedded", true);
  if (verify.checkpoint) json.member("checkpoint", true);
  if (verify.check) json.member("check", true);
  json.end_object();
}

std::string header_line(const PlanOptions& options) {
  JsonWriter json;
  json.begin_object().member("ferry_plan", 1).key("defaults").begin_object();
  if (!options.args.empty()) write_words(json, options.args);
  if (options.verify.verifies() || options.verify.check) write_verify(json, options.verify);
  json.end_object().end_object();
  return json.take();
}

Result<std::vector<Found>> find_all(const std::vector<std::string>& directories,
                                    std::vector<std::string>& without_weights) {
  std::map<std::string, Found> all;  // keyed by path: a folder that is given twice counts once
  for (const std::string& given : directories) {
    const std::string root = without_slashes(given);
    const FoundCheckpoints found = FERRY_TRY(find_checkpoints(root));
    without_weights.insert(without_weights.end(), found.without_weights.begin(),
                           found.without_weights.end());
    for (const std::string& path : found.checkpoints) {
      const std::string below =
          path == root ? base_name(root) : path.substr(joined(root, "").size());
      if (!utf8::is_valid(path)) {
        return bad_input(
            fmt::format("{}: the path is not UTF-8, which a plan needs", printable(path)));
      }
      all.emplace(path, Found{path, below});
    }
  }
  std::vector<Found> list;
  for (auto& [path, found] : all) list.push_back(std::move(found));
  return list;
}

}  // namespace

Result<FoundCheckpoints> find_checkpoints(const std::string& directory) {
  FoundCheckpoints found;
  FERRY_RETURN_IF_ERROR(find_below(directory, 0, /*inside=*/false, found));
  std::ranges::sort(found.checkpoints);
  std::ranges::sort(found.without_weights);
  return found;
}

Result<PlannedText> make_plan(const PlanOptions& options) {
  std::vector<std::string> without_weights;
  const std::vector<Found> all = FERRY_TRY(find_all(options.directories, without_weights));
  if (all.empty()) {
    Failure none =
        bad_input(fmt::format("{}: no checkpoint in or below it",
                              printable(fmt::format("{}", fmt::join(options.directories, ", ")))));
    for (const std::string& path : without_weights) {
      none.error().details.push_back(fmt::format("{}: {}", printable(path), kNoWeights));
    }
    return none;
  }
  const std::vector<std::string> ids = ids_of(all);
  PlannedText planned{.text = header_line(options),
                      .tasks = all.size(),
                      .without_weights = std::move(without_weights)};
  for (size_t i = 0; i < all.size(); ++i) {
    JsonWriter json;
    json.begin_object().member("id", ids[i]).member("input", all[i].path);
    json.member("output", joined(options.out_dir, ids[i])).end_object();
    planned.text += json.take();
  }
  // The parser refuses words of `args` that are not allowed. They come from the caller, so the
  // error is kUsage.
  const auto plan = parse_plan(planned.text, "the plan");
  return plan ? Result<PlannedText>(std::move(planned))
              : fail(ErrorCode::kUsage, plan.error().message);
}

}  // namespace ferry::batch
