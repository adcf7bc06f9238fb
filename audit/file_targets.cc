// Audits checkpoints, programs and data files.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "audit/checkpoint_leaves.h"
#include "audit/program_leaves.h"
#include "audit/targets.h"
#include "checkpoint/checkpoint.h"
#include "core/text.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/bundled.h"
#include "formats/pte/reader.h"

namespace ferry::audit {
namespace {

Audit new_audit(const std::string& path, const char* type) {
  return Audit{.name = target_name(path), .type = type};
}

void append(Audit& audit, std::vector<Leaf> leaves) {
  std::ranges::move(leaves, std::back_inserter(audit.leaves));
}

// A bundled program (.bpte) holds inputs and expected outputs before and behind the program itself.
Leaf test_cases(uint32_t file, uint64_t offset, uint64_t bytes) {
  return {.file = file,
          .offset = offset,
          .bytes = bytes,
          .kind = LeafKind::kReference,
          .name = "test cases",
          .component = "files"};
}

// Adds a program or bundled program as the next file of the audit.
Status add_program(Audit& audit, const InputFile& input, const std::string& name) {
  const MappedFile file = FERRY_TRY(MappedFile::map(input));
  const std::string shown = printable(input.path());
  const auto index = static_cast<uint32_t>(audit.files.size());
  std::span<const std::byte> program = file.bytes();
  if (pte::is_bundled(program)) {
    program = FERRY_TRY(pte::read_bundled(file.bytes(), shown)).program;
  }
  const auto begin = static_cast<uint64_t>(program.data() - file.bytes().data());
  const uint64_t end = begin + program.size();
  if (begin > 0) audit.leaves.push_back(test_cases(index, 0, begin));
  const pte::LoadedProgram loaded = FERRY_TRY(pte::read_program(program, shown));
  std::vector<Leaf> leaves = FERRY_TRY(leaves_of_program(loaded, program, index, shown)).leaves;
  for (Leaf& leaf : leaves) leaf.offset += begin;
  append(audit, std::move(leaves));
  if (end < file.bytes().size()) {
    audit.leaves.push_back(test_cases(index, end, file.bytes().size() - end));
  }
  audit.files.push_back({name, file.bytes().size(), "program"});
  if (!audit.memory) audit.memory.emplace();
  add_memory(loaded.program, index, *audit.memory);
  return {};
}

Status add_data(Audit& audit, const InputFile& input, const std::string& name) {
  const MappedFile file = FERRY_TRY(MappedFile::map(input));
  const ptd::DataFile data = FERRY_TRY(ptd::read_data_file(file.bytes(), printable(input.path())));
  const auto index = static_cast<uint32_t>(audit.files.size());
  append(audit, leaves_of_data(data, file.bytes().size(), index, {}));
  audit.files.push_back({name, file.bytes().size(), "data"});
  return {};
}

// Sorts the tensor files and the other files of a checkpoint by path, and renumbers Leaf::file
// accordingly.
void merge_files(Audit& audit, CheckpointLeaves tensors, std::vector<AuditedFile> others) {
  std::map<std::string, std::vector<Leaf>> by_path;
  for (Leaf& leaf : tensors.leaves) {
    by_path[tensors.files[leaf.file].path].push_back(std::move(leaf));
  }
  audit.files = std::move(tensors.files);
  std::ranges::move(others, std::back_inserter(audit.files));
  std::ranges::sort(audit.files, {}, &AuditedFile::path);
  for (uint32_t i = 0; i < audit.files.size(); ++i) {
    const AuditedFile& file = audit.files[i];
    const auto found = by_path.find(file.path);
    if (found == by_path.end()) {
      audit.leaves.push_back(whole_file(file, i));
      continue;
    }
    for (Leaf& leaf : found->second) leaf.file = i;
    append(audit, std::move(found->second));
  }
}

}  // namespace

Result<Audit> audit_program(const InputFile& file) {
  Audit audit = new_audit(file.path(), "program");
  FERRY_RETURN_IF_ERROR(add_program(audit, file, audit.name));
  return audit;
}

Result<Audit> audit_data(const InputFile& file) {
  Audit audit = new_audit(file.path(), "data");
  FERRY_RETURN_IF_ERROR(add_data(audit, file, audit.name));
  return audit;
}

Result<Audit> audit_folder(const std::string& path) {
  Audit audit = new_audit(path, "folder");
  for (AuditedFile& found : FERRY_TRY(other_files(path, {}))) {
    const bool program = found.path.ends_with(".pte"), data = found.path.ends_with(".ptd");
    if (!program && !data) {
      audit.leaves.push_back(whole_file(found, static_cast<uint32_t>(audit.files.size())));
      audit.files.push_back(std::move(found));
      continue;
    }
    const InputFile input = FERRY_TRY(InputFile::open(path + "/" + found.path));
    FERRY_RETURN_IF_ERROR(program ? add_program(audit, input, found.path)
                                  : add_data(audit, input, found.path));
  }
  return audit;
}

Result<Audit> audit_checkpoint(const std::string& path) {
  const checkpoint::Checkpoint checkpoint = FERRY_TRY(checkpoint::open_checkpoint(path));
  Audit audit = new_audit(path, "checkpoint");
  CheckpointLeaves tensors = FERRY_TRY(leaves_of_checkpoint(checkpoint, path));
  std::vector<AuditedFile> others;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    others = FERRY_TRY(other_files(path, tensors.files));
  } else if (path.ends_with(".json")) {
    const InputFile index = FERRY_TRY(InputFile::open(path));
    others.push_back({base_name(path), index.size(), "metadata"});
  }
  merge_files(audit, std::move(tensors), std::move(others));
  FERRY_RETURN_IF_ERROR(checkpoint.source->check_unchanged());
  return audit;
}

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 100'000;
constexpr int kMostLevels = 16;

struct NamePattern {
  std::string_view pattern, type;
};
constexpr NamePattern kPatterns[] = {
    {"tokenizer*", "tokenizer"},
    {"vocab*", "tokenizer"},
    {"merges.txt", "tokenizer"},
    {"special_tokens_map.json", "tokenizer"},
    {"added_tokens.json", "tokenizer"},
    {"spiece.model", "tokenizer"},
    {"*.spm", "tokenizer"},
    {"*.tiktoken", "tokenizer"},
    {"chat_template*", "tokenizer"},
    {"*config*.json", "metadata"},
    {"*.index.json", "metadata"},
    {"*.weights.json", "metadata"},
    {"metadata.json", "metadata"},
};

LeafKind kind_of(std::string_view type) { return kind_from_name(type).value_or(LeafKind::kOther); }

}  // namespace

std::string_view type_of_file(std::string_view name) {
  for (const NamePattern& known : kPatterns) {
    if (glob_match(known.pattern, name)) return known.type;
  }
  return "other";
}

Result<std::vector<AuditedFile>> other_files(const std::string& directory,
                                             const std::vector<AuditedFile>& known) {
  std::set<std::string_view> paths;
  for (const AuditedFile& file : known) paths.insert(file.path);
  std::vector<AuditedFile> out;
  std::error_code error;
  fs::recursive_directory_iterator at(directory, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at.depth() >= kMostLevels || out.size() >= kMostFiles) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: more than {} levels of directories or {} files",
                              printable(directory), kMostLevels, kMostFiles));
    }
    std::error_code ignored;
    if (!at->is_regular_file(ignored)) continue;
    const std::string path = at->path().lexically_relative(directory).string();
    if (paths.contains(path)) continue;
    const std::string type(type_of_file(base_name(path)));
    const uint64_t bytes = at->file_size(ignored);
    if (ignored) {
      return fail(ErrorCode::kIo, fmt::format("{}/{}: {}", printable(directory), printable(path),
                                              ignored.message()));
    }
    out.push_back({path, bytes, type});
  }
  if (error) {
    return fail(ErrorCode::kIo, fmt::format("{}: {}", printable(directory), error.message()));
  }
  std::ranges::sort(out, {}, &AuditedFile::path);
  return out;
}

Leaf whole_file(const AuditedFile& file, uint32_t index) {
  return Leaf{.file = index,
              .bytes = file.bytes,
              .kind = kind_of(file.type),
              .name = file.path,
              .component = "files"};
}

}  // namespace ferry::audit
