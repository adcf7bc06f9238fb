// BundlePlan::write: the planned files into a staging directory, then the manifest, then the
// rename.
#include "packer/bundle_writer.h"

#include <fmt/format.h>

#include "core/file.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "packer/file_writer.h"
#include "packer/segment_digest.h"
#include "packer/source_tree.h"
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

}  // namespace

Result<WrittenBundle> BundlePlan::write(
    const std::string& directory, bool overwrite, ThreadPool& pool,
    const std::function<void(uint64_t, uint64_t)>& progress) const {
  StagingDirectory staging = FERRY_TRY(StagingDirectory::create(directory, overwrite));
  const BundleDigests digests = FERRY_TRY(write_files(*impl_, staging.path(), pool, progress));
  FERRY_RETURN_IF_ERROR(check_sources_unchanged(*impl_));
  FERRY_RETURN_IF_ERROR(check_values(*impl_, digests));
  Manifest manifest = with_digests(*impl_, digests);
  FERRY_RETURN_IF_ERROR(write_manifest_file(*impl_, manifest, staging.path()));
  FERRY_RETURN_IF_ERROR(check_interrupt());
  FERRY_RETURN_IF_ERROR(staging.publish());
  return WrittenBundle{std::move(manifest), non_finite_weights(*impl_, digests)};
}

}  // namespace ferry::packer
