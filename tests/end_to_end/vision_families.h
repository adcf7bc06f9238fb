// Fixtures, chats with images and refusals that tests of vision-language families share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/cli/checkpoints.h"
#include "tests/end_to_end/verb_outcomes.h"

namespace ferry::vision_families {

using namespace verb_outcomes;

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
  return converted(dir, source_of(family), options);
}

inline std::vector<int64_t> ids_of(const TensorFile& file, const std::string& tensor) {
  const std::string bytes = file.bytes_of(tensor);
  std::vector<int64_t> ids(bytes.size() / sizeof(int64_t));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

}  // namespace ferry::vision_families
