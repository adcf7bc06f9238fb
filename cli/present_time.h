#pragma once

#include "runner/chat_template/evaluator.h"

namespace ferry::cli {

// Local time, for chat templates that write the date.
chat::TimeText present_time();

}  // namespace ferry::cli
