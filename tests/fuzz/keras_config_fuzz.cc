// Input: the text of a preset's config.json. The lowest bit of its length states whether the
// weights have an output matrix.

#include "dialects/keras/config.h"

#include <string>

#include "converters/config/model_config.h"
#include "tests/fuzz/require.h"

namespace ferry::keras_config_fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  (void)converters::is_keras_config(text);
  const auto made = converters::hugging_face_config_of_keras(text, size % 2 == 1, "f");
  if (!made) {
    require_good_message(made.error());
    return 0;
  }
  require(!converters::is_keras_config(*made));
  // The translated config may describe a model that no family supports, but it must be readable.
  const auto config = converters::parse_model_config(*made, "", "f");
  if (!config) require_good_message(config.error());
  return 0;
}

}  // namespace ferry::keras_config_fuzz
