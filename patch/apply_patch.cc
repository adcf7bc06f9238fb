#include "patch/apply_patch.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/directory.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/sha256.h"
#include "core/text.h"
#include "packer/manifest.h"
#include "packer/staging_directory.h"
#include "patch/blocks.h"
#include "patch/patch_file.h"

namespace ferry::patch {
namespace {

using packer::StagingDirectory;

// Calls body(i) for every i in parallel and returns the error of the lowest i.
Status run_all(ThreadPool& pool, size_t count, const std::function<Status(size_t)>& body) {
  std::vector<Status> results(count);
  pool.parallel_for(count, [&](size_t i) { results[i] = body(i); });
  for (Status& result : results) FERRY_RETURN_IF_ERROR(std::move(result));
  return {};
}

Result<Digest> digest_of(const InputFile& file, SharedProgress& progress) {
  Sha256 hash;
  std::vector<std::byte> buffer(std::min<uint64_t>(file.size(), uint64_t{1} << 20));
  for (uint64_t at = 0; at < file.size(); at += buffer.size()) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const auto tile = std::span(buffer).first(std::min<uint64_t>(buffer.size(), file.size() - at));
    FERRY_RETURN_IF_ERROR(file.read_at(at, tile));
    hash.update(tile);
    progress.advance(tile.size());
  }
  return hash.finish();
}

Failure other_file(const std::string& path, const std::string& what) {
  return bad_input(
      fmt::format("{}: not the file that the patch was made for: {}", printable(path), what));
}

// Opens a file and compares size and digest.
Result<InputFile> open_expected(const Directory& directory, const FileEntry& expected,
                                SharedProgress& progress) {
  const std::string path = directory.path_of(expected.name);
  if (!directory.contains(expected.name)) return other_file(path, "it does not exist");
  InputFile file =
      FERRY_TRY(directory.open_file(expected.name, expected.name, InputFile::Links::kFollow));
  if (file.size() != expected.bytes) {
    return other_file(path, fmt::format("it has {} bytes and not {}", file.size(), expected.bytes));
  }
  if (FERRY_TRY(digest_of(file, progress)) != expected.sha256) {
    return other_file(path, "its SHA-256 differs");
  }
  return file;
}

class Applier {
 public:
  Applier(const PatchFile& patch, const std::string& old_folder, const ApplyOptions& options,
          ThreadPool& pool)
      : patch_(patch),
        table_(patch.table()),
        old_folder_(old_folder),
        output_(options.in_place ? old_folder : options.output),
        options_(options),
        pool_(pool),
        progress_(options.progress, old_bytes() + table_.new_bytes()) {}

  Status open_old_files() {
    const Directory directory = FERRY_TRY(Directory::open(old_folder_));
    std::vector<std::optional<InputFile>> opened(table_.old_files.size());
    FERRY_RETURN_IF_ERROR(run_all(pool_, opened.size(), [&](size_t i) -> Status {
      opened[i] = FERRY_TRY(open_expected(directory, table_.old_files[i], progress_));
      return {};
    }));
    for (auto& file : opened) old_files_.push_back(std::move(*file));
    return {};
  }

  Result<AppliedPatch> write() {
    const auto kind = table_.has_new_file(packer::kManifestName)
                          ? StagingDirectory::Kind::kBundle
                          : StagingDirectory::Kind::kCheckpoint;
    StagingDirectory staging =
        FERRY_TRY(StagingDirectory::create(output_, options_.overwrite || options_.in_place, kind));
    FERRY_RETURN_IF_ERROR(link_files(staging.path()));
    FERRY_RETURN_IF_ERROR(
        require_space(StagingDirectory::parent_of(output_), bytes_to_write(), output_));
    FERRY_RETURN_IF_ERROR(write_files(staging.path()));
    for (const InputFile& file : written_from()) FERRY_RETURN_IF_ERROR(file.check_unchanged());
    FERRY_RETURN_IF_ERROR(patch_.file().check_unchanged());
    if (options_.check) FERRY_RETURN_IF_ERROR(options_.check(staging.path()));
    FERRY_RETURN_IF_ERROR(staging.publish(/*synced=*/true));
    applied_.files = table_.new_files.size();
    applied_.bytes = table_.new_bytes();
    return applied_;
  }

 private:
  uint64_t old_bytes() const {
    uint64_t sum = 0;
    for (const FileEntry& file : table_.old_files) sum += file.bytes;
    return sum;
  }

  uint64_t bytes_to_write() const {
    uint64_t sum = table_.new_bytes();
    for (size_t i = 0; i < is_linked_.size(); ++i) {
      if (is_linked_[i]) sum -= table_.new_files[i].file.bytes;
    }
    return sum;
  }

  // The link count of a linked file, and with it its time of change, is another one by then. Its
  // contents were compared before.
  std::vector<std::reference_wrapper<const InputFile>> written_from() const {
    std::vector<bool> linked(old_files_.size(), false);
    for (size_t i = 0; i < is_linked_.size(); ++i) {
      if (is_linked_[i]) linked[table_.new_files[i].ops[0].old_file] = true;
    }
    std::vector<std::reference_wrapper<const InputFile>> files;
    for (size_t i = 0; i < linked.size(); ++i) {
      if (!linked[i]) files.push_back(old_files_[i]);
    }
    return files;
  }

  // Files that stay as they are get a second name in the new folder, because the old folder goes.
  // Where that is not possible they are copied.
  Status link_files(const std::string& directory) {
    is_linked_.assign(table_.new_files.size(), false);
    if (!options_.in_place) return {};
    for (size_t i = 0; i < table_.new_files.size(); ++i) {
      const NewFile& made = table_.new_files[i];
      if (made.ops.empty() || !made.is_copy_of(table_.old_files[made.ops[0].old_file])) continue;
      if (made.file.sha256 != table_.old_files[made.ops[0].old_file].sha256) continue;
      is_linked_[i] = FERRY_TRY(link_file(made, directory));
      applied_.linked += is_linked_[i] ? 1 : 0;
    }
    return {};
  }

  Result<bool> link_file(const NewFile& made, const std::string& directory) {
    const size_t old = made.ops[0].old_file;
    const std::string from = old_folder_ + "/" + table_.old_files[old].name;
    const std::string to = directory + "/" + made.file.name;
    const auto descriptor = FERRY_TRY(old_files_[old].descriptor());
    struct stat opened {
    }, named{};
    if (::fstat(descriptor.fd(), &opened) != 0 || ::lstat(from.c_str(), &named) != 0 ||
        !S_ISREG(named.st_mode) || opened.st_ino != named.st_ino || opened.st_dev != named.st_dev) {
      return false;
    }
    if (::link(from.c_str(), to.c_str()) != 0) return false;
    // The path may have been given to another file in between.
    if (::lstat(to.c_str(), &named) == 0 && opened.st_ino == named.st_ino) return true;
    (void)::unlink(to.c_str());
    return false;
  }

  Status write_files(const std::string& directory) {
    std::vector<uint64_t> payloads;
    uint64_t payload = 0;
    for (const NewFile& made : table_.new_files) {
      payloads.push_back(payload);
      for (const Op& op : made.ops) payload += op.stored;
    }
    return run_all(pool_, table_.new_files.size(), [&](size_t i) -> Status {
      if (is_linked_[i]) return {};
      return write_file(table_.new_files[i], payloads[i], directory);
    });
  }

  Status write_file(const NewFile& made, uint64_t payload, const std::string& directory) {
    const std::string path = directory + "/" + made.file.name;
    OutputFile out = FERRY_TRY(OutputFile::create(path, made.file.bytes));
    Sha256 hash;
    std::vector<std::byte> bytes, old, stored;
    uint64_t at = 0;
    const auto append = [&]() -> Status {
      FERRY_RETURN_IF_ERROR(check_interrupt());
      hash.update(bytes);
      FERRY_RETURN_IF_ERROR(out.write_at(at, bytes));
      out.start_writeback(at, bytes.size());
      at += bytes.size();
      progress_.advance(bytes.size());
      return {};
    };
    for (const Op& op : made.ops) {
      if (op.kind == OpKind::kCopy) {
        for (uint64_t done = 0; done < op.bytes; done += bytes.size()) {
          bytes.resize(std::min(kMaxBlockBytes, op.bytes - done));
          FERRY_RETURN_IF_ERROR(old_files_[op.old_file].read_at(op.old_offset + done, bytes));
          FERRY_RETURN_IF_ERROR(append());
        }
        continue;
      }
      stored.resize(op.stored);
      FERRY_RETURN_IF_ERROR(patch_.read_payload(payload, stored));
      old.resize(op.kind == OpKind::kData ? 0 : op.bytes);
      if (!old.empty()) {
        FERRY_RETURN_IF_ERROR(old_files_[op.old_file].read_at(op.old_offset, old));
      }
      bytes.resize(op.bytes);
      if (!decode_block(op, stored, old, bytes)) {
        return bad_input(fmt::format("{}: {}, offset {}: the payload at offset {} is not valid",
                                     printable(patch_.file().path()), quoted(made.file.name), at,
                                     kHeadBytes + payload));
      }
      payload += op.stored;
      FERRY_RETURN_IF_ERROR(append());
    }
    if (hash.finish() != made.file.sha256) {
      return bad_input(fmt::format("{}: {}: what the patch makes has another SHA-256 than it says",
                                   printable(patch_.file().path()), quoted(made.file.name)));
    }
    return out.sync_and_close();
  }

  const PatchFile& patch_;
  const Table& table_;
  const std::string& old_folder_;
  const std::string& output_;
  const ApplyOptions& options_;
  ThreadPool& pool_;
  SharedProgress progress_;
  std::vector<InputFile> old_files_;  // by index into Table::old_files
  std::vector<bool> is_linked_;       // by index into Table::new_files
  AppliedPatch applied_;
};

// Returns whether a folder has exactly the new files. A run that was killed in its last step leaves
// it so.
bool is_new_folder(const std::string& path, const Table& table, ThreadPool& pool) {
  const auto directory = Directory::open(path);
  if (!directory) return false;
  const auto names = directory->names();
  const auto name_of_file = [](const NewFile& made) { return made.file.name; };
  if (!names || !std::ranges::equal(*names, table.new_files, {}, {}, name_of_file)) return false;
  SharedProgress silent({}, 0);
  return run_all(pool, table.new_files.size(),
                 [&](size_t i) -> Status {
                   FERRY_TRY(open_expected(*directory, table.new_files[i].file, silent));
                   return {};
                 })
      .has_value();
}

// Removes what a killed run has left beside the folder.
Status remove_remainders(const std::string& path, const Table& table) {
  const auto kind = table.has_new_file(packer::kManifestName) ? StagingDirectory::Kind::kBundle
                                                              : StagingDirectory::Kind::kCheckpoint;
  FERRY_TRY(StagingDirectory::create(path, /*overwrite=*/true, kind));
  return {};
}

}  // namespace

Result<AppliedPatch> apply_patch(const std::string& old_folder, const std::string& patch,
                                 const ApplyOptions& options, ThreadPool& pool) {
  const PatchFile opened = FERRY_TRY(PatchFile::open(patch, {}));
  if (opened.table().new_files.empty()) {
    return bad_input(fmt::format("{}: the new folder has no files", printable(patch)));
  }
  Applier applier(opened, old_folder, options, pool);
  Status known = applier.open_old_files();
  if (!known && known.error().code == ErrorCode::kBadInput && options.in_place &&
      is_new_folder(old_folder, opened.table(), pool)) {
    if (options.check) FERRY_RETURN_IF_ERROR(options.check(old_folder));
    FERRY_RETURN_IF_ERROR(remove_remainders(old_folder, opened.table()));
    return AppliedPatch{opened.table().new_files.size(), opened.table().new_bytes(), 0, true};
  }
  FERRY_RETURN_IF_ERROR(std::move(known));
  return applier.write();
}

}  // namespace ferry::patch
