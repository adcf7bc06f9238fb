#include "signing/signature_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <span>

#include "core/file.h"
#include "core/os_error.h"
#include "core/text.h"
#include "signing/envelope.h"
#include "signing/verify_envelope.h"

namespace ferry::signing {
namespace {

std::filesystem::path directory_of(const std::string& path) {
  return std::filesystem::path(path).parent_path();
}

// One name for each file, so that the next run finds what a killed one has left.
std::string temporary_name(const std::string& path) {
  return (directory_of(path) / fmt::format(".{}.ferry-tmp", base_name(path))).string();
}

bool is_signature(const std::string& path) {
  const auto text = read_text_file(path, kMaxSignatureBytes);
  return text && read_envelope(*text, path);
}

}  // namespace

Status prepare_signature_file(const std::string& path) {
  const std::string temporary = temporary_name(path);
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) {
    return os_error(temporary, "cannot remove", errno);
  }
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (S_ISREG(info.st_mode) && (info.st_size == 0 || is_signature(path))) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: exists and is not a signature: not replaced", printable(path)));
}

Status write_signature_file(const std::string& path, std::string_view text) {
  const std::string temporary = temporary_name(path);
  const std::string line = std::string(text) + "\n";
  OutputFile file = FERRY_TRY(OutputFile::create(temporary, line.size()));
  Status written = file.write_at(0, std::as_bytes(std::span(line)));
  if (written) written = file.sync_and_close();
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) {
    written = os_error(path, "cannot write", errno);
  }
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_directory(directory_of(path).string());
}

}  // namespace ferry::signing
