// Parts of a bundle are data files that other hosts have written. Each part is a directory of its
// own with a journal of its contents (stage_journal.h). Writes a part, and moves parts into a
// stage.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/directory.h"
#include "core/file.h"
#include "core/result.h"
#include "core/text.h"
#include "packer/bundle_plan.h"
#include "packer/bundle_plan_impl.h"
#include "packer/file_writer.h"
#include "packer/manifest.h"
#include "packer/stage_journal.h"
#include "packer/stage_run.h"

namespace ferry::packer {
namespace {

// Returns the part, counted from 0, of each file with weights.
std::map<size_t, size_t> parts_of(const FileSet& plan, size_t count) {
  std::vector<size_t> files;
  for (size_t f = 0; f < plan.files.size(); ++f) {
    if (plan.files[f].has_weights) files.push_back(f);
  }
  std::ranges::stable_sort(files, std::greater(), [&](size_t f) { return plan.files[f].bytes; });
  std::vector<uint64_t> bytes(count, 0);
  std::map<size_t, size_t> parts;
  for (const size_t f : files) {
    const auto least = static_cast<size_t>(std::ranges::min_element(bytes) - bytes.begin());
    parts[f] = least;
    bytes[least] += plan.files[f].bytes;
  }
  return parts;
}

bool is_file(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Copies a file and syncs the copy.
Status copy_synced(const std::string& from, const std::string& to) {
  const InputFile file = FERRY_TRY(InputFile::open(from));
  std::vector<std::byte> bytes(file.size());
  FERRY_RETURN_IF_ERROR(file.read_at(0, bytes));
  OutputFile out = FERRY_TRY(OutputFile::create(to, bytes.size()));
  FERRY_RETURN_IF_ERROR(out.write_at(0, bytes));
  return out.sync_and_close();
}

// Returns the directories of the parts, in the order of their names.
Result<std::vector<std::string>> part_directories(const std::string& directory) {
  const Directory opened = FERRY_TRY(Directory::open(directory));
  std::vector<std::string> found;
  for (const std::string& name : FERRY_TRY(opened.names())) {
    if (name.starts_with('.')) continue;  // a part that is still being written
    std::string path = fmt::format("{}/{}", directory, name);
    if (is_file(fmt::format("{}/{}", path, kPartName))) found.push_back(std::move(path));
  }
  return found;
}

class Taker {
 public:
  Taker(const FileSet& plan, StagingDirectory& stage) : plan_(plan), stage_(stage) {}

  Status run(const std::string& directory, std::string_view fingerprint) {
    const std::vector<std::string> parts = FERRY_TRY(part_directories(directory));
    for (const std::string& part : parts) FERRY_RETURN_IF_ERROR(read(part, fingerprint));
    FERRY_RETURN_IF_ERROR(find_files(directory, parts));
    stage_.keep(true);
    FERRY_RETURN_IF_ERROR(note_records(fingerprint));
    return move_files();
  }

 private:
  Status read(const std::string& part, std::string_view fingerprint) {
    const std::string path = fmt::format("{}/{}", part, kPartName);
    auto records = FERRY_TRY(StageJournal::records_of(path, fingerprint));
    if (!records) {
      return bad_input(fmt::format(
          "{}: is a part of another bundle: its checkpoint, its options or its version of Ferry "
          "differ",
          printable(part)));
    }
    std::ranges::move(*records, std::back_inserter(records_));
    return {};
  }

  std::string in_stage(const FilePlan& file) const {
    return fmt::format("{}/{}", stage_.path(), file.name);
  }

  // Finds the part that has each data file which the stage lacks.
  Status find_files(const std::string& directory, const std::vector<std::string>& parts) {
    Error missing;
    for (const FilePlan& file : plan_.files) {
      if (!file.has_weights) continue;
      const auto at = std::ranges::find_if(parts, [&](const std::string& part) {
        return is_file(fmt::format("{}/{}", part, file.name));
      });
      if (at != parts.end()) {
        moves_.emplace_back(fmt::format("{}/{}", *at, file.name), in_stage(file));
      } else if (!is_file(in_stage(file))) {
        missing.details.push_back(fmt::format("{}: no part has it", printable(file.name)));
      }
    }
    if (missing.details.empty()) return {};
    missing.code = ErrorCode::kBadInput;
    missing.message = fmt::format("{}: {} data files are missing: not all parts are there",
                                  printable(directory), missing.details.size());
    return Failure(std::move(missing));
  }

  Status note_records(std::string_view fingerprint) const {
    StageJournal journal = FERRY_TRY(StageJournal::open(stage_.journal_path(), fingerprint));
    for (const WeightRecord& record : records_) {
      FERRY_RETURN_IF_ERROR(journal.append(record, 0));
    }
    return {};
  }

  Status move_files() const {
    for (const auto& [from, to] : moves_) {
      if (::rename(from.c_str(), to.c_str()) == 0) continue;
      return os_error(from,
                      errno == EXDEV ? "cannot be moved into the bundle, which is on another file "
                                       "system"
                                     : "cannot be moved into the bundle",
                      errno);
    }
    return {};
  }

  const FileSet& plan_;
  StagingDirectory& stage_;
  std::vector<WeightRecord> records_;
  std::vector<std::pair<std::string, std::string>> moves_;
};

std::vector<PlannedFile> listing_of(const FileSet& files) {
  std::vector<PlannedFile> listing;
  for (const FilePlan& file : files.files) listing.push_back({file.name, file.bytes});
  return listing;
}

// Returns the data files of one part. Each file, the largest first, goes to the part that has the
// fewest bytes so far, so that parts have about equal sizes. kUsage if a part would have no file.
Result<FileSet> files_of_part(const FileSet& plan, const BundlePart& part) {
  const std::map<size_t, size_t> parts = parts_of(plan, part.count);
  if (parts.size() < part.count) {
    return fail_field(
        ErrorCode::kUsage, "part",
        fmt::format(" {}/{}: the bundle has {} data files; a smaller file size makes more",
                    part.number, part.count, parts.size()));
  }
  FileSet files = plan;
  files.files.clear();
  for (const auto& [file, number] : parts) {
    if (number + 1 == part.number) files.files.push_back(plan.files[file]);
  }
  return files;
}

}  // namespace

Status take_parts(const std::string& directory, const FileSet& plan, std::string_view fingerprint,
                  StagingDirectory& stage) {
  return Taker(plan, stage).run(directory, fingerprint);
}

void remove_parts(const std::string& directory) {
  if (directory.empty()) return;
  for (const std::string& part : part_directories(directory).value_or(std::vector<std::string>())) {
    (void)::unlink(fmt::format("{}/{}", part, kPartName).c_str());
    (void)::rmdir(part.c_str());  // fails if the directory contains anything else
  }
}

Result<WrittenPart> BundlePlan::write_part(const BundleTarget& target, const BundlePart& part,
                                           ThreadPool& pool, const ShowProgress& progress) const {
  const FileSet files = FERRY_TRY(files_of_part(*impl_, part));
  const std::vector<PlannedFile> listing = listing_of(files);
  const StagedOutput output{.path = target.directory,
                            .kind = StagingDirectory::Kind::kBundle,
                            .overwrite = target.overwrite,
                            .resume = true,
                            .files = &files,
                            .listing = &listing,
                            .plan_text = [&] { return write_manifest(impl_->manifest); }};
  WrittenPart written{.files = listing};
  for (const PlannedFile& file : listing) written.bytes += file.bytes;
  const auto fill = [&](const StagingDirectory& staging, ResumableStage* stage) -> Status {
    const FileDigests digests =
        FERRY_TRY(write_files(files, OutputFolder(staging.path(), true), stage, pool, progress));
    written.resumed_bytes = digests.taken_over;
    FERRY_RETURN_IF_ERROR(check_sources_unchanged(files));
    return copy_synced(staging.journal_path(), fmt::format("{}/{}", staging.path(), kPartName));
  };
  FERRY_RETURN_IF_ERROR(write_staged(output, pool, fill));
  return written;
}

}  // namespace ferry::packer
