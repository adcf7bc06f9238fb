#include "core/memory_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "core/result.h"
#include "core/text.h"

namespace ferry {
namespace {

std::string shown(const std::string& name) { return name + " (in memory)"; }

}  // namespace

Result<OutputFile> MemoryFolder::create(const std::string& name, uint64_t bytes) {
  if (files_.contains(name)) return os_error(shown(name), "cannot create", EEXIST);
  std::shared_ptr<HugeMemory> memory = HugeMemory::allocate(bytes);
  if (!memory) {
    return os_error(shown(name), fmt::format("cannot take {} bytes", bytes), errno);
  }
  files_.emplace(name, memory);
  return OutputFile::in_memory(std::move(memory), shown(name));
}

Result<std::shared_ptr<HugeMemory>> MemoryFolder::find(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) return os_error(shown(name), "cannot open", ENOENT);
  return found->second;
}

Result<OutputFile> MemoryFolder::open_to_write(const std::string& name) const {
  return OutputFile::in_memory(FERRY_TRY(find(name)), shown(name));
}

Result<InputFile> MemoryFolder::open(const std::string& name) const {
  return InputFile::in_memory(FERRY_TRY(find(name)), shown(name));
}

std::vector<std::string> MemoryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

}  // namespace ferry
