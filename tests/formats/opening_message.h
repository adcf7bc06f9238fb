// The message of opening a checkpoint.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"

namespace ferry::formats {

inline std::string opening_message(const std::string& path,
                                   const checkpoint::CheckpointOptions& options = {}) {
  const auto source = checkpoint::open_tensors(path, options);
  return source ? "accepted" : source.error().message;
}

}  // namespace ferry::formats
