// A bundle of two shards, which tests damage.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "packer/bundle_reader.h"
#include "tests/packer/tiny_bundle.h"

namespace ferry::packer {

namespace fs = std::filesystem;

inline constexpr char kPte1[] = "decoder-00001-of-00002.pte";
inline constexpr char kPte2[] = "decoder-00002-of-00002.pte";
inline constexpr char kPtd1[] = "decoder-00001-of-00002.ptd";
inline constexpr char kPtd2[] = "decoder-00002-of-00002.ptd";

class BundleReader : public testing::Test {
 protected:
  BundleReader() : path(dir / "out") {
    write_file(dir / "t", "{\"a\": 1}");
    model.copied = {copied_file("tokenizer.json", dir / "t")};
    manifest = write_tiny_bundle(model, path);
  }

  // Makes a smaller bundle, for tests that change every byte.
  void use_one_shard() {
    path = dir / "small";
    const auto plan = BundlePlan::make(model.one_shard(), model.source, 0);
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_TRUE(plan->write(path, false, pool, {}));
  }

  // Returns the message of opening, which must fail.
  std::string refusal(bool digests = true) {
    const auto bundle = Bundle::open(path, digests, pool);
    EXPECT_FALSE(bundle);
    return bundle ? "" : bundle.error().message;
  }
  void expect_refused_naming(const std::string& file, const std::string& what) {
    const std::string message = refusal();
    EXPECT_EQ(message.find(path + "/" + file + ": "), 0u) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  // Bits are flipped in place through a mapping, because writing each variant as a file would take
  // minutes.
  void flip_bits(const std::string& name) {
    const std::string file = path + "/" + name;
    const size_t size = fs::file_size(file);
    const int fd = ::open(file.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    ::close(fd);
    auto* bytes = static_cast<unsigned char*>(mapped);
    // One bit of each byte is flipped, each time another one. With FERRY_EVERY_BIT in the
    // environment all bits are.
    const bool all = std::getenv("FERRY_EVERY_BIT") != nullptr;
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      if (!all && bit % 8 != bit / 8 % 8) continue;
      const auto mask = static_cast<unsigned char>(1u << bit % 8);
      bytes[bit / 8] ^= mask;
      // SHA-256 finds the change, and for execution XXH3.
      const auto bundle =
          bit % 2 == 0 ? Bundle::open(path, true, pool) : Bundle::open_to_execute(path, pool);
      bytes[bit / 8] ^= mask;
      ASSERT_FALSE(bundle) << name << " bit " << bit;
      ASSERT_EQ(bundle.error().message.find(file + ": "), 0u) << bundle.error().message;
    }
    ::munmap(mapped, size);
    EXPECT_TRUE(Bundle::open(path, true, pool));
    EXPECT_TRUE(Bundle::open_to_execute(path, pool));
  }
  // Writes a changed manifest with a self digest that fits it, as an attacker could.
  void publish(const Manifest& changed) {
    write_file(path + "/manifest.json", write_manifest(changed));
  }

  TempDir dir;
  std::string path;
  TinyModel model;
  Manifest manifest;
  ThreadPool pool{1};
};

inline std::string all_messages(const Result<Bundle>& bundle) {
  if (bundle) return "";
  std::string messages = bundle.error().message;
  for (const std::string& detail : bundle.error().details) messages += "\n" + detail;
  return messages;
}

}  // namespace ferry::packer
