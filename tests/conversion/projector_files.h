// Checkpoints of vision-language families that llama.cpp has projectors of, for tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace ferry::projector_files {

inline constexpr const char* kFamilies[] = {
    "smolvlm",      "gemma3",   "gemma4",     "internvl3_opengvlab",
    "lfm2_vl",      "qwen2_vl", "qwen2_5_vl", "qwen3_vl",
    "qwen3_vl_moe", "qwen3_5",  "mistral3"};

inline std::string fixtures() { return FERRY_TESTDATA; }
inline std::string golden(const std::string& family) {
  return fixtures() + "/vision/" + family + "/golden.safetensors";
}

inline void edit(const std::filesystem::path& path,
                 const std::function<void(nlohmann::json&)>& change) {
  std::ifstream in(path);
  nlohmann::json document = nlohmann::json::parse(in);
  change(document);
  std::ofstream(path) << document.dump(2);
}

// Whether checkpoint() gives a family other numbers than its reference has.
inline bool is_edited(const std::string& family) {
  return family == "gemma3" || family == "mistral3" || family == "qwen2_5_vl";
}

// Copies the fixture of a family to `out`, with a processor, and with the numbers that readers of
// GGUF assume. None of them decides a weight.
inline std::string checkpoint(const std::string& out, const std::string& family) {
  namespace fs = std::filesystem;
  fs::create_directory(out);
  const auto copy = [&](const fs::path& from) {
    for (const auto& entry : fs::directory_iterator(from)) {
      const fs::path to = fs::path(out) / entry.path().filename();
      if (entry.path().filename() != "golden.safetensors" && !fs::exists(to)) fs::copy(entry, to);
    }
  };
  copy(fixtures() + "/vision/" + family);
  if (family == "smolvlm") copy(fixtures() + "/media/smolvlm");
  if (family.starts_with("internvl3")) copy(fixtures() + "/media/internvl");
  if (!is_edited(family)) return out;
  edit(fs::path(out) / "config.json", [&](nlohmann::json& config) {
    if (family == "qwen2_5_vl") config["vision_config"]["window_size"] = 112;
    if (family == "mistral3") config["text_config"]["rms_norm_eps"] = 1e-5;
    if (family != "gemma3") return;
    nlohmann::json& layers = config["text_config"]["layer_types"];
    for (nlohmann::json& layer : layers) layer = "sliding_attention";
  });
  return out;
}

}  // namespace ferry::projector_files
