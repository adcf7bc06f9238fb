// Checks that tests of checkpoints with an audio encoder share.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <string>

#include "tests/cli/checkpoints.h"
#include "tests/end_to_end/verb_outcomes.h"

namespace ferry::sound_checkpoints {

using namespace verb_outcomes;

inline std::string sound_file(const std::string& name) { return fixture("sound/" + name); }
inline std::string picture(const std::string& name) { return fixture("media/images/" + name); }

// Returns the prompt of a case as options of run.
inline Line prompt_of(const TempDir& dir, const Json& one) {
  Line files;
  const auto add = [&](const Json& item) {
    if (item.contains("audio")) files = files + Line{"--audio", sound_file(item["audio"])};
    if (item.contains("image")) files = files + Line{"--image", picture(item["image"])};
  };
  if (one.contains("prompt")) {
    for (const Json& name : one["audio"]) add({{"audio", name}});
    for (const Json& name : one.value("image", Json::array())) add({{"image", name}});
    return files + Line{"--prompt", one["prompt"]};
  }
  Json messages = one["messages"];
  for (const Json& name : one.value("audio", Json::array())) add({{"audio", name}});
  for (Json& message : messages) {
    for (Json& item : message["content"]) {
      add(item);
      if (item.contains("audio")) item = {{"type", "audio"}};
      if (item.contains("image")) item = {{"type", "image"}};
    }
  }
  write_bytes(dir / "chat.json", messages.dump());
  return files + Line{"--messages", dir / "chat.json"};
}

// Returns a copy of the checkpoint at `source` in which a file has another value for a key.
inline std::string with_value(const TempDir& dir, const std::string& source,
                              const std::string& file, const Json::json_pointer& key,
                              const Json& value) {
  const std::string folder = dir / "changed";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(source, folder);
  Json fields = Json::parse(read_bytes(folder + "/" + file));
  fields[key] = value;
  write_bytes(folder + "/" + file, fields.dump());
  return folder;
}

// Expects that `verify` names each of these tensors of the prompt audio1 where its reference, the
// golden.safetensors of the checkpoint, has another value.
inline void expect_changed_stages_found(const TempDir& dir, const std::string& source,
                                        const std::string& bundle,
                                        std::initializer_list<const char*> tensors) {
  for (const std::string name : tensors) {
    const std::string reference = dir / "golden.safetensors";
    TensorFile file(source + "/golden.safetensors");
    std::string bytes = file.bytes_of("audio1." + name);
    bytes[3] = static_cast<char>(bytes[3] ^ 0x01);
    file.set_bytes("audio1." + name, bytes);
    file.write(reference);
    const Json report = verified({bundle, "--checkpoint", source, "--reference", reference}, 1);
    EXPECT_NE(report.dump().find(name), std::string::npos);
  }
}

// Expects that `verify` without a reference compares a sound that it generates, with the checkpoint
// and with another bundle.
inline void expect_generated_sound_compared(const std::string& bundle, const std::string& source) {
  const Json report = verified({bundle, "--checkpoint", source});
  EXPECT_EQ(report["result"]["parity"], true);
  EXPECT_NE(report.dump().find("audio_features"), std::string::npos);
  EXPECT_EQ(verified({bundle, "--against", bundle})["result"]["parity"], true);
}

// Returns the tokens of a result without that of the end.
inline Json answered(const Json& result, int64_t end = 2) {
  Json tokens = result["tokens"];
  if (!tokens.empty() && tokens.back() == end) tokens.erase(tokens.size() - 1);
  return tokens;
}

}  // namespace ferry::sound_checkpoints
