#include "cli/encoder_bundle.h"

#include "conversion/convert.h"
#include "conversion/gguf_proof.h"

namespace ferry::cli {

Result<packer::Bundle> open_encoder(Context& context, const std::string& path,
                                    const std::string& config) {
  if (conversion::is_gguf_file(path)) {
    return conversion::bundle_in_memory({.path = path, .config = config},
                                        conversion::GgufMatrices::kFloats, context.pool());
  }
  if (!config.empty()) {
    return fail(ErrorCode::kUsage, "--config is for GGUF files; bundles have their configuration");
  }
  return packer::Bundle::open(path, /*check_digests=*/true, context.pool(),
                              context.progress("checking digests"));
}

}  // namespace ferry::cli
