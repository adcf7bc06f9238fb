// Fixtures, chats with images and refusals that tests of vision-language families share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/cli/checkpoints.h"

namespace ferry::vision_families {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

inline Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

inline const Line kInputs = {"--inputs", "images", "--dtype", "f32"};

inline std::string source_of(const std::string& family) { return fixture("vision/" + family); }

inline Json cases_of(const std::string& family) {
  return Json::parse(read_bytes(source_of(family) + "/cases.json"));
}

// The chat of a case, as --messages takes it, and its images.
inline Line prompt_of(const TempDir& dir, const Json& one) {
  const std::string path = dir / "messages.json";
  write_bytes(path, Json{{"messages", one["messages"]}, {"add_generation_prompt", true}}.dump());
  Line line = {"--messages", path};
  for (const std::string image : one["images"]) {
    line = line + Line{"--image", fixture("media/images/" + image)};
  }
  return line;
}

inline std::string convert(const TempDir& dir, const std::string& family, const Line& options) {
  const std::string bundle = dir / "b";
  const Outcome outcome = run_ferry(Line{"convert", source_of(family), "-o", bundle} + options);
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  return bundle;
}

inline std::vector<int64_t> ids_of(const TensorFile& file, const std::string& tensor) {
  const std::string bytes = file.bytes_of(tensor);
  std::vector<int64_t> ids(bytes.size() / sizeof(int64_t));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

inline Json verified(const Line& args, int code = 0) {
  const Outcome outcome = run_ferry(Line{"--json", "verify"} + args);
  EXPECT_EQ(outcome.code, code) << outcome.err << outcome.out;
  return outcome.json();
}

inline void expect_refused(const Line& args, int code, const std::string& message) {
  const Outcome outcome = run_ferry(args);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
}

}  // namespace ferry::vision_families
