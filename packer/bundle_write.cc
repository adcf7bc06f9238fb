// BundlePlan::write() and write_to_memory() write the files of a plan.
#include <algorithm>

#include "core/interrupt.h"
#include "packer/bundle_plan_impl.h"
#include "packer/digests.h"
#include "packer/file_writer.h"
#include "packer/non_finite.h"
#include "packer/stage_run.h"

namespace ferry::packer {
namespace {

Manifest with_digests(const BundlePlan::Impl& plan, const FileDigests& digests) {
  Manifest manifest = plan.manifest;
  const std::vector<std::string> trees = source_tree_digests(*plan.source, digests.entries);
  for (size_t i = 0; i < manifest.source_files.size(); ++i) {
    manifest.source_files[i].sha256_tree = trees[i];
  }
  for (size_t i = 0; i < manifest.adapters.size(); ++i) {
    const std::vector<size_t>& files = plan.input.adapters[i].source_files;
    for (size_t k = 0; k < files.size(); ++k) {
      manifest.adapters[i].source_files[k].sha256_tree = trees[files[k]];
    }
  }
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    manifest.files[i].digest = to_hex(digests.files[i]);
    manifest.files[i].xxh3 = to_hex(digests.fast_files[i]);
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
                           const OutputFolder& folder) {
  const std::string text = write_manifest(manifest);
  if (text.size() != plan.listing.back().bytes) {
    return fail(ErrorCode::kInternal, fmt::format("{} has {} bytes, planned were {}", kManifestName,
                                                  text.size(), plan.listing.back().bytes));
  }
  OutputFile file = FERRY_TRY(folder.create(plan.listing.back().path, text.size()));
  FERRY_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(text))));
  return file.sync_and_close();
}

// Names each weight by the first manifest tensor that it is stored for. Tied tensors come later.
std::vector<WrittenWeight> written_weights(const BundlePlan::Impl& plan) {
  std::vector<WrittenWeight> weights(plan.weights.size());
  for (size_t i = 0; i < plan.manifest.tensors.size(); ++i) {
    const ManifestTensor& tensor = plan.manifest.tensors[i];
    WrittenWeight& weight = weights[plan.tensor_weight[i]];
    if (!weight.name.empty()) continue;
    weight.name = tensor.name;
    weight.dtype = tensor.dtype;
    for (const auto& source : tensor.sources) weight.sources.push_back(source.key);
  }
  name_weights(plan.adapter_weights, *plan.source, weights);
  return weights;
}

// Writes all files of a bundle into `folder`, which gets its final name later.
Status write_contents(const BundlePlan::Impl& plan, const OutputFolder& folder,
                      ResumableStage* stage, ThreadPool& pool, const ShowProgress& progress,
                      WrittenBundle& written) {
  const FileDigests digests = FERRY_TRY(write_files(plan, folder, stage, pool, progress));
  FERRY_RETURN_IF_ERROR(check_sources_unchanged(plan));
  const std::vector<WrittenWeight> weights = written_weights(plan);
  FERRY_RETURN_IF_ERROR(check_values(weights, digests.non_finite, *plan.source));
  written.manifest = with_digests(plan, digests);
  FERRY_RETURN_IF_ERROR(write_manifest_file(plan, written.manifest, folder));
  FERRY_RETURN_IF_ERROR(check_interrupt());
  written.non_finite = non_finite_weights(weights, digests.non_finite);
  written.resumed_bytes = digests.taken_over;
  return {};
}

}  // namespace

Result<WrittenBundle> BundlePlan::write(
    const BundleTarget& target, ThreadPool& pool,
    const std::function<void(uint64_t, uint64_t)>& progress) const {
  const StagedOutput output{.path = target.directory,
                            .kind = StagingDirectory::Kind::kBundle,
                            .overwrite = target.overwrite,
                            .resume = target.resume,
                            .synced = target.synced,
                            .files = impl_.get(),
                            .listing = &impl_->listing,
                            .parts = target.parts,
                            .plan_text = [&] { return write_manifest(impl_->manifest); }};
  WrittenBundle written;
  const auto fill = [&](const StagingDirectory& staging, ResumableStage* stage) -> Status {
    FERRY_RETURN_IF_ERROR(write_contents(*impl_, OutputFolder(staging.path(), target.synced), stage,
                                         pool, progress, written));
    return target.finish ? target.finish(staging.path()) : Status();
  };
  FERRY_RETURN_IF_ERROR(write_staged(output, pool, fill));
  return written;
}

Result<MemoryFolder> BundlePlan::write_to_memory(ThreadPool& pool,
                                                 const ShowProgress& progress) const {
  MemoryFolder memory;
  WrittenBundle written;
  FERRY_RETURN_IF_ERROR(
      write_contents(*impl_, OutputFolder(memory), nullptr, pool, progress, written));
  return memory;
}

}  // namespace ferry::packer
