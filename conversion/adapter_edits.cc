#include "conversion/adapter_edits.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "core/text.h"
#include "packer/adapter_edit.h"
#include "packer/bundle_reader.h"
#include "signing/model_digest.h"
#include "signing/sign_model.h"

namespace ferry::conversion {
namespace {

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

ShowProgress shown(const BundleEdit& edit, const char* step) {
  return edit.progress ? edit.progress(step) : ShowProgress();
}

Result<packer::Bundle> open(const BundleEdit& edit, ThreadPool& pool) {
  const bool signs = !edit.key.private_key.empty();
  const std::string signature = fmt::format("{}/{}", edit.bundle, signing::kSignatureName);
  if (!signs && std::filesystem::exists(signature)) {
    return fail_field(ErrorCode::kUsage, "key",
                      fmt::format(": is required, because {} is signed and its signature would no "
                                  "longer fit",
                                  printable(edit.bundle)));
  }
  return packer::Bundle::open(edit.bundle, signs, pool, shown(edit, "checking"));
}

// Returns what signs the new directory; `signer` gets the signer.
packer::AdapterEdit edit_of(const BundleEdit& edit, std::optional<signing::Signer>& signer,
                            ThreadPool& pool) {
  packer::AdapterEdit steps;
  steps.progress = shown(edit, "writing");
  if (edit.key.private_key.empty()) return steps;
  steps.finish = [&](const std::string& directory) -> Status {
    const signing::DigestOptions digest{.progress = shown(edit, "signing"),
                                        .name = base_name(without_slashes(edit.bundle))};
    const std::string to = fmt::format("{}/{}", directory, signing::kSignatureName);
    signer = FERRY_TRY(signing::sign_model(directory, edit.key, to, digest, pool)).signer;
    return {};
  };
  return steps;
}

}  // namespace

Result<EditedBundle> edit_adding(const BundleEdit& edit, const AdapterAddition& added,
                                 ThreadPool& pool) {
  const packer::Bundle bundle = FERRY_TRY(open(edit, pool));
  EditedBundle edited;
  edited.manifest = FERRY_TRY(add_adapter(bundle, added, edit_of(edit, edited.signer, pool), pool));
  return edited;
}

Result<EditedBundle> edit_removing(const BundleEdit& edit, const std::string& name,
                                   ThreadPool& pool) {
  const packer::Bundle bundle = FERRY_TRY(open(edit, pool));
  EditedBundle edited;
  edited.manifest =
      FERRY_TRY(packer::remove_adapter(bundle, name, edit_of(edit, edited.signer, pool)));
  return edited;
}

}  // namespace ferry::conversion
