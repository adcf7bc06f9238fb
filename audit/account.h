// The account of a bundle against its checkpoint: why it is larger or smaller. Private to audit/.
#pragma once

#include "audit/audit.h"
#include "packer/manifest.h"

namespace ferry::audit {

// `audit` has the leaves of the bundle. The steps add up. nullopt where the manifest does not say
// how weights were made, as before version 3.
std::optional<Account> account_of(const packer::Manifest& manifest, const Audit& audit);

}  // namespace ferry::audit
