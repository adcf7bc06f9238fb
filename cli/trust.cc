#include "cli/trust.h"

#include <fmt/format.h>

#include "cli/option_values.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

using signing::CheckedFile;
using signing::FileStatus;

bool is_difference(FileStatus status) {
  return status == FileStatus::kChanged || status == FileStatus::kMissing ||
         status == FileStatus::kExtra;
}

}  // namespace

Result<signing::Trust> trust_of(const TrustLine& options) {
  if (options.public_key.empty() == options.anchors.empty()) {
    return fail(ErrorCode::kUsage,
                "a signature is checked with --public-key or with --trust-anchor, one of both");
  }
  if (!options.at.empty() && options.anchors.empty()) {
    return fail(ErrorCode::kUsage, "--at belongs to --trust-anchor");
  }
  signing::Trust trust{options.public_key, options.anchors, std::nullopt};
  if (!options.at.empty()) trust.at = FERRY_TRY(parse_time("--at", options.at));
  return trust;
}

void write_signer(JsonWriter& json, const std::optional<signing::Signer>& signer) {
  json.key("signer");
  if (!signer) {
    json.null();
    return;
  }
  json.begin_object().member("curve", signer->curve);
  json.member("key_sha256", signer->key).member("subject", signer->subject);
  json.end_object();
}

Error signature_error(const signing::ModelCheck& check) {
  Error error{ErrorCode::kBadInput, check.rejection->message};
  for (const CheckedFile& file : check.files) {
    if (!is_difference(file.status)) continue;
    error.details.push_back(
        fmt::format("{}: {}: {}", name_of(file.status), printable(file.name), file.what));
  }
  return error;
}

}  // namespace ferry::cli
