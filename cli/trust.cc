#include "cli/trust.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string_view>

#include "core/text.h"

namespace ferry::cli {
namespace {

using signing::CheckedFile;
using signing::FileStatus;

bool is_difference(FileStatus status) {
  return status == FileStatus::kChanged || status == FileStatus::kMissing ||
         status == FileStatus::kExtra;
}

// Parses the `count` digits at text[at]; returns -1 if they are no digits.
int digits(std::string_view text, size_t at, size_t count) {
  int value = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return -1;
    value = 10 * value + (c - '0');
  }
  return value;
}

// Returns whether `text` matches `pattern`, in which 0 stands for any digit.
bool is_like(std::string_view text, std::string_view pattern) {
  if (text.size() != pattern.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (pattern[i] == '0' ? !digit : text[i] != pattern[i]) return false;
  }
  return true;
}

// Returns the seconds since 1970 of a time such as "2026-03-01" or "2026-03-01T12:00:00Z". Returns
// kUsage for another text.
Result<int64_t> parse_time(const std::string& text) {
  namespace chrono = std::chrono;
  const bool has_time = is_like(text, "0000-00-00T00:00:00Z");
  const auto bad = [&] {
    return fail(ErrorCode::kUsage,
                fmt::format("--at: {} is not a time such as 2026-03-01 or 2026-03-01T12:00:00Z",
                            quoted(text)));
  };
  if (!has_time && !is_like(text, "0000-00-00")) return bad();
  const chrono::year_month_day day{chrono::year(digits(text, 0, 4)),
                                   chrono::month(static_cast<unsigned>(digits(text, 5, 2))),
                                   chrono::day(static_cast<unsigned>(digits(text, 8, 2)))};
  const int hours = has_time ? digits(text, 11, 2) : 0;
  const int minutes = has_time ? digits(text, 14, 2) : 0;
  const int seconds = has_time ? digits(text, 17, 2) : 0;
  if (!day.ok() || hours > 23 || minutes > 59 || seconds > 59) return bad();
  const chrono::sys_seconds time = chrono::sys_days(day) + chrono::hours(hours) +
                                   chrono::minutes(minutes) + chrono::seconds(seconds);
  return int64_t{time.time_since_epoch().count()};
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
  if (!options.at.empty()) trust.at = FERRY_TRY(parse_time(options.at));
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
