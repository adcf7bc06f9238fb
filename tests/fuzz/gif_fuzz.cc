// Input: an image file, which is refused with a good message or decoded to the size that it states.
#include <cstddef>
#include <cstdint>

#include "media/codecs.h"
#include "tests/fuzz/image_fuzz.h"

namespace ferry::gif_fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::media;
  const Bytes file(reinterpret_cast<const std::byte*>(data), size);
  ferry::require_good_image(decode_gif(file, "f"));
  return 0;
}

}  // namespace ferry::gif_fuzz
