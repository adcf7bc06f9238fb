// Input: a whole GGUF file, adopted as a Hugging Face checkpoint; a projector beside text decoders
// of several architectures.

#include <cstring>
#include <nlohmann/json.hpp>

#include "converters/config/model_config.h"
#include "dialects/gguf/file/header.h"
#include "dialects/gguf/model/adopt.h"
#include "dialects/gguf/projector/adopt_projector.h"
#include "tests/fuzz/memory_file.h"

namespace ferry::gguf_adopt_fuzz {
namespace {

// A text decoder of an architecture, as far as a projector needs to know it.
void adopt_beside(const char* architecture, const char* type, const MemoryFile& source,
                  const nlohmann::json& metadata) {
  const nlohmann::json text_metadata = {
      {"general.architecture", architecture},
      {"tokenizer.ggml.tokens",
       {"<image>", "<image_soft_token>", "<|image|>", "<IMG_CONTEXT>", "<|image_pad|>", "[IMG]"}}};
  const auto width = metadata.find("clip.vision.projection_dim");
  nlohmann::json config = {{"model_type", type},       {"hidden_size", 64},
                           {"intermediate_size", 96},  {"num_hidden_layers", 2},
                           {"num_attention_heads", 4}, {"vocab_size", 64}};
  if (width != metadata.end()) config["hidden_size"] = *width;
  converters::AdoptedGguf text;
  text.config = config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.config_name = "c";
  const auto adopted = converters::adopt_projector(
      {.source = &source, .metadata = &metadata, .text_metadata = &text_metadata}, text);
  if (!adopted) return require_good_message(adopted.error());
  for (const converters::KeyedTensor& tensor : adopted->tensors.tensors) {
    require(read_end(tensor.recipe, source).has_value());
  }
}

void run(std::span<const std::byte> file) {
  const formats::GgufRead read = [file](uint64_t offset, std::span<std::byte> out) -> Status {
    if (!out.empty()) std::memcpy(out.data(), file.data() + offset, out.size());
    return {};
  };
  const auto header = formats::read_gguf_header(read, file.size(), "f");
  if (!header) return;
  const auto metadata = formats::GgufMetadata(header->items, header->bytes, "f").to_json();
  if (!metadata) return require_good_message(metadata.error());
  std::vector<TensorEntry> entries;
  for (const formats::GgufTensor& tensor : header->tensors) entries.push_back(tensor.entry);
  const MemoryFile source(std::move(entries), file);
  if (converters::is_projector(*metadata)) {
    adopt_beside("llama", "llama", source, *metadata);
    adopt_beside("gemma3", "gemma3_text", source, *metadata);
    adopt_beside("gemma4", "gemma4_text", source, *metadata);
    adopt_beside("lfm2", "lfm2", source, *metadata);
    adopt_beside("qwen2", "qwen2", source, *metadata);
    adopt_beside("qwen2vl", "qwen2_5_vl_text", source, *metadata);
    adopt_beside("qwen3vl", "qwen3_vl_text", source, *metadata);
    return;
  }
  const auto adopted = converters::adopt_gguf(source, *metadata, "", "");
  if (!adopted) return require_good_message(adopted.error());
  require(converters::parse_model_config(adopted->config, adopted->generation, "f").has_value());
  for (const converters::KeyedTensor& tensor : adopted->tensors.tensors) {
    require(read_end(tensor.recipe, source).has_value());
  }
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run(std::as_bytes(std::span(data, size)));
  return 0;
}

}  // namespace ferry::gguf_adopt_fuzz
