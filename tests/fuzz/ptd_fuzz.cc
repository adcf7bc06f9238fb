// Input: any bytes as a .ptd file. It is refused, or its tensors lie inside of the file.
#include "formats/ptd/ptd.h"
#include "tests/fuzz/require.h"

namespace ferry::ptd::ptd_fuzz {
namespace {

void check(std::span<const std::byte> file) {
  const auto data = read_data_file(file, "fuzz.ptd");
  if (!data) return require_good_message(data.error());
  std::vector<uint64_t> sizes;
  for (const Segment& segment : data->segments) {
    require(segment.offset <= file.size() && segment.size <= file.size() - segment.offset);
    sizes.push_back(segment.size);
  }
  for (const NamedTensor& tensor : data->tensors) require(tensor.segment < sizes.size());
  const auto layout = plan_data_file(data->tensors, sizes);
  require(layout.has_value());
  std::vector<std::byte> ours = layout->head;
  ours.resize(layout->file_bytes);
  const auto again = read_data_file(ours, "ours.ptd");
  require(again.has_value() && again->tensors.size() == data->tensors.size());
  for (size_t i = 0; i < data->tensors.size(); ++i) {
    require(again->tensors[i].is_tensor == data->tensors[i].is_tensor);
  }
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(std::as_bytes(std::span(data, size)));
  return 0;
}

}  // namespace ferry::ptd::ptd_fuzz
