// Input: any text as a manifest. Its self digest is corrected, so that the checks after it are
// reached. The text is refused, or equals what our writer writes for the manifest.
#include "core/sha256.h"
#include "packer/bundle_examination.h"
#include "packer/manifest.h"
#include "tests/fuzz/require.h"

namespace ferry::manifest_fuzz {
namespace {

void make_self_digest_right(std::string& text) {
  constexpr std::string_view kEnd = "\"\n}\n";
  if (!text.ends_with(kEnd) || text.size() < kEnd.size() + packer::kZeroDigest.size()) return;
  const size_t at = text.size() - kEnd.size() - packer::kZeroDigest.size();
  text.replace(at, packer::kZeroDigest.size(), packer::kZeroDigest);
  text.replace(at, packer::kZeroDigest.size(),
               to_hex(sha256(std::as_bytes(std::span<char>(text)))));
}

void check(std::string text) {
  make_self_digest_right(text);
  const auto manifest = packer::read_manifest(text, "manifest.json");
  if (!manifest) return require_good_message(manifest.error());
  require(packer::write_manifest(*manifest) == text);
  packer::ProblemList problems("bundle");
  packer::check_manifest(*manifest, problems);
  for (const packer::CheckProblem& problem : problems.take()) {
    require_good_message({problem.code, problem.message});
  }
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}

}  // namespace ferry::manifest_fuzz
