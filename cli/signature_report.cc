#include "cli/signature_report.h"

#include <fmt/format.h>

#include <chrono>
#include <string_view>

#include "core/text.h"

namespace ferry::cli {
namespace {

using signing::CheckedFile;
using signing::FileStatus;

constexpr FileStatus kStatuses[] = {FileStatus::kOk,       FileStatus::kChanged,
                                    FileStatus::kMissing,  FileStatus::kExtra,
                                    FileStatus::kUnsigned, FileStatus::kIgnored};

bool is_difference(FileStatus status) {
  return status == FileStatus::kChanged || status == FileStatus::kMissing ||
         status == FileStatus::kExtra;
}

void write_signer(JsonWriter& json, const signing::ModelCheck& check) {
  json.key("signer");
  if (!check.signer) {
    json.null();
    return;
  }
  json.begin_object().member("curve", check.signer->curve);
  json.member("key_sha256", check.signer->key).member("subject", check.signer->subject);
  json.end_object();
}

// What stands at `text`[at] as `count` digits; -1 where they are none.
int digits(std::string_view text, size_t at, size_t count) {
  int value = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return -1;
    value = 10 * value + (c - '0');
  }
  return value;
}

// Whether `text` is like `pattern`, in which 0 stands for a digit.
bool is_like(std::string_view text, std::string_view pattern) {
  if (text.size() != pattern.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (pattern[i] == '0' ? !digit : text[i] != pattern[i]) return false;
  }
  return true;
}

}  // namespace

void write_signature_check(JsonWriter& json, const signing::ModelCheck& check) {
  json.key("signature").begin_object();
  json.member("path", check.signature).member("ok", check.verified());
  json.member("stage", check.rejection ? name_of(check.rejection->stage) : "");
  json.member("message", check.rejection ? check.rejection->message : "");
  write_signer(json, check);
  json.member("model", check.model).member("sha256", check.root);
  json.member("method", check.method).member("hash_type", check.hash_type);
  json.key("ignore_paths").begin_array();
  for (const std::string& path : check.ignore_paths) json.value(path);
  json.end_array().key("counts").begin_object();
  for (const FileStatus status : kStatuses) json.member(name_of(status), check.count(status));
  json.end_object().end_object();
  json.key("files").begin_array();
  for (const CheckedFile& file : check.files) {
    json.begin_object().member("name", file.name).member("status", name_of(file.status));
    json.member("message", file.what).end_object();
  }
  json.end_array();
}

std::string describe_signature(const signing::ModelCheck& check) {
  const std::string signer =
      check.signer->subject.empty() ? "key " + check.signer->key : check.signer->subject;
  std::string text = fmt::format("{}: verified: {} files, {}, signed by {} ({})\n",
                                 printable(check.path), check.count(FileStatus::kOk),
                                 human_bytes(check.hashed_bytes), signer, check.signer->curve);
  for (const CheckedFile& file : check.files) {
    if (file.status != FileStatus::kIgnored && file.status != FileStatus::kUnsigned) continue;
    text += fmt::format("  {}  {}\n", name_of(file.status), printable(file.name));
  }
  return text;
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

}  // namespace ferry::cli
