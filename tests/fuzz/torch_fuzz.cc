// Input: a PyTorch zip file. All tensors that it claims to hold are read.

#include "formats/torch/torch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "tests/fuzz/require.h"

namespace ferry::torch_fuzz {
namespace {

void read_all(const TensorSource& source) {
  for (size_t i = 0; i < source.entries().size(); ++i) {
    std::vector<std::byte> bytes(source.entries()[i].bytes);
    const Status status = source.read(i, 0, bytes);
    if (!status) require_good_message(status.error());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = ::memfd_create("f", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  require(::ftruncate(file, 0) == 0);
  require(::pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  const auto source =
      formats::open_torch(formats::one_file(InputFile::open(path).value(), "f"), "f");
  if (!source) {
    require_good_message(source.error());
  } else {
    read_all(**source);
  }
  return 0;
}

}  // namespace ferry::torch_fuzz
