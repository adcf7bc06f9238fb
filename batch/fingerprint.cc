#include "batch/fingerprint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>
#include <vector>

#include "core/directory.h"
#include "core/file.h"
#include "core/os_error.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/version.h"

namespace ferry::batch {
namespace {

constexpr uint64_t kWholeBytes = uint64_t{1} << 20;
constexpr uint64_t kEndBytes = uint64_t{16} << 10;
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr std::string_view kBytesPrefix = "bytes:";
constexpr std::array<std::string_view, 8> kWeightSuffixes = {
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".hdf5", ".gguf"};

struct Work {
  Thoroughness thoroughness;
  const std::function<Status()>& keep_on;
  Sha256 sum = {};
  uint64_t bytes = 0;

  // With its length, so that no two lists of texts give the same bytes.
  void add(std::string_view text) {
    const std::string length = fmt::format("{}:", text.size());
    sum.update(std::as_bytes(std::span<const char>(length)));
    sum.update(std::as_bytes(std::span<const char>(text)));
  }
  void add(uint64_t number) { add(fmt::format("{}", number)); }
};

Status add_range(Work& work, const InputFile& file, uint64_t begin, uint64_t end) {
  std::vector<std::byte> piece;
  for (uint64_t at = begin; at < end; at += piece.size()) {
    FERRY_RETURN_IF_ERROR(work.keep_on());
    piece.resize(std::min(end - at, kPieceBytes));
    FERRY_RETURN_IF_ERROR(file.read_at(at, piece));
    work.sum.update(piece);
  }
  return {};
}

Status add_large(Work& work, const InputFile& file) {
  struct stat now = {};
  const InputFile::Descriptor descriptor = FERRY_TRY(file.descriptor());
  if (::fstat(descriptor.fd(), &now) != 0) return os_error(file.path(), "cannot stat", errno);
  work.add(fmt::format("{}.{:09}", now.st_mtim.tv_sec, now.st_mtim.tv_nsec));
  FERRY_RETURN_IF_ERROR(add_range(work, file, 0, kEndBytes));
  return add_range(work, file, file.size() - kEndBytes, file.size());
}

Status add_file(Work& work, const std::string& name, const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  work.bytes += file.size();
  work.add(name);
  work.add(file.size());
  const bool whole = work.thoroughness == Thoroughness::kBytes || file.size() <= kWholeBytes;
  return whole ? add_range(work, file, 0, file.size()) : add_large(work, file);
}

bool is_regular(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_weight_file(std::string_view name) {
  return std::ranges::any_of(kWeightSuffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// All files of a folder, but for those that `leave_out` names.
template <class LeaveOut>
Status add_directory(Work& work, const std::string& path, const LeaveOut& leave_out) {
  const Directory directory = FERRY_TRY(Directory::open(path));
  for (const std::string& name : FERRY_TRY(directory.names())) {
    const std::string full = directory.path_of(name);
    if (name.starts_with('.') || leave_out(name) || !is_regular(full)) continue;
    FERRY_RETURN_IF_ERROR(add_file(work, name, full));
  }
  return {};
}

// A tensor file is read with the configuration and the tokenizer beside it, an index with all.
Status add_input(Work& work, const std::string& input) {
  if (!is_regular(input)) {
    return add_directory(work, input, [](const std::string&) { return false; });
  }
  const std::string name = base_name(input);
  const size_t slash = input.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : input.substr(0, slash + 1);
  const bool index = name.ends_with(".json");
  work.add(name);
  return add_directory(work, parent, [&](const std::string& other) {
    return !index && other != name && is_weight_file(other);
  });
}

// Words of a command line; a file that one of them names counts with what is in it.
Status add_words(Work& work, const std::vector<std::string>& words) {
  work.add(words.size());
  for (const std::string& word : words) {
    work.add(word);
    const std::string value = word.substr(word.find('=') + 1);  // all of it where there is no '='
    if (is_regular(value)) FERRY_RETURN_IF_ERROR(add_file(work, "", value));
  }
  return {};
}

Status add_verify(Work& work, const Verify& verify) {
  work.add(fmt::format("{} {} {}", verify.embedded, verify.checkpoint, verify.check));
  work.add(verify.reference);
  if (!verify.reference.empty()) FERRY_RETURN_IF_ERROR(add_file(work, "", verify.reference));
  return add_words(work, verify.args);
}

}  // namespace

Result<Fingerprint> fingerprint_of(const Task& task, Thoroughness thoroughness,
                                   const std::function<Status()>& keep_on) {
  Work work{.thoroughness = thoroughness, .keep_on = keep_on};
  work.add(version());
  FERRY_RETURN_IF_ERROR(add_words(work, task.args));
  FERRY_RETURN_IF_ERROR(add_verify(work, task.verify));
  work.add(task.expect.sha256);
  work.add(task.expect.max_bytes ? fmt::format("{}", *task.expect.max_bytes) : "");
  work.bytes = 0;  // of the checkpoint alone
  FERRY_RETURN_IF_ERROR(add_input(work, task.input));
  return Fingerprint{
      .text = fmt::format("{}{}", thoroughness == Thoroughness::kBytes ? kBytesPrefix : "stat:",
                          to_hex(work.sum.finish())),
      .input_bytes = work.bytes};
}

Thoroughness thoroughness_of(const std::string& fingerprint) {
  return fingerprint.starts_with(kBytesPrefix) ? Thoroughness::kBytes : Thoroughness::kStat;
}

}  // namespace ferry::batch
