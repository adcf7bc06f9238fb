// RowEncoders holds the encoders of a bundle whose outputs take the place of embeddings: that of
// images, that of sounds.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/program_interface.h"
#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/vision_encoder.h"

namespace ferry::runner {

class RowEncoders {
 public:
  // Loads those that the bundle has, which may be none. Errors are those of VisionEncoder::load().
  static Result<RowEncoders> load(const packer::Bundle& bundle, ThreadPool& pool,
                                  const MethodOptions& options);

  bool empty() const { return encoders_.empty(); }
  // Returns nullptr if there is none of this role.
  VisionEncoder* find(const RowEncoder& rows) const;

 private:
  std::vector<std::pair<std::string_view, std::unique_ptr<VisionEncoder>>> encoders_;  // by role
};

}  // namespace ferry::runner
