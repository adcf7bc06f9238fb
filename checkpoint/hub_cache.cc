#include "checkpoint/hub_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/directory.h"
#include "core/file.h"
#include "core/text.h"

namespace ferry::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxRevisionBytes = 256;
constexpr size_t kLeastCommitDigits = 4;
constexpr std::string_view kGgufSuffix = ".gguf";

bool is_plain_name(std::string_view name) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && !name.starts_with('.') && std::ranges::all_of(name, fits);
}

// A revision such as "main", "v1.0" or "refs/pr/1".
bool is_revision(std::string_view text) {
  if (text.empty() || text.size() > kMaxRevisionBytes) return false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    if (!is_plain_name(text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

struct HubName {
  std::string organisation = {}, name = {}, revision = {}, file = {};
  bool is_explicit = false;  // has a mark that paths do not have, such as "@" or "hf://"

  // Older models such as "gpt2" belong to no organisation.
  std::string id() const { return organisation.empty() ? name : organisation + "/" + name; }
  std::string entry() const {
    return organisation.empty() ? "models--" + name
                                : fmt::format("models--{}--{}", organisation, name);
  }
  std::string download() const {
    std::string line = "hf download " + id();
    if (!revision.empty()) line += " --revision " + revision;
    if (file.ends_with(kGgufSuffix)) return line + " " + file;
    return file.empty() ? line : fmt::format("{} --include '*{}*{}'", line, file, kGgufSuffix);
  }
};

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts, size_t first) {
  std::string text;
  for (size_t i = first; i < parts.size(); ++i) text += (text.empty() ? "" : "/") + parts[i];
  return text;
}

// Whether a text such as "models/tiny.gguf" names a file, not a model.
bool is_file_name(std::string_view name) {
  constexpr std::string_view kEnds[] = {".gguf", ".safetensors", ".json", ".bin", ".pt",  ".pth",
                                        ".h5",   ".keras",       ".pte",  ".ptd", ".bpte"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

// Removes the start of an address, and what a browser adds to its end. Returns whether it was one.
bool strip_address(std::string_view& text) {
  for (const std::string_view prefix :
       {"hf://", "https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/"}) {
    if (!text.starts_with(prefix)) continue;
    text.remove_prefix(prefix.size());
    text = text.substr(0, text.find('?'));
    while (text.ends_with('/')) text.remove_suffix(1);
    return true;
  }
  return false;
}

// Takes the revision and the file out of the path of a page of the hub, ORG/NAME/tree/REVISION or
// ORG/NAME/blob/REVISION/FILE.
void take_page(std::vector<std::string>& parts, HubName& name) {
  constexpr size_t kPage = 2, kRevision = 3;
  const bool is_page =
      parts.size() > kRevision &&
      (parts[kPage] == "tree" || parts[kPage] == "blob" || parts[kPage] == "resolve");
  if (!is_page) return;
  name.revision = parts[kRevision];
  name.file = joined(parts, kRevision + 1);
  parts.resize(kPage);
}

std::optional<HubName> parse_name(std::string_view text) {
  HubName name;
  const bool is_address = strip_address(text);
  const auto split = [&](char mark, std::string& rest) {
    const size_t at = text.find(mark);
    if (at == std::string_view::npos) return true;
    name.is_explicit = true;
    rest = text.substr(at + 1);
    text = text.substr(0, at);
    return !rest.empty();
  };
  if (!split(':', name.file) || !split('@', name.revision)) return {};
  if (is_address) name.is_explicit = true;
  std::vector<std::string> parts = parts_of(text);
  if (is_address) take_page(parts, name);
  if (parts.size() > 2 && name.file.empty() && parts.back().ends_with(kGgufSuffix)) {
    name.file = joined(parts, 2);
    parts.resize(2);
  }
  if (!name.file.empty() && !is_revision(name.file)) return {};
  if (!name.revision.empty() && !is_revision(name.revision)) return {};
  if (parts.size() > 2 || !std::ranges::all_of(parts, is_plain_name)) return {};
  if (is_file_name(parts.back())) return {};
  name.name = parts.back();
  if (parts.size() == 2) name.organisation = parts.front();
  return name;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return {};
  std::string text = value;
  const char* home = std::getenv("HOME");
  if (home != nullptr && (text == "~" || text.starts_with("~/"))) text.replace(0, 1, home);
  return text;
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Returns the names in the folder, or nothing if it cannot be read.
std::vector<std::string> names_of_folder(const std::string& path) {
  const Result<Directory> directory = Directory::open(path);
  return directory ? directory->names().value_or(std::vector<std::string>())
                   : std::vector<std::string>();
}

// Returns the commit that a branch or tag of the entry names, or an empty text.
std::string commit_of(const std::string& entry, const std::string& revision) {
  const Result<InputFile> file =
      InputFile::open(entry + "/refs/" + revision, InputFile::Links::kRefuse);
  if (!file) return {};
  Result<std::string> text = read_text(*file, kMaxRevisionBytes);
  if (!text) return {};
  std::erase_if(*text, [](unsigned char c) { return std::isspace(c) != 0; });
  return is_plain_name(*text) ? *text : std::string();
}

// Returns "; N downloads have not ended" where the entry has parts of blobs.
std::string unfinished(const std::string& entry) {
  const std::vector<std::string> blobs = names_of_folder(entry + "/blobs");
  const auto count = std::ranges::count_if(
      blobs, [](const std::string& name) { return name.ends_with(".incomplete"); });
  if (count == 0) return {};
  return count == 1 ? "; 1 download has not ended"
                    : fmt::format("; {} downloads have not ended", count);
}

Failure absent(const std::string& text, const HubName& name, std::string_view what) {
  return fail(
      ErrorCode::kIo,
      fmt::format("{}: no such file or directory, and {} in the Hugging Face cache {}{}; to "
                  "download it: {}",
                  printable(text), what, printable(hub_cache_directory()),
                  unfinished(hub_cache_directory() + "/" + name.entry()), name.download()));
}

// Whether the link of a file of a snapshot leads to a blob of its entry, as huggingface_hub makes
// it: "../../blobs/HASH", with a further ".." for each folder.
bool leads_to_blob(const fs::path& target, const std::string& file) {
  const auto depth = static_cast<size_t>(std::ranges::count(file, '/')) + 2;
  size_t up = 0;
  auto part = target.begin();
  for (; part != target.end() && *part == ".."; ++part) ++up;
  if (up != depth || part == target.end() || *part++ != "blobs") return false;
  return part != target.end() && is_plain_name(part->string()) && ++part == target.end();
}

// Refuses a link that no tool of Hugging Face makes.
Status check_link(const std::string& snapshot, const std::string& file) {
  const std::string path = snapshot + "/" + file;
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error))) return {};
  const fs::path target = fs::read_symlink(path, error);
  if (error || leads_to_blob(target, file)) return {};
  return bad_input(fmt::format("{}: a symbolic link out of the cache entry, to {}", printable(path),
                               quoted(target.string(), 60)));
}

// Refuses a link that leads to nothing.
Status check_blob(const std::string& text, const std::string& snapshot, const std::string& file) {
  const std::string path = snapshot + "/" + file;
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error)) || fs::exists(path, error)) return {};
  return fail(ErrorCode::kIo,
              fmt::format("{}: the snapshot in the Hugging Face cache is incomplete: the blob of "
                          "{} is missing{}",
                          printable(text), quoted(file), how_to_complete(snapshot)));
}

// Returns the path of the snapshot that the name means.
Result<std::string> find_snapshot(const std::string& text, const HubName& name) {
  const std::string entry = hub_cache_directory() + "/" + name.entry();
  if (!is_folder(entry)) return absent(text, name, "no model of this name");
  const std::string snapshots = entry + "/snapshots/";
  const std::string revision = name.revision.empty() ? "main" : name.revision;
  if (const std::string commit = commit_of(entry, revision); !commit.empty()) {
    if (is_folder(snapshots + commit)) return snapshots + commit;
    return absent(text, name, fmt::format("no snapshot of {}", revision));
  }
  std::vector<std::string> commits = names_of_folder(snapshots);
  if (name.revision.empty()) {
    if (commits.size() == 1) return snapshots + commits.front();
  } else if (revision.size() >= kLeastCommitDigits) {
    std::erase_if(commits,
                  [&](const std::string& commit) { return !commit.starts_with(revision); });
    if (commits.size() == 1) return snapshots + commits.front();
    if (commits.size() > 1) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: several commits begin with {}: {}", printable(text), revision,
                              printable(fmt::format("{}", fmt::join(commits, ", ")))));
    }
  }
  return absent(text, name, fmt::format("no revision {}", revision));
}

// Whether the name is that of a part of a split file which is not the first one, such as
// "model-00002-of-00003.gguf".
bool is_later_part(std::string_view name) {
  constexpr std::string_view kEnd = "-00002-of-00003.gguf";
  if (name.size() < kEnd.size()) return false;
  const std::string_view end = name.substr(name.size() - kEnd.size());
  return end.substr(6, 4) == "-of-" && !end.starts_with("-00001");
}

// Returns the GGUF files of the snapshot and of its folders; of a split file the first part alone.
std::vector<std::string> gguf_files(const std::string& snapshot) {
  std::vector<std::string> found;
  const auto add = [&found](const std::string& prefix, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (name.ends_with(kGgufSuffix) && !is_later_part(name)) {
        found.push_back(prefix + name);
      }
    }
  };
  const std::vector<std::string> names = names_of_folder(snapshot);
  add("", names);
  for (const std::string& name : names) {
    std::error_code error;
    if (!fs::is_directory(fs::symlink_status(snapshot + "/" + name, error))) continue;
    add(name + "/", names_of_folder(snapshot + "/" + name));
  }
  return found;
}

// How well a file fits the word: 3 for its name, 2 for a whole part of the name between
// punctuation, 1 for some part of it, 0 for none.
int fit(const std::string& file, const std::string& wanted) {
  const std::string name = lower_case(file), word = lower_case(wanted);
  if (name == word) return 3;
  const size_t at = name.rfind(word);
  if (at == std::string::npos) return 0;
  const auto is_mark = [&name](size_t i) {
    return i >= name.size() || name[i] == '-' || name[i] == '.' || name[i] == '/';
  };
  return (at == 0 || is_mark(at - 1)) && is_mark(at + word.size()) ? 2 : 1;
}

Result<std::string> choose_gguf(const std::string& text, const HubName& name,
                                const std::string& snapshot) {
  const std::vector<std::string> files = gguf_files(snapshot);
  std::vector<std::string> best;
  int most = 1;
  for (const std::string& file : files) {
    const int fits = name.file.empty() ? 1 : fit(file, name.file);
    if (fits > most) best.clear();
    if (fits >= most) best.push_back(file);
    most = std::max(most, fits);
  }
  if (best.size() == 1) {
    FERRY_RETURN_IF_ERROR(check_link(snapshot, best.front()));
    FERRY_RETURN_IF_ERROR(check_blob(text, snapshot, best.front()));
    return snapshot + "/" + best.front();
  }
  const bool is_missing = best.empty();
  Error error{is_missing ? ErrorCode::kBadInput : ErrorCode::kUsage,
              is_missing
                  ? fmt::format("{}: the snapshot has no GGUF file of that name; to download "
                                "it: {}",
                                printable(text), name.download())
                  : fmt::format("{}: the snapshot has {} GGUF files that fit; choose one, "
                                "such as {}:{}",
                                printable(text), best.size(), name.id(), printable(best.front()))};
  for (const std::string& file : is_missing ? files : best)
    error.details.push_back(printable(file));
  return Failure(std::move(error));
}

}  // namespace

std::string hub_cache_directory() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (std::string path = variable(name); !path.empty()) return path;
  }
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home + "/hub";
  const std::string cache = variable("XDG_CACHE_HOME");
  return (cache.empty() ? variable("HOME") + "/.cache" : cache) + "/huggingface/hub";
}

Result<std::string> find_source(const std::string& text) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(text, error))) return text;
  const std::optional<HubName> name = parse_name(text);
  if (!name) return text;
  auto snapshot = find_snapshot(text, *name);
  if (!snapshot) {
    // A word alone is a path unless the cache has it. So is a path into a folder that is there, and
    // the caller says that it is missing.
    const bool is_path = name->organisation.empty() || is_folder(name->organisation);
    return is_path && !name->is_explicit ? Result<std::string>(text) : snapshot;
  }
  const bool is_checkpoint = fs::exists(fs::symlink_status(*snapshot + "/config.json", error));
  if (!name->file.empty() || (!is_checkpoint && !gguf_files(*snapshot).empty())) {
    return choose_gguf(text, *name, *snapshot);
  }
  for (const std::string& file : names_of_folder(*snapshot)) {
    FERRY_RETURN_IF_ERROR(check_blob(text, *snapshot, file));
  }
  return snapshot;
}

std::string how_to_complete(const std::string& directory) {
  constexpr std::string_view kModels = "models--", kBetween = "--";
  const fs::path snapshot = fs::path(directory).lexically_normal();
  const fs::path place = snapshot.has_filename() ? snapshot : snapshot.parent_path();
  const fs::path entry = place.parent_path().parent_path();
  std::string id = entry.filename().string();
  if (place.parent_path().filename() != "snapshots" || !id.starts_with(kModels)) return {};
  id.erase(0, kModels.size());
  if (const size_t at = id.find(kBetween); at != std::string::npos) {
    id.replace(at, kBetween.size(), "/");
  }
  return fmt::format("{}; to download the rest: hf download {} --revision {}",
                     unfinished(entry.string()), printable(id),
                     printable(place.filename().string()));
}

std::string snapshot_of_entry(const std::string& directory) {
  const std::string entry = directory.substr(0, directory.find_last_not_of('/') + 1);
  const std::string snapshots = entry + "/snapshots/";
  const std::vector<std::string> commits = names_of_folder(snapshots);
  if (commits.empty()) return {};
  const std::string main = commit_of(entry, "main");
  if (std::ranges::count(commits, main) > 0) return snapshots + main;
  return snapshots + (commits.size() == 1 ? commits.front() : "REVISION");
}

}  // namespace ferry::checkpoint
