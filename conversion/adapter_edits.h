// Edits of bundle directories: an adapter is added or removed, and a signed bundle signed again.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "conversion/adapters.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/manifest.h"
#include "signing/sign_statement.h"
#include "signing/verify_envelope.h"

namespace ferry::conversion {

struct BundleEdit {
  std::string bundle;            // its directory
  signing::SigningKey key = {};  // signs the new bundle; without a private key it is not signed
  // Returns what shows the progress of a step: "checking", "writing", "signing". May be empty.
  std::function<ShowProgress(const char* step)> progress = {};
};

struct EditedBundle {
  packer::Manifest manifest;
  std::optional<signing::Signer> signer;
};

// kUsage for a signed bundle without a key. Before a bundle is signed every byte is compared with
// its manifest. Other errors are those of add_adapter() in conversion/adapters.h.
Result<EditedBundle> edit_adding(const BundleEdit& edit, const AdapterAddition& added,
                                 ThreadPool& pool);

// kUsage for a signed bundle without a key, and where there is no adapter of this name.
Result<EditedBundle> edit_removing(const BundleEdit& edit, const std::string& name,
                                   ThreadPool& pool);

}  // namespace ferry::conversion
