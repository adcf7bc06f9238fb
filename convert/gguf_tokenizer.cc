#include "convert/gguf_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/file.h"
#include "dialects/gguf/tokenizer/tokenizer_keys.h"

namespace ferry::convert {
namespace {

// The files that a conversion carries along. The config is that of the model, which an option may
// have replaced.
text::ReadFile model_files(const plan::MappedModel& model) {
  return [&model](const std::string& name, uint64_t limit) -> Result<std::string> {
    if (name == "config.json") return model.config_text;
    const auto at = std::ranges::find(model.copied, name, &packer::CopiedFile::name);
    if (at == model.copied.end()) return std::string();
    if (at->text) return *at->text;
    return read_text(*at->file, limit);
  };
}

}  // namespace

Status add_gguf_tokenizer(const plan::MappedModel& model,
                          const converters::GgufArchitecture& architecture, const std::string& pre,
                          std::vector<GgufKeyValue>& keys, std::vector<std::string>& notes) {
  text::GgufTokenizerOptions options;
  options.architecture =
      architecture.tokenizer.empty() ? architecture.name : architecture.tokenizer;
  options.vocab_size = model.checkpoint.config.vocab_size;
  options.pre = pre;
  text::GgufTokenizerKeys made = FERRY_TRY(text::gguf_tokenizer_keys(model_files(model), options));
  for (GgufKeyValue& item : made.keys) {
    const auto at = std::ranges::find(keys, item.key, &GgufKeyValue::key);
    if (at == keys.end()) {
      keys.push_back(std::move(item));
    } else {
      at->value = std::move(item.value);
    }
  }
  std::ranges::move(made.notes, std::back_inserter(notes));
  return {};
}

}  // namespace ferry::convert
