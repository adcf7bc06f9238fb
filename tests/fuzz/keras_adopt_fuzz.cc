// Input: a preset's config.json, a NUL byte, and a line for each variable with its path, its dtype
// as safetensors names it, and its sizes, separated by blanks. The values are zeros.

#include <charconv>
#include <memory>
#include <optional>

#include "converters/config/model_config.h"
#include "core/checked.h"
#include "dialects/keras/config.h"
#include "dialects/keras/keys.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/parts.h"

namespace ferry::keras_adopt_fuzz {
namespace {

class Zeros final : public MemoryFile {
 public:
  explicit Zeros(std::vector<TensorEntry> entries) : MemoryFile(std::move(entries), {}) {}
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    require(index < entries().size() && range_inside(offset, out.size(), entries()[index].bytes));
    std::ranges::fill(out, std::byte{});
    return {};
  }
};

std::string_view word(std::string_view& line) {
  const std::string_view first = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(line.size(), first.size() + 1));
  return first;
}

std::optional<TensorEntry> read_entry(std::string_view line) {
  TensorEntry entry = {.name = std::string(word(line)), .dtype = DType::kF32, .shape = {}};
  const auto dtype = dtype_from_safetensors(word(line));
  if (!dtype || entry.name.empty()) return std::nullopt;
  entry.dtype = *dtype;
  while (!line.empty()) {
    const std::string_view size = word(line);
    int64_t& read = entry.shape.emplace_back(-1);
    std::from_chars(size.data(), size.data() + size.size(), read);
    if (read < 0 || entry.shape.size() > 8) return std::nullopt;
  }
  const auto count = checked_numel(entry.shape);
  const auto bytes = count ? checked_mul<int64_t>(*count, dtype_bytes(*dtype)) : std::nullopt;
  if (!bytes) return std::nullopt;
  entry.bytes = static_cast<uint64_t>(*bytes);
  return entry;
}

// A variable must occur once in a file.
std::vector<TensorEntry> read_entries(std::string_view text) {
  std::vector<TensorEntry> entries;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::optional<TensorEntry> entry = read_entry(line);
    if (!entry || std::ranges::count(entries, entry->name, &TensorEntry::name) > 0) continue;
    entries.push_back(*std::move(entry));
  }
  return entries;
}

Status run(std::string_view text) {
  const std::string preset = cut(text);
  const Zeros source(read_entries(text));
  const std::string config = FERRY_TRY(
      converters::hugging_face_config_of_keras(preset, converters::has_keras_head(source), "f"));
  const auto parsed = FERRY_TRY(converters::parse_model_config(config, "", "f"));
  const auto keyed = FERRY_TRY(converters::key_keras_tensors(source, parsed));
  for (const converters::KeyedTensor& tensor : keyed.tensors) {
    FERRY_RETURN_IF_ERROR(read_end(tensor.recipe, source));
  }
  return {};
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto status = run(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!status) ferry::require_good_message(status.error());
  return 0;
}

}  // namespace ferry::keras_adopt_fuzz
