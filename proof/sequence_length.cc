#include "proof/sequence_length.h"

#include "core/program_interface.h"

namespace ferry::proof {

int64_t decode_length(const packer::Manifest& manifest) {
  const packer::ManifestComponent* decoder = manifest.find(kTextDecoderRole);
  if (decoder == nullptr || decoder->programs.empty()) return 1;
  const packer::ManifestMethod* method = decoder->programs.front().find(kKvForwardMethod);
  return method == nullptr ? 1 : packer::call_length(*method).value_or(1);
}

int64_t longest_sequence(const packer::Manifest& manifest) {
  const bool is_static = manifest.program_style == kStaticStyle;
  return manifest.context_length - (is_static ? decode_length(manifest) : 0);
}

}  // namespace ferry::proof
