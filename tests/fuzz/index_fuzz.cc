// Input: the text of model.safetensors.index.json, or of Keras's model.weights.json. Its entries
// are compared with two files of two tensors.

#include "formats/safetensors/index.h"

#include <cstdint>

#include "dialects/keras/keras_index.h"
#include "tests/fuzz/require.h"

namespace ferry::index_fuzz {
namespace {

class TwoFiles final : public TensorSource {
 public:
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t, uint64_t, std::span<std::byte>) const override {
    return fail(ErrorCode::kInternal, "nobody reads");
  }

 private:
  std::string path_ = "f";
  std::vector<SourceFile> files_ = {{"1.safetensors"}, {"2.safetensors"}};
  std::vector<TensorEntry> entries_ = {{.name = "a", .dtype = DType::kU8, .shape = {}},
                                       {.name = "b", .dtype = DType::kU8, .shape = {}, .file = 1}};
};

void run(std::string_view text) {
  const auto index = formats::parse_shard_index(text, "f");
  if (!index) return require_good_message(index.error());
  require(!index->empty());
  for (const auto& [tensor, file] : *index) {
    require(file.ends_with(".safetensors") && file.size() <= 255);
    require(file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos);
  }
  const Status same = formats::check_against_index(*index, TwoFiles(), "f");
  const formats::ShardIndex both = {{"a", "1.safetensors"}, {"b", "2.safetensors"}};
  require(same.has_value() == (*index == both));
  if (!same) require_good_message(same.error());
}

void run_keras(std::string_view text) {
  const auto index = formats::parse_keras_index(text, "f");
  if (!index) return require_good_message(index.error());
  const std::vector<std::string> present = {"model_00000.weights.h5", "model_00001.weights.h5"};
  const auto shards = formats::keras_shards(*index, "model", present, "f");
  if (!shards) return require_good_message(shards.error());
  require(*shards == present);
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  run(text);
  run_keras(text);
  return 0;
}

}  // namespace ferry::index_fuzz
