// Makes calibration sequences of chats, which may show images to a vision-language model.
#pragma once

#include <cstddef>
#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "plan/mapped_model.h"
#include "proof/sequences.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::proof {

inline constexpr size_t kMostCalibrationTokens = 65536;

// Renders the chat of each line by the checkpoint's template: a list of messages, or an object with
// them. A message may show an image file, {"type": "image", "path": FILE}; a relative FILE is
// beside `file`, which is the name of the lines. A chat that is longer than the context is cut, and
// refused if it has images. Errors name the line. kUnsupported for images of a checkpoint that has
// no image processor. `tokenizer` is that of the checkpoint.
Result<Sequences> sequences_of_chats(const plan::MappedModel& model, text::Tokenizer tokenizer,
                                     const std::string& lines, const std::string& file,
                                     ThreadPool& pool);

}  // namespace ferry::proof
