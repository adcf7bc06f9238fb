// Input: the text of model.safetensors.index.json.

#include "formats/safetensors/index.h"

#include <cstdint>

#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  const auto index = parse_shard_index({reinterpret_cast<const char*>(data), size}, "f");
  if (!index) {
    require_good_message(index.error());
    return 0;
  }
  require(!index->empty());
  for (const auto& [tensor, file] : *index) {
    require(file.ends_with(".safetensors") && file.size() <= 255);
    require(file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos);
  }
  return 0;
}
