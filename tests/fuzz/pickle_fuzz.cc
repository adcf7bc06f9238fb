// Input: data.pkl of a PyTorch file that has two storages, "0" of 16 bytes and "1" of none.

#include "formats/torch/pickle.h"

#include <cstdint>

#include "core/checked.h"
#include "formats/torch/state_dict.h"
#include "tests/fuzz/require.h"

namespace ferry::pickle_fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto pickle = formats::Pickle::parse(std::as_bytes(std::span(data, size)), "f");
  if (!pickle) {
    require_good_message(pickle.error());
    return 0;
  }
  constexpr uint64_t kLimit = 1 << 20;
  const formats::StorageRecords storages = {{"0", {0, 16}}, {"1", {1, 0}}};
  const auto tensors = formats::read_state_dict(*pickle, storages, kLimit, "f");
  if (!tensors) {
    require_good_message(tensors.error());
    return 0;
  }
  uint64_t total = 0;
  for (const formats::TorchTensor& tensor : *tensors) {
    const auto count = checked_numel(tensor.shape);
    require(count && static_cast<uint64_t>(*count * dtype_bytes(tensor.dtype)) == tensor.bytes);
    require(tensor.place.count() == *count);
    const auto end = end_of(tensor.place);
    require(end && *end * dtype_bytes(tensor.dtype) <= (tensor.place.tensor == 0 ? 16 : 0));
    total += tensor.bytes;
  }
  require(total <= kLimit);
  return 0;
}

}  // namespace ferry::pickle_fuzz
