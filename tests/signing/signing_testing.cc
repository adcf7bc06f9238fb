#include "tests/signing/signing_testing.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace ferry::signing {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string key_file(const std::string& name) {
  return std::string(FERRY_TESTDATA) + "/signing_keys/" + name;
}

std::string private_copy(const TempDir& dir, const std::string& name) {
  const std::string path = dir.write(name, read_file(key_file(name)));
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  return path;
}

std::string verdict_of(const Result<ModelCheck>& check) {
  if (!check && check.error().code == ErrorCode::kUnsupported) {
    return "unsupported: " + check.error().message;
  }
  if (!check) {
    return fmt::format("error {}: {}", static_cast<int>(check.error().code), check.error().message);
  }
  if (check->verified()) return "accept";
  return fmt::format("reject {}: {}", name_of(check->rejection->stage), check->rejection->message);
}

}  // namespace ferry::signing
