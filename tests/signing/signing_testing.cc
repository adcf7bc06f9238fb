#include "tests/signing/signing_testing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

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

std::string encode(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

std::string decode(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  EXPECT_EQ(size, static_cast<int>(bytes.size())) << text;
  bytes.resize(bytes.size() - (text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0));
  return bytes;
}

}  // namespace ferry::signing
