// Input: data.pkl of a PyTorch file that has two storages, "0" of 16 bytes and "1" of none.

#include "formats/torch/pickle.h"

#include <cstdint>

#include "core/checked.h"
#include "formats/torch/state_dict.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
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
    require(tensor.shape.size() == tensor.strides.size());
    const auto count = checked_numel(tensor.shape);
    require(count && static_cast<uint64_t>(*count * dtype_bytes(tensor.dtype)) == tensor.bytes);
    uint64_t last = tensor.first;  // first byte of the last element
    for (size_t i = 0; i < tensor.shape.size() && tensor.bytes > 0; ++i) {
      const auto steps = static_cast<uint64_t>(tensor.shape[i] - 1);
      last += steps * static_cast<uint64_t>(tensor.strides[i]) *
              static_cast<uint64_t>(dtype_bytes(tensor.dtype));
    }
    if (tensor.bytes > 0) require(last + dtype_bytes(tensor.dtype) <= 16);
    formats::is_contiguous(tensor);
    total += tensor.bytes;
  }
  require(total <= kLimit);
  return 0;
}
