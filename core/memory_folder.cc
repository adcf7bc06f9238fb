#include "core/memory_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/result.h"
#include "core/text.h"

namespace ferry {
namespace {

std::string shown(const std::string& name) { return name + " (in memory)"; }

// Opens the file behind `fd` again, with a descriptor that the result owns.
Result<OutputFile> copy_of(int fd, const std::string& name) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.is_open()) return os_error(shown(name), "cannot open", errno);
  return OutputFile::adopt(std::move(copy), shown(name));
}

}  // namespace

Result<OutputFile> MemoryFolder::create(const std::string& name, uint64_t bytes) {
  if (files_.contains(name)) return os_error(shown(name), "cannot create", EEXIST);
  UniqueFd memory(::memfd_create("ferry", MFD_CLOEXEC));
  if (!memory.is_open()) return os_error(shown(name), "cannot create", errno);
  OutputFile file = OutputFile::adopt(std::move(memory), shown(name));
  const int fd = file.fd();
  // OutputFile::extend() would allocate all of the memory at once.
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return os_error(shown(name), fmt::format("cannot extend to {} bytes", bytes), errno);
  }
  files_.emplace(name, std::move(file));
  return copy_of(fd, name);
}

Result<int> MemoryFolder::descriptor_of(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) return os_error(shown(name), "cannot open", ENOENT);
  return found->second.fd();
}

Result<OutputFile> MemoryFolder::open_to_write(const std::string& name) const {
  return copy_of(FERRY_TRY(descriptor_of(name)), name);
}

// The file has no path but that of its descriptor.
Result<InputFile> MemoryFolder::open(const std::string& name) const {
  return InputFile::open(fmt::format("/proc/self/fd/{}", FERRY_TRY(descriptor_of(name))));
}

std::vector<std::string> MemoryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

}  // namespace ferry
