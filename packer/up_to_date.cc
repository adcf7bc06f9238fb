// BundlePlan::difference() tells whether a bundle is what the plan would write.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "core/interrupt.h"
#include "core/progress.h"
#include "core/sha256.h"
#include "core/text.h"
#include "packer/bundle_plan_impl.h"

namespace ferry::packer {
namespace {

constexpr uint64_t kChunk = uint64_t{1} << 20;
// Version of the manifest that records options first.
constexpr int64_t kFirstWithOptions = 6;

Manifest without_digests(Manifest manifest) {
  const std::string zero(kZeroDigest);
  for (ManifestSourceFile& file : manifest.source_files) file.sha256_tree = zero;
  for (ManifestAdapter& adapter : manifest.adapters) {
    for (ManifestSourceFile& file : adapter.source_files) file.sha256_tree = zero;
  }
  for (ManifestFile& file : manifest.files) {
    file.digest = zero;
    file.xxh3 = kZeroFastDigest;
  }
  for (ManifestTensor& tensor : manifest.tensors) {
    tensor.sha256 = zero;
    for (ManifestTensor::Source& source : tensor.sources) source.sha256 = zero;
  }
  return manifest;
}

bool same_options(const Manifest& a, const Manifest& b) {
  return std::ranges::equal(a.options, b.options, [](const auto& x, const auto& y) {
    return x.name == y.name && x.value == y.value;
  });
}

// Returns the first difference of two manifests, apart from digests; empty if there is none.
std::string stated_difference(const Manifest& planned, const Manifest& existing) {
  if (existing.version < kFirstWithOptions) return "it does not say how it was made";
  if (existing.version < planned.version) return "its format is of an earlier version";
  if (existing.tool.version != planned.tool.version) {
    return fmt::format("it was made by {} {}", printable(existing.tool.name),
                       printable(existing.tool.version));
  }
  if (!same_options(existing, planned)) return "it was made with other options";
  const bool same = write_manifest(without_digests(existing)) == write_manifest(planned);
  return same ? std::string() : "the checkpoint is another one";
}

// Hashes `bytes` bytes. `read` fills a part at an offset.
template <class Read>
Status hash_parts(Sha256& hash, uint64_t bytes, const Read& read) {
  const auto chunk = std::make_unique_for_overwrite<std::byte[]>(std::min(kChunk, bytes));
  for (uint64_t done = 0; done < bytes; done += kChunk) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const auto part = std::span(chunk.get(), std::min(kChunk, bytes - done));
    FERRY_RETURN_IF_ERROR(read(done, part));
    hash.update(part);
  }
  return {};
}

Status hash_extent(const BundlePlan::Impl& plan, const FilePlan& file, const Extent& extent,
                   Sha256& hash) {
  switch (extent.kind) {
    case Extent::Kind::kHead:
      hash.update(file.head);
      return {};
    case Extent::Kind::kLiteral:
      return hash_parts(hash, extent.bytes, [&](uint64_t at, std::span<std::byte> out) -> Status {
        file.literals[extent.index]->fill(at, out);
        return {};
      });
    case Extent::Kind::kBlob:
      hash.update(file.blobs[extent.index]);
      return {};
    case Extent::Kind::kCopy:
      return hash_parts(hash, extent.bytes, [&](uint64_t at, std::span<std::byte> out) {
        return plan.copied[extent.index]->read_at(at, out);
      });
    case Extent::Kind::kWeight:  // of an adapter
      return hash_parts(hash, extent.bytes, [&](uint64_t at, std::span<std::byte> out) {
        return graph::materialize(*plan.weights[extent.index], *plan.source, at, out);
      });
  }
  return {};
}

// Returns the digest of a file without digests of segments: a program, an adapter, a copied file.
Result<std::string> digest_of_plain(const BundlePlan::Impl& plan, const FilePlan& file) {
  Sha256 hash;
  uint64_t at = 0;
  const auto fill = [&](uint64_t end) {
    hash.update(std::vector<std::byte>(end - at));
    at = end;
  };
  for (const Extent& extent : file.extents) {
    fill(extent.offset);
    FERRY_RETURN_IF_ERROR(hash_extent(plan, file, extent, hash));
    at += extent.bytes;
  }
  fill(file.bytes);
  return to_hex(hash.finish());
}

// A source tensor with the digest that the bundle's manifest states.
struct Expected {
  size_t entry = 0;
  const ManifestTensor::Source* source = nullptr;
};

// Returns each source tensor once, the longest first, so that no thread begins a long tensor at the
// end.
std::vector<Expected> expected_sources(const BundlePlan::Impl& plan, const Manifest& existing) {
  std::vector<bool> seen(plan.source->entries().size(), false);
  std::vector<Expected> all;
  for (size_t i = 0; i < plan.tensor_entries.size(); ++i) {
    for (size_t k = 0; k < plan.tensor_entries[i].size(); ++k) {
      const size_t entry = plan.tensor_entries[i][k];
      if (!seen[entry]) all.push_back({entry, &existing.tensors[i].sources[k]});
      seen[entry] = true;
    }
  }
  std::ranges::stable_sort(all, [&](const Expected& a, const Expected& b) {
    return plan.source->entries()[a.entry].bytes > plan.source->entries()[b.entry].bytes;
  });
  return all;
}

Result<bool> is_same(const BundlePlan::Impl& plan, const Expected& expected,
                     SharedProgress& progress) {
  Sha256 hash;
  const uint64_t bytes = plan.source->entries()[expected.entry].bytes;
  FERRY_RETURN_IF_ERROR(hash_parts(hash, bytes, [&](uint64_t at, std::span<std::byte> out) {
    progress.advance(out.size());
    return plan.source->read(expected.entry, at, out);
  }));
  return to_hex(hash.finish()) == expected.source->sha256;
}

// Returns the largest tensor of the checkpoint that has changed. No tensor is begun after a
// difference was found.
Result<std::string> changed_tensor(const BundlePlan::Impl& plan, const Manifest& existing,
                                   ThreadPool& pool, const ShowProgress& show) {
  const std::vector<Expected> all = expected_sources(plan, existing);
  uint64_t bytes = 0;
  for (const Expected& one : all) bytes += plan.source->entries()[one.entry].bytes;
  SharedProgress progress(show, bytes);
  std::mutex mutex;
  std::optional<Result<std::string>> found;
  pool.parallel_for(all.size(), [&](size_t i) {
    {
      const std::lock_guard lock(mutex);
      if (found) return;
    }
    const Result<bool> same = is_same(plan, all[i], progress);
    if (same && *same) return;
    const std::lock_guard lock(mutex);
    if (!same) {
      found = Failure(same.error());
    } else {
      found = fmt::format("tensor {} of the checkpoint has changed", quoted(all[i].source->key));
    }
  });
  return found ? *found : Result<std::string>(std::string());
}

}  // namespace

Result<std::string> BundlePlan::difference(const Manifest& existing, ThreadPool& pool,
                                           const ShowProgress& progress) const {
  std::string why = stated_difference(impl_->manifest, existing);
  if (!why.empty()) return why;
  for (size_t i = 0; i < impl_->files.size(); ++i) {
    const FilePlan& file = impl_->files[i];
    if (file.has_weights && !file.plain_digest) continue;
    if (FERRY_TRY(digest_of_plain(*impl_, file)) == existing.files[i].digest) continue;
    return fmt::format("{} would be another one", quoted(file.name));
  }
  why = FERRY_TRY(changed_tensor(*impl_, existing, pool, progress));
  FERRY_RETURN_IF_ERROR(impl_->source->check_unchanged());
  return why;
}

}  // namespace ferry::packer
