#include <ferry/adapters.h>

#include <algorithm>
#include <utility>

#include "checkpoint/hub_cache.h"
#include "conversion/adapter_edits.h"
#include "library/internal.h"
#include "packer/bundle_reader.h"
#include "plan/bundle_options.h"

namespace ferry {
inline namespace v0 {
namespace {

conversion::BundleEdit edit_of(const AdapterEdit& edit, const OnProgress& progress) {
  conversion::BundleEdit to;
  to.bundle = edit.bundle;
  to.key = {edit.private_key, edit.passphrase_file, edit.certificate, edit.chain};
  to.progress = [&](const char* step) { return library::show(progress, step); };
  return to;
}

// The command line has other names than AdapterEdit for these.
Failure about_key(Error error) {
  if (error.field == "key") error.field = "private_key";
  return Failure(std::move(error));
}

Status check_names(const AdapterEdit& edit) {
  if (edit.bundle.empty()) return library::wrong("bundle", "must not be empty");
  if (edit.name.empty()) return library::wrong("name", "must not be empty");
  return {};
}

AdapterInfo info_of(const packer::Manifest& manifest, const packer::ManifestAdapter& adapter) {
  const auto file = std::ranges::find(manifest.files, adapter.file, &packer::ManifestFile::path);
  return {adapter.name, adapter.file, file->bytes, file->digest};
}

}  // namespace

Result<AdapterInfo> add_adapter(const AdapterEdit& edit, const Engine& engine,
                                const OnProgress& progress) {
  return library::run(engine, edit.bundle, [&](ThreadPool& pool) -> Result<AdapterInfo> {
    FERRY_RETURN_IF_ERROR(check_names(edit));
    if (edit.adapter.empty()) return library::wrong("adapter", "must not be empty");
    const conversion::AdapterAddition added = {FERRY_TRY(checkpoint::find_source(edit.adapter)),
                                               edit.name, edit.overwrite};
    const auto edited = conversion::edit_adding(edit_of(edit, progress), added, pool);
    if (!edited) return about_key(edited.error());
    return info_of(edited->manifest, *edited->manifest.find_adapter(edit.name));
  });
}

Status remove_adapter(const AdapterEdit& edit, const Engine& engine, const OnProgress& progress) {
  return library::run(engine, edit.bundle, [&](ThreadPool& pool) -> Status {
    FERRY_RETURN_IF_ERROR(check_names(edit));
    const auto edited = conversion::edit_removing(edit_of(edit, progress), edit.name, pool);
    if (!edited) return about_key(edited.error());
    return {};
  });
}

Result<AdapterList> list_adapters(const std::string& bundle, const Engine& engine) {
  return library::run(engine, bundle, [&](ThreadPool& pool) -> Result<AdapterList> {
    const packer::Bundle opened =
        FERRY_TRY(packer::Bundle::open(bundle, /*check_digests=*/false, pool));
    const graph::FactorSlots slots = plan::factors_of(opened);
    AdapterList list;
    if (!slots.slots.empty()) list.dtype = dtype_name(slots.dtype);
    for (const graph::FactorSlot& slot : slots.slots) {
      list.factors.push_back({slot.weight, slot.is_table, slot.rank});
    }
    for (const packer::ManifestAdapter& adapter : opened.manifest().adapters) {
      list.adapters.push_back(info_of(opened.manifest(), adapter));
    }
    return list;
  });
}

}  // namespace v0
}  // namespace ferry
