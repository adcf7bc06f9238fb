// error: (conversion from .* requested|no viable conversion)
#include "core/file.h"

ferry::Status f() {
#ifdef MISUSE
  const std::string text = ferry::read_text_file("path", 1);
#else
  const std::string text = FERRY_TRY(ferry::read_text_file("path", 1));
#endif
  return ferry::Status();
}
