#include "tests/cli/vision_checkpoint.h"

#include <filesystem>

namespace ferry {

namespace fs = std::filesystem;

std::string vision_checkpoint(const TempDir& dir, const std::string& name,
                              const std::string& copy) {
  const std::string made = dir / copy;
  fs::create_directory(made);
  const std::string processor = name == "smolvlm" ? "smolvlm" : "internvl";
  for (const std::string& from : {fixture("vision/" + name), fixture("media/" + processor)}) {
    for (const auto& entry : fs::directory_iterator(from)) {
      if (entry.path().filename() == "golden.safetensors") continue;
      fs::copy(entry.path(), made);
    }
  }
  return made;
}

std::string vision_golden(const std::string& name) {
  return fixture("vision/" + name + "/golden.safetensors");
}

}  // namespace ferry
