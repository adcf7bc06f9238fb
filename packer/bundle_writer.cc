// BundlePlan::write: the planned files into a staging directory, then the manifest, then the
// rename.
#include "packer/bundle_writer.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/disk_space.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "packer/file_writer.h"
#include "packer/segment_digest.h"
#include "packer/source_tree.h"
#include "packer/stage_contents.h"
#include "packer/stage_journal.h"
#include "packer/staging_directory.h"

namespace ferry::packer {
namespace {

Manifest with_digests(const BundlePlan::Impl& plan, const BundleDigests& digests) {
  Manifest manifest = plan.manifest;
  const std::vector<std::string> trees = source_tree_digests(*plan.source, digests.entries);
  for (size_t i = 0; i < trees.size(); ++i) manifest.source_files[i].sha256_tree = trees[i];
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    manifest.files[i].digest = to_hex(digests.files[i]);
  }
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    ManifestTensor& tensor = manifest.tensors[i];
    tensor.sha256 = to_hex(digests.segments[plan.tensor_segment[i]]);
    for (size_t k = 0; k < tensor.sources.size(); ++k) {
      tensor.sources[k].sha256 = to_hex(*digests.entries[plan.tensor_entries[i][k]]);
    }
  }
  return manifest;
}

Status write_manifest_file(const BundlePlan::Impl& plan, const Manifest& manifest,
                           const std::string& directory) {
  const std::string text = write_manifest(manifest);
  if (text.size() != plan.listing.back().bytes) {
    return fail(ErrorCode::kInternal, fmt::format("{} has {} bytes, planned were {}", kManifestName,
                                                  text.size(), plan.listing.back().bytes));
  }
  OutputFile file =
      FERRY_TRY(OutputFile::create(directory + "/" + plan.listing.back().path, text.size()));
  FERRY_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(text))));
  return file.sync_and_close();
}

// Bytes of two states of a checkpoint must never be mixed.
Status check_sources_unchanged(const BundlePlan::Impl& plan) {
  FERRY_RETURN_IF_ERROR(plan.source->check_unchanged());
  for (const auto& file : plan.copied) FERRY_RETURN_IF_ERROR(file->check_unchanged());
  return {};
}

// The tensor under the name that the user knows: that of the checkpoint, where there is a single
// one.
std::string name_for_user(const ManifestTensor& tensor) {
  return quoted(tensor.sources.size() == 1 ? tensor.sources[0].key : tensor.name);
}

std::string values_text(uint64_t count) {
  return fmt::format("{} value{}", count, count == 1 ? "" : "s");
}

// The first tensor of the manifest that each weight is stored for; tied ones come later.
std::vector<const ManifestTensor*> first_tensors(const BundlePlan::Impl& plan,
                                                 const Manifest& manifest) {
  std::vector<const ManifestTensor*> first(plan.weights.size(), nullptr);
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor*& tensor = first[plan.tensor_weight[i]];
    if (tensor == nullptr) tensor = &manifest.tensors[i];
  }
  return first;
}

// Weights of which a count is not zero.
struct Affected {
  uint64_t values = 0;  // of all of them
  const ManifestTensor* first = nullptr;
  std::vector<std::string> lines = {};  // for each

  std::string names() const {
    const std::string more =
        lines.size() > 1 ? fmt::format(" and {} more", lines.size() - 1) : std::string();
    return fmt::format("(tensor {}{})", name_for_user(*first), more);
  }
};

Affected affected_weights(const BundlePlan::Impl& plan, const BundleDigests& digests,
                          uint64_t NonFiniteCount::*count_of) {
  const std::vector<const ManifestTensor*> tensors = first_tensors(plan, plan.manifest);
  Affected found;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t count = digests.non_finite[i].*count_of;
    if (count == 0 || tensors[i] == nullptr) continue;
    if (found.first == nullptr) found.first = tensors[i];
    found.values += count;
    found.lines.push_back(fmt::format("{}: {}", name_for_user(*tensors[i]), values_text(count)));
  }
  return found;
}

Status refuse(const BundlePlan::Impl& plan, Affected weights, const std::string& reason) {
  Error error{ErrorCode::kUnsupported,
              fmt::format("{}: {} {}", printable(plan.source->path()), reason, weights.names())};
  if (weights.lines.size() > 1) error.details = std::move(weights.lines);
  return tl::unexpected<Error>(std::move(error));
}

// A bundle must not hold infinities that nobody but the cast has made, nor codes of no value.
Status check_values(const BundlePlan::Impl& plan, const BundleDigests& digests) {
  Affected cast = affected_weights(plan, digests, &NonFiniteCount::overflowed);
  if (cast.first != nullptr) {
    const DType dtype = cast.first->dtype;
    const std::string reason = fmt::format(
        "{} too large for {}, which {} can hold", values_text(cast.values), dtype_name(dtype),
        dtype == DType::kF16 ? "--dtype bf16 or f32" : "--dtype f32");
    return refuse(plan, std::move(cast), reason);
  }
  Affected coded = affected_weights(plan, digests, &NonFiniteCount::unquantized);
  if (coded.first == nullptr) return {};
  const std::string reason =
      fmt::format("NaN and infinity cannot be quantised: {}", values_text(coded.values));
  return refuse(plan, std::move(coded), reason);
}

std::vector<NonFiniteWeight> non_finite_weights(const BundlePlan::Impl& plan,
                                                const BundleDigests& digests) {
  std::vector<NonFiniteWeight> weights;
  const std::vector<const ManifestTensor*> tensors = first_tensors(plan, plan.manifest);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (digests.non_finite[i].stored == 0 || tensors[i] == nullptr) continue;
    NonFiniteWeight& weight = weights.emplace_back();
    weight.name = tensors[i]->name;
    weight.count = digests.non_finite[i].stored;
    for (const auto& source : tensors[i]->sources) weight.sources.push_back(source.key);
  }
  return weights;
}

// Bytes that files of this directory have on the disk.
uint64_t stored_bytes(const std::string& directory, const std::vector<PlannedFile>& files) {
  constexpr uint64_t kBlock = 512;  // of st_blocks, whatever the file system has
  uint64_t bytes = 0;
  for (const PlannedFile& file : files) {
    struct stat info {};
    if (::lstat((directory + "/" + file.path).c_str(), &info) != 0) continue;
    bytes += std::min<uint64_t>(file.bytes, static_cast<uint64_t>(info.st_blocks) * kBlock);
  }
  return bytes;
}

// All of a bundle in `staging`, but for its name.
Result<WrittenBundle> write_contents(const BundlePlan::Impl& plan, const StagingDirectory& staging,
                                     ResumableStage* stage, ThreadPool& pool,
                                     const std::function<void(uint64_t, uint64_t)>& progress) {
  const BundleDigests digests = FERRY_TRY(write_files(plan, staging.path(), stage, pool, progress));
  FERRY_RETURN_IF_ERROR(check_sources_unchanged(plan));
  FERRY_RETURN_IF_ERROR(check_values(plan, digests));
  Manifest manifest = with_digests(plan, digests);
  FERRY_RETURN_IF_ERROR(write_manifest_file(plan, manifest, staging.path()));
  FERRY_RETURN_IF_ERROR(check_interrupt());
  return WrittenBundle{.manifest = std::move(manifest),
                       .non_finite = non_finite_weights(plan, digests),
                       .resumed_bytes = digests.taken_over};
}

// A stage is of use to the next run unless that would end in the same way, or could believe what
// the system failed to write: it may drop such pages from the disk and still show them.
bool is_worth_keeping(const Error& error, const ResumableStage& stage) {
  const bool passes = error.code == ErrorCode::kInterrupted || error.code == ErrorCode::kIo;
  return passes && !stage.journal.empty() && !stage.sync_failed;
}

// What was there before is kept, whatever goes wrong until it has been read.
Result<WrittenBundle> fill_stage(const BundlePlan::Impl& plan, StagingDirectory& staging,
                                 const std::string& fingerprint, ThreadPool& pool,
                                 const std::function<void(uint64_t, uint64_t)>& progress) {
  StageJournal journal = FERRY_TRY(StageJournal::open(staging.journal_path(), fingerprint));
  ResumableStage stage{
      .contents = FERRY_TRY(verified_contents(plan, staging.path(), journal.records(), pool)),
      .journal = std::move(journal)};
  auto written = write_contents(plan, staging, &stage, pool, progress);
  staging.keep(!written && is_worth_keeping(written.error(), stage));
  return written;
}

Result<WrittenBundle> write_resumable(const BundlePlan::Impl& plan, const BundleTarget& target,
                                      ThreadPool& pool,
                                      const std::function<void(uint64_t, uint64_t)>& progress) {
  const std::string fingerprint = FERRY_TRY(stage_fingerprint(plan));
  if (fingerprint.empty()) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: --resume needs a checkpoint in files",
                                                     printable(plan.source->path())));
  }
  StagingDirectory staging = FERRY_TRY(StagingDirectory::create_stage(
      target.directory, target.overwrite, fingerprint.substr(0, 16)));
  const uint64_t stored = stored_bytes(staging.path(), plan.listing);
  FERRY_RETURN_IF_ERROR(require_space(StagingDirectory::parent_of(target.directory),
                                      plan.total_bytes - stored, target.directory));
  auto written = fill_stage(plan, staging, fingerprint, pool, progress);
  if (written) {
    FERRY_RETURN_IF_ERROR(staging.publish());
  } else if (staging.is_kept()) {
    written.error().message += fmt::format("; what is done is kept in {}: the same command goes on",
                                           quoted(staging.root()));
  }
  return written;
}

}  // namespace

Result<WrittenBundle> BundlePlan::write(
    const BundleTarget& target, ThreadPool& pool,
    const std::function<void(uint64_t, uint64_t)>& progress) const {
  if (target.resume) return write_resumable(*impl_, target, pool, progress);
  StagingDirectory staging =
      FERRY_TRY(StagingDirectory::create(target.directory, target.overwrite));
  FERRY_RETURN_IF_ERROR(require_space(StagingDirectory::parent_of(target.directory),
                                      impl_->total_bytes, target.directory));
  WrittenBundle written = FERRY_TRY(write_contents(*impl_, staging, nullptr, pool, progress));
  FERRY_RETURN_IF_ERROR(staging.publish());
  return written;
}

}  // namespace ferry::packer
