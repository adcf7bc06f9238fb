#include "tests/cli/checkpoints.h"

#include <filesystem>
#include <nlohmann/json.hpp>

namespace ferry {

namespace fs = std::filesystem;

using Json = nlohmann::json;

std::string text_checkpoint(const TempDir& dir, const std::string& model) {
  Json tokenizer = Json::parse(read_bytes(fixture("tokenizer/llama3/tokenizer.json")));
  // The tokenizer keeps its bytes alone, because other tokens are beyond the model's vocabulary.
  tokenizer["post_processor"] = nullptr;
  tokenizer["added_tokens"] = tokenizer["model"]["merges"] = Json::array();
  Json vocabulary = Json::object();
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
    if (id < 256) vocabulary[token] = id;
  }
  tokenizer["model"]["vocab"] = vocabulary;
  const std::string source = changed_checkpoint(dir, model, [](TensorFile&) {});
  write_bytes(source + "/tokenizer.json", tokenizer.dump());
  const Json config = {{"chat_template",
                        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}"
                        "{% if add_generation_prompt %}assistant:{% endif %}"}};
  write_bytes(source + "/tokenizer_config.json", config.dump());
  return source;
}

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

std::string encoder(const std::string& name) { return fixture("encoder/" + name); }

Outcome convert_encoder(const std::string& source, const std::string& to,
                        std::vector<std::string> more) {
  std::vector<std::string> line = {"convert", source, "-o", to};
  // The config of this checkpoint does not say that it is an encoder.
  if (source.ends_with("qwen3_causal")) more.insert(more.end(), {"--program", "encoder"});
  line.insert(line.end(), more.begin(), more.end());
  return run_ferry(line);
}

std::string with_tokenizer(const TempDir& dir) {
  const std::string to = dir / "checkpoint";
  fs::copy(encoder("embedding_gemma"), to, fs::copy_options::recursive);
  write_bytes(to + "/tokenizer.json", read_bytes(fixture("tokenizer/gemma/tokenizer.json")));
  return to;
}

}  // namespace ferry
