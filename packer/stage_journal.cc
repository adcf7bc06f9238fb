#include "packer/stage_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <random>

#include "core/result.h"
#include "packer/digests.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kFormat = "ferry-stage-journal-v1";
constexpr uint64_t kMaxJournalBytes = uint64_t{1} << 30;
// Payload bytes between two syncs. A power failure loses at most this much, and what is being
// written.
constexpr uint64_t kSyncBytes = uint64_t{1} << 28;
constexpr size_t kChecksumDigits = 32;
constexpr size_t kJournalDigestDigits = 2 * sizeof(Digest);

std::string random_name() {
  std::random_device random;
  std::string name;
  for (int i = 0; i < 4; ++i) name += fmt::format("{:08x}", random());
  return name;
}

// Splits a line into words at single blanks.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  std::string_view word() {
    const size_t blank = rest_.find(' ');
    const std::string_view found = rest_.substr(0, blank);
    rest_.remove_prefix(blank == std::string_view::npos ? rest_.size() : blank + 1);
    return found;
  }
  std::optional<uint64_t> number() {
    const std::string_view text = word();
    uint64_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
    return value;
  }
  std::optional<Digest> digest() {
    const std::string_view text = word();
    Digest value{};
    if (text.size() != kJournalDigestDigits) return std::nullopt;
    for (size_t i = 0; i < value.size(); ++i) {
      uint8_t byte = 0;
      const char* at = text.data() + 2 * i;
      const auto parsed = std::from_chars(at, at + 2, byte, 16);
      if (parsed.ec != std::errc() || parsed.ptr != at + 2) return std::nullopt;
      value[i] = std::byte{byte};
    }
    return value;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// Formats a line: "LINE weight INDEX STORED OVERFLOWED UNQUANTIZED TOO_LARGE OUTPUTS DIGEST...
// ENTRIES (ENTRY DIGEST)..."
std::string body_of(uint64_t line, const WeightRecord& record) {
  const NonFiniteCount& count = record.non_finite;
  std::string text =
      fmt::format("{} weight {} {} {} {} {} {}", line, record.weight, count.stored,
                  count.overflowed, count.unquantized, count.too_large, record.outputs.size());
  for (const Digest& digest : record.outputs) text += ' ' + to_hex(digest);
  text += fmt::format(" {}", record.entries.size());
  for (const auto& [entry, digest] : record.entries) {
    text += fmt::format(" {} {}", entry, to_hex(digest));
  }
  return text;
}

std::optional<WeightRecord> parse_record(Words words) {
  WeightRecord record;
  if (words.word() != "weight") return std::nullopt;
  uint64_t weight = 0, outputs = 0, entries = 0;
  NonFiniteCount& count = record.non_finite;
  for (uint64_t* number : {&weight, &count.stored, &count.overflowed, &count.unquantized,
                           &count.too_large, &outputs}) {
    const auto value = words.number();
    if (!value) return std::nullopt;
    *number = *value;
  }
  record.weight = weight;
  for (uint64_t i = 0; i < outputs; ++i) {
    const auto digest = words.digest();
    if (!digest) return std::nullopt;
    record.outputs.push_back(*digest);
  }
  const auto stated = words.number();
  if (!stated) return std::nullopt;
  for (entries = *stated; entries > 0; --entries) {
    const auto entry = words.number();
    const auto digest = words.digest();
    if (!entry || !digest) return std::nullopt;
    record.entries.emplace_back(*entry, *digest);
  }
  if (!words.empty()) return std::nullopt;
  return record;
}

std::string checksum_of(std::string_view run, std::string_view body) {
  Sha256 hash;
  update_text(hash, run);
  update_text(hash, "\n");
  update_text(hash, body);
  return to_hex(hash.finish()).substr(0, kChecksumDigits);
}

// Returns the line without its checksum; nullopt if the checksum is wrong.
std::optional<std::string_view> body_in(std::string_view line, std::string_view run) {
  if (line.size() <= kChecksumDigits) return std::nullopt;
  const size_t end = line.size() - kChecksumDigits - 1;
  const std::string_view body = line.substr(0, end);
  if (line[end] != ' ' || line.substr(end + 1) != checksum_of(run, body)) return std::nullopt;
  return body;
}

Result<std::string> text_of(const OutputFile& file) {
  const uint64_t size = FERRY_TRY(file.size());
  if (size > kMaxJournalBytes) return std::string();  // larger than any journal of Ferry
  std::string text(size, '\0');
  FERRY_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

// Opens `path` for reading and writing; makes an empty file if there is none.
Result<OutputFile> open_or_create(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) {
    auto file = OutputFile::open_existing(path);
    if (file || ::unlink(path.c_str()) != 0) return file;
  }
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.is_open()) return os_error(path, "cannot create", errno);
  return OutputFile::adopt(std::move(fd), path);
}

}  // namespace

StageJournal::StageJournal(StageJournal&& other) noexcept
    : file_(std::move(other.file_)),
      run_(std::move(other.run_)),
      records_(std::move(other.records_)),
      end_(other.end_),
      lines_(other.lines_),
      unsynced_(other.unsynced_) {}

Result<StageJournal> StageJournal::open(const std::string& path, std::string_view fingerprint) {
  StageJournal journal;
  journal.file_ = FERRY_TRY(open_or_create(path));
  const std::string text = FERRY_TRY(text_of(journal.file_));
  if (journal.read(text, fingerprint)) {
    // Cuts off everything after the last complete line, because broken bytes would hide later
    // lines.
    FERRY_RETURN_IF_ERROR(journal.file_.extend(journal.end_));
  } else {
    FERRY_RETURN_IF_ERROR(journal.begin(fingerprint));
  }
  return journal;
}

Result<std::optional<std::vector<WeightRecord>>> StageJournal::records_of(
    const std::string& path, std::string_view fingerprint) {
  const std::string text = FERRY_TRY(read_text_file(path, kMaxJournalBytes));
  StageJournal journal;
  if (!journal.read(text, fingerprint)) return std::nullopt;
  return std::move(journal.records_);
}

bool StageJournal::read(std::string_view text, std::string_view fingerprint) {
  for (size_t at = 0; at < text.size();) {
    const size_t newline = text.find('\n', at);
    if (newline == std::string_view::npos) break;  // the last line is torn
    const std::string_view line = text.substr(at, newline - at);
    if (lines_ == 0) {
      Words words(line);
      if (words.word() != kFormat || words.word() != fingerprint) return false;
      run_ = words.word();
      if (!body_in(line, run_)) return false;
    } else {
      const auto body = body_in(line, run_);
      if (!body) break;
      Words words(*body);
      if (words.number() != lines_) break;
      auto record = parse_record(words);
      if (!record) break;
      records_.push_back(std::move(*record));
    }
    at = newline + 1;
    end_ = at;
    ++lines_;
  }
  return lines_ > 0;
}

Status StageJournal::begin(std::string_view fingerprint) {
  run_ = random_name();
  FERRY_RETURN_IF_ERROR(file_.extend(0));
  FERRY_RETURN_IF_ERROR(append_line(fmt::format("{} {} {}", kFormat, fingerprint, run_)));
  return file_.sync();
}

Status StageJournal::append_line(std::string_view body) {
  const std::string line = fmt::format("{} {}\n", body, checksum_of(run_, body));
  FERRY_RETURN_IF_ERROR(file_.write_at(end_, std::as_bytes(std::span(line))));
  end_ += line.size();
  ++lines_;
  return {};
}

Status StageJournal::append(const WeightRecord& record, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  FERRY_RETURN_IF_ERROR(append_line(body_of(lines_, record)));
  unsynced_ += bytes;
  if (unsynced_ < kSyncBytes) return {};
  unsynced_ = 0;
  return file_.sync_data();
}

}  // namespace ferry::packer
