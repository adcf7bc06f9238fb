#include "text/read_file.h"

#include <filesystem>
#include <utility>

#include "core/file.h"

namespace ferry::text {

ReadFile files_in(std::string directory) {
  return [directory = std::move(directory)](const std::string& name,
                                            uint64_t limit) -> Result<std::string> {
    const std::string path = directory + "/" + name;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return std::string();
    return read_text_file(path, limit);
  };
}

}  // namespace ferry::text
