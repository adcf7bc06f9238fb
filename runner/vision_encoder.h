// VisionEncoder runs the vision encoder of a bundle. Pixels of one image or tile go in, rows for
// the text decoder come out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/program_set.h"

namespace ferry::runner {

class VisionEncoder {
 public:
  struct Sizes {
    int64_t image_size = 0;  // pixels of a side
    int64_t rows = 0;        // rows of features that a tile becomes
    int64_t width = 0;       // width of a row, which is hidden_size of the text decoder
  };

  static bool is_in(const packer::Bundle& bundle);
  // Returns the sizes that the manifest states. kBadInput if inputs or outputs do not follow the
  // protocol.
  static Result<Sizes> sizes_in(const packer::Bundle& bundle);
  // Returns nullptr for a bundle without a vision encoder; errors as for load().
  static Result<std::unique_ptr<VisionEncoder>> load_if_any(const packer::Bundle& bundle,
                                                            ThreadPool& pool,
                                                            const MethodOptions& options);
  // `pool` must outlive the encoder. kBadInput for a program that does not follow the protocol.
  static Result<VisionEncoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                                    const MethodOptions& options);

  int64_t image_size() const { return sizes_.image_size; }
  int64_t rows() const { return sizes_.rows; }
  int64_t width() const { return sizes_.width; }

  // Computes features f32 [n,rows(),width()] of pixel_values f32 [n,3,image_size,image_size] of n
  // tiles. The caller owns the result. kUsage for another number of values.
  Result<std::vector<float>> encode(std::span<const float> pixels);

  // The sink is called for every probe of every tile: name, shape, and f32 values [rows, width].
  using ProbeSink = std::function<void(const std::string& name, const Shape& shape,
                                       std::span<const float> values)>;
  Status set_probe_sink(ProbeSink sink);

 private:
  VisionEncoder(ProgramSet set, MethodChain chain)
      : set_(std::move(set)), chain_(std::move(chain)), sink_(std::make_unique<ProbeSink>()) {}

  ProgramSet set_;
  MethodChain chain_;
  std::unique_ptr<ProbeSink> sink_;  // on the heap, because methods point to it
  bool observing_ = false;
  Sizes sizes_;
};

}  // namespace ferry::runner
