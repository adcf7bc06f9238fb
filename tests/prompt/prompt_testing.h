// Processors of testdata/image_prompt, whole or with files replaced.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "prompt/image_prompt.h"

namespace ferry::prompt {

inline std::string prompt_fixture(const std::string& name) {
  return std::string(FERRY_TESTDATA "/image_prompt/") + name;
}

inline nlohmann::json prompt_goldens() {
  return nlohmann::json::parse(
      read_text_file(prompt_fixture("prompts.json"), uint64_t{1} << 30).value());
}

// The files of a processor by name. Other files are absent.
using Files = std::map<std::string, std::string>;

inline Files files_of(const std::string& processor) {
  Files files;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.json", "processor_config.json"}) {
    files[name] = read_text_file(prompt_fixture(processor + "/" + name), uint64_t{1} << 30).value();
  }
  return files;
}

inline Result<prompt::ImagePrompt> open_files(const Files& files) {
  return prompt::ImagePrompt::open("d",
                                   [&](const std::string& name, uint64_t) -> Result<std::string> {
                                     const auto found = files.find(name);
                                     return found == files.end() ? std::string() : found->second;
                                   });
}

// Expands a list of ids, in which [id, n] stands for n times the id.
inline std::vector<int64_t> unrolled(const nlohmann::json& ids) {
  std::vector<int64_t> out;
  for (const auto& id : ids) {
    const bool run = id.is_array();
    out.insert(out.end(), run ? id[1].get<size_t>() : 1, (run ? id[0] : id).get<int64_t>());
  }
  return out;
}

inline std::vector<prompt::ImageLayout> layouts_of(const nlohmann::json& images) {
  std::vector<prompt::ImageLayout> out;
  for (const auto& image : images) out.push_back({image[0], image[1], image[2]});
  return out;
}

}  // namespace ferry::prompt
