#pragma once

#include "text/chat_template/evaluator.h"

namespace ferry::cli {

// Local time, for chat templates that write the date.
text::chat::TimeText present_time();

}  // namespace ferry::cli
