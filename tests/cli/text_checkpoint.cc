#include "tests/cli/text_checkpoint.h"

#include <nlohmann/json.hpp>

#include "tests/cli/ferry_process.h"

namespace ferry {

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

}  // namespace ferry
