// Input: a whole GGUF file, adopted as a Hugging Face checkpoint.

#include <cstring>
#include <nlohmann/json.hpp>

#include "converters/config/model_config.h"
#include "dialects/gguf/file/header.h"
#include "dialects/gguf/model/adopt.h"
#include "tests/fuzz/memory_file.h"

namespace ferry::gguf_adopt_fuzz {
namespace {

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
