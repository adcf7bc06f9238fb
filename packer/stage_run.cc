#include "packer/stage_run.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "core/directory.h"
#include "core/text.h"
#include "packer/stage_contents.h"
#include "packer/stage_journal.h"

namespace ferry::packer {
namespace {

uint64_t total_bytes(const std::vector<PlannedFile>& files) {
  uint64_t bytes = 0;
  for (const PlannedFile& file : files) bytes += file.bytes;
  return bytes;
}

// Returns the bytes that files of this directory occupy on the disk.
uint64_t stored_bytes(const std::string& directory, const std::vector<PlannedFile>& files) {
  constexpr uint64_t kBlock = 512;  // unit of st_blocks on every file system
  uint64_t bytes = 0;
  for (const PlannedFile& file : files) {
    struct stat info {};
    if (::lstat((directory + "/" + file.path).c_str(), &info) != 0) continue;
    bytes += std::min<uint64_t>(file.bytes, static_cast<uint64_t>(info.st_blocks) * kBlock);
  }
  return bytes;
}

// Whether the next run should continue from the stage. It should not if it would fail in the same
// way, or if the system failed to write some bytes: the system may show such bytes although the
// disk does not have them.
bool is_worth_keeping(const Error& error, const ResumableStage& stage) {
  const bool passes = error.code == ErrorCode::kInterrupted || error.code == ErrorCode::kIo;
  return passes && !stage.journal.empty() && !stage.sync_failed;
}

// Fills the stage. Until it has been read, what an earlier run has left is kept, whatever fails.
Status fill_stage(const StagedOutput& output, StagingDirectory& staging,
                  const std::string& fingerprint, ThreadPool& pool, const FillStage& fill) {
  StageJournal journal = FERRY_TRY(StageJournal::open(staging.journal_path(), fingerprint));
  ResumableStage stage{.contents = FERRY_TRY(verified_contents(*output.files, staging.path(),
                                                               journal.records(), pool)),
                       .journal = std::move(journal)};
  Status filled = fill(staging, &stage);
  staging.keep(!filled && is_worth_keeping(filled.error(), stage));
  return filled;
}

Status write_resumable(const StagedOutput& output, ThreadPool& pool, const FillStage& fill) {
  const std::string fingerprint = FERRY_TRY(stage_fingerprint(*output.files, output.plan_text()));
  if (fingerprint.empty()) {
    return fail_field(
        ErrorCode::kUnsupported, "resume",
        fmt::format(": {} is no checkpoint in files", printable(output.files->source->path())));
  }
  StagingDirectory staging = FERRY_TRY(StagingDirectory::create_stage(
      output.path, output.overwrite, fingerprint.substr(0, 16), output.kind));
  if (!output.parts.empty()) {
    FERRY_RETURN_IF_ERROR(take_parts(output.parts, *output.files, fingerprint, staging));
  }
  const uint64_t stored = stored_bytes(staging.path(), *output.listing);
  FERRY_RETURN_IF_ERROR(require_space(StagingDirectory::parent_of(output.path),
                                      total_bytes(*output.listing) - stored, output.path));
  Status filled = fill_stage(output, staging, fingerprint, pool, fill);
  if (filled) {
    FERRY_RETURN_IF_ERROR(staging.publish(/*synced=*/true));
    remove_parts(output.parts);
    return {};
  }
  if (staging.is_kept()) {
    filled.error().message += fmt::format("; what is done is kept in {}: the same command goes on",
                                          quoted(staging.root()));
  }
  return filled;
}

}  // namespace

Status write_staged(const StagedOutput& output, ThreadPool& pool, const FillStage& fill) {
  if (output.resume || !output.parts.empty()) {
    if (output.synced) return write_resumable(output, pool, fill);
    return fail(ErrorCode::kUsage, fmt::format("{}: what a later run goes on with must be synced",
                                               printable(output.path)));
  }
  StagingDirectory staging =
      FERRY_TRY(StagingDirectory::create(output.path, output.overwrite, output.kind));
  FERRY_RETURN_IF_ERROR(require_space(StagingDirectory::parent_of(output.path),
                                      total_bytes(*output.listing), output.path));
  FERRY_RETURN_IF_ERROR(fill(staging, nullptr));
  return staging.publish(output.synced);
}

Status check_sources_unchanged(const FileSet& files) {
  FERRY_RETURN_IF_ERROR(files.source->check_unchanged());
  for (const auto& file : files.copied) FERRY_RETURN_IF_ERROR(file->check_unchanged());
  return {};
}

}  // namespace ferry::packer
