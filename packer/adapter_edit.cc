#include "packer/adapter_edit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/directory.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/sha256.h"
#include "core/text.h"
#include "packer/adapter_file.h"
#include "packer/digests.h"
#include "packer/file_writer.h"
#include "packer/non_finite.h"
#include "packer/stage_run.h"
#include "packer/staging_directory.h"

namespace ferry::packer {
namespace {

constexpr uint64_t kCopiedTileBytes = uint64_t{1} << 20;

Status copy_file(const InputFile& from, const std::string& to) {
  OutputFile out = FERRY_TRY(OutputFile::create(to, from.size()));
  std::vector<std::byte> tile(std::min(kCopiedTileBytes, from.size()));
  for (uint64_t at = 0; at < from.size(); at += tile.size()) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const auto part = std::span(tile).first(std::min<uint64_t>(tile.size(), from.size() - at));
    FERRY_RETURN_IF_ERROR(from.read_at(at, part));
    FERRY_RETURN_IF_ERROR(out.write_at(at, part));
  }
  return out.sync_and_close();
}

// Gives the files of the manifest, but one, second names in `stage`.
Status link_files(const Bundle& bundle, const std::string& left_out, const std::string& stage) {
  const Directory directory = FERRY_TRY(Directory::open(bundle.path()));
  for (const ManifestFile& file : bundle.manifest().files) {
    if (file.path == left_out) continue;
    const InputFile opened =
        FERRY_TRY(directory.open_file(file.path, file.path, InputFile::Links::kRefuse));
    if (opened.size() != file.bytes) {
      return bad_input(fmt::format("{}: has {} bytes, the manifest states {}",
                                   printable(directory.path_of(file.path)), opened.size(),
                                   file.bytes));
    }
    const std::string to = stage + "/" + file.path;
    if (::link(directory.path_of(file.path).c_str(), to.c_str()) == 0) continue;
    FERRY_RETURN_IF_ERROR(copy_file(opened, to));
  }
  return {};
}

Status write_manifest_in(const std::string& stage, const Manifest& manifest) {
  const std::string text = write_manifest(manifest);
  OutputFile file =
      FERRY_TRY(OutputFile::create(fmt::format("{}/{}", stage, kManifestName), text.size()));
  FERRY_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(text))));
  return file.sync_and_close();
}

Result<StagingDirectory> begin(const Bundle& bundle) {
  if (bundle.manifest().no_adapter.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: its programs take no adapters; convert --adapters makes such "
                            "programs",
                            printable(bundle.path())));
  }
  return StagingDirectory::create(bundle.path(), /*overwrite=*/true);
}

Status finish(const AdapterEdit& edit, const Manifest& manifest, StagingDirectory& staging) {
  FERRY_RETURN_IF_ERROR(write_manifest_in(staging.path(), manifest));
  FERRY_RETURN_IF_ERROR(check_interrupt());
  if (edit.finish) FERRY_RETURN_IF_ERROR(edit.finish(staging.path()));
  return staging.publish(/*synced=*/true);
}

// Removes the entries of an adapter.
void leave_out(const std::string& name, Manifest& manifest) {
  std::erase_if(manifest.adapters, [&](const ManifestAdapter& one) { return one.name == name; });
  std::erase_if(manifest.files,
                [&](const ManifestFile& file) { return file.path == adapter_file(name); });
}

// Adds the entries of an adapter where a conversion puts them: by name, its file behind those of
// the adapters before it.
void put_in(ManifestAdapter adapter, ManifestFile file, Manifest& manifest) {
  const auto at =
      std::ranges::upper_bound(manifest.adapters, adapter.name, {}, &ManifestAdapter::name);
  const std::string before = at == manifest.adapters.begin() ? manifest.no_adapter : (at - 1)->file;
  const auto behind = std::ranges::find(manifest.files, before, &ManifestFile::path);
  manifest.files.insert(behind == manifest.files.end() ? behind : behind + 1, std::move(file));
  manifest.adapters.insert(at, std::move(adapter));
}

}  // namespace

Result<Manifest> add_adapter(const Bundle& bundle, const AdapterInput& adapter,
                             const TensorSource& source, bool overwrite, const AdapterEdit& edit,
                             ThreadPool& pool) {
  StagingDirectory staging = FERRY_TRY(begin(bundle));
  Manifest manifest = bundle.manifest();
  if (manifest.find_adapter(adapter.name) != nullptr && !overwrite) {
    return fail(ErrorCode::kExists, fmt::format("{}: has an adapter {} already",
                                                printable(bundle.path()), quoted(adapter.name)));
  }
  leave_out(adapter.name, manifest);
  FileSet files;
  files.source = &source;
  AdapterWeights weights;
  const std::vector<ptd::NamedTensor>& factors =
      bundle.data().at(manifest.no_adapter).content.tensors;
  files.files.push_back(FERRY_TRY(plan_adapter_file(adapter, factors, files, weights)));
  const FilePlan& file = files.files.front();
  FERRY_RETURN_IF_ERROR(
      require_space(StagingDirectory::parent_of(bundle.path()), file.bytes, bundle.path()));
  FERRY_RETURN_IF_ERROR(link_files(bundle, file.name, staging.path()));
  const FileDigests digests = FERRY_TRY(write_files(
      files, OutputFolder(staging.path(), /*synced=*/true), nullptr, pool, edit.progress));
  FERRY_RETURN_IF_ERROR(check_sources_unchanged(files));
  std::vector<WrittenWeight> written(files.weights.size());
  name_weights(weights, source, written);
  FERRY_RETURN_IF_ERROR(check_values(written, digests.non_finite, source));
  ManifestAdapter stated = describe_adapter(adapter, source);
  const std::vector<std::string> trees = source_tree_digests(source, digests.entries);
  for (size_t i = 0; i < adapter.source_files.size(); ++i) {
    stated.source_files[i].sha256_tree = trees[adapter.source_files[i]];
  }
  put_in(std::move(stated),
         {file.name, file.bytes, std::string(kPlainDigest), to_hex(digests.files[0]),
          to_hex(digests.fast_files[0])},
         manifest);
  FERRY_RETURN_IF_ERROR(finish(edit, manifest, staging));
  return manifest;
}

Result<Manifest> remove_adapter(const Bundle& bundle, const std::string& name,
                                const AdapterEdit& edit) {
  FERRY_RETURN_IF_ERROR(bundle.with_adapter(name));
  StagingDirectory staging = FERRY_TRY(begin(bundle));
  Manifest manifest = bundle.manifest();
  leave_out(name, manifest);
  FERRY_RETURN_IF_ERROR(link_files(bundle, adapter_file(name), staging.path()));
  FERRY_RETURN_IF_ERROR(finish(edit, manifest, staging));
  return manifest;
}

}  // namespace ferry::packer
