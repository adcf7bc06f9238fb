// Input: config.json, adapter_config.json and the JSON of a safetensors file, each ended by a NUL
// byte, and the data of the file. It is a checkpoint with quantised matrices, and a LoRA adapter:
// the tensors whose names begin with "base_model.".

#include <memory>

#include "converters/lora/lora.h"
#include "converters/quantized/adopt.h"
#include "formats/safetensors/safetensors.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/parts.h"

namespace ferry::adapters_fuzz {
namespace {

struct Input {
  std::string config, adapter_config;
  std::vector<TensorEntry> checkpoint = {}, adapter = {};
  std::span<const std::byte> data = {};
};

Result<Input> read_input(std::string_view text) {
  Input input = {.config = cut(text), .adapter_config = cut(text)};
  const std::string header = cut(text);
  input.data = std::as_bytes(std::span(text));
  const uint64_t start = formats::kSafetensorsPrefixBytes + header.size();
  const auto json = std::as_bytes(std::span(header));
  for (TensorEntry entry :
       FERRY_TRY(formats::parse_safetensors_header(json, start + text.size(), "f"))) {
    entry.offset -= start;
    const bool of_adapter = entry.name.starts_with("base_model.");
    (of_adapter ? input.adapter : input.checkpoint).push_back(std::move(entry));
  }
  return input;
}

Result<converters::AdoptedQuantized> adopt(const Input& input) {
  auto source = std::make_unique<MemoryFile>(input.checkpoint, input.data);
  const auto quantized = FERRY_TRY(converters::parse_quantization_config(input.config, "f"));
  if (quantized) {
    FERRY_TRY(converters::without_quantization_config(input.config, "f"));
    return converters::adopt_quantized(std::move(source), *quantized);
  }
  converters::AdoptedQuantized plain;
  plain.source = std::make_unique<DerivedSource>(std::move(source));
  plain.tensors = converters::key_by_name(*plain.source);
  return plain;
}

Status merge(const Input& input, converters::AdoptedQuantized& weights) {
  if (input.adapter_config.empty()) return {};
  const auto config = FERRY_TRY(converters::parse_lora_config(input.adapter_config, "f"));
  const size_t first = FERRY_TRY(
      weights.source->add_source(std::make_unique<MemoryFile>(input.adapter, input.data)));
  FERRY_TRY(converters::merge_lora(*weights.source, first, config, input.config, weights.tensors));
  return {};
}

Status run(std::string_view text) {
  const Input input = FERRY_TRY(read_input(text));
  converters::AdoptedQuantized weights = FERRY_TRY(adopt(input));
  FERRY_RETURN_IF_ERROR(merge(input, weights));
  for (const converters::KeyedTensor& tensor : weights.tensors.tensors) {
    FERRY_RETURN_IF_ERROR(read_end(tensor.recipe, *weights.source));
  }
  return {};
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto status = run(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!status) ferry::require_good_message(status.error());
  return 0;
}

}  // namespace ferry::adapters_fuzz
