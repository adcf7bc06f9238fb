#include "checkpoint/adapter_input.h"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_input.h"
#include "checkpoint/hub_cache.h"
#include "converters/lora/lora.h"
#include "core/derived_source.h"
#include "core/directory.h"
#include "core/file.h"
#include "core/text.h"

namespace ferry::checkpoint {
namespace {

constexpr uint64_t kMaxAdapterConfigBytes = uint64_t{16} << 20;
constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kAdapterTensors[] = {"adapter_model.safetensors", "adapter_model.bin"};

Result<std::unique_ptr<TensorSource>> open_tensors(const Directory& directory) {
  for (const char* name : kAdapterTensors) {
    if (directory.contains(name)) return open_tensors_in(directory, name);
  }
  return bad_input(fmt::format("{}: neither {} nor {}", printable(directory.path()),
                               kAdapterTensors[0], kAdapterTensors[1]));
}

}  // namespace

Result<AdapterFiles> open_adapter(const std::string& path) {
  const std::string found = FERRY_TRY(find_source(path));
  const Directory directory = FERRY_TRY(Directory::open(found));
  const InputFile file = FERRY_TRY(open_in_checkpoint(directory, kAdapterConfig));
  const std::string text = FERRY_TRY(read_text(file, kMaxAdapterConfigBytes));
  AdapterFiles adapter;
  adapter.tensors = FERRY_TRY(open_tensors(directory));
  const auto bytes = std::as_bytes(std::span(text));
  adapter.config_file = {kAdapterConfig, file.size(), {bytes.begin(), bytes.end()}};
  adapter.config_state = FERRY_TRY(state_of(file));
  adapter.config = FERRY_TRY(converters::parse_lora_config(text, printable(file.path())));
  adapter.config.tensors = printable(adapter.tensors->path());
  return adapter;
}

Result<size_t> add_adapter(DerivedSource& source, AdapterFiles& adapter,
                           const std::string& folder) {
  const size_t first = FERRY_TRY(source.add_source(std::move(adapter.tensors), folder));
  if (!folder.empty()) adapter.config_file.name = folder + "." + adapter.config_file.name;
  adapter.config.folder = folder;
  source.add_file(std::move(adapter.config_file), std::move(adapter.config_state));
  return first;
}

Status merge_adapter(CheckpointInput& input, const std::string& path) {
  AdapterFiles adapter = FERRY_TRY(open_adapter(path));
  auto source = std::make_unique<DerivedSource>(std::move(input.source));
  const size_t first = FERRY_TRY(add_adapter(*source, adapter));
  std::string note = FERRY_TRY(
      converters::merge_lora(*source, first, adapter.config, input.config, input.tensors));
  input.notes.push_back(std::move(note));
  input.source = std::move(source);
  return {};
}

}  // namespace ferry::checkpoint
