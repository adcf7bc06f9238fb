// StaticMethod: one method of a static program, whatever executes it. A decoder stands on this
// interface, so that tests can give it methods without programs.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "core/result.h"
#include "packer/manifest.h"
#include "runner/method.h"

namespace ferry::runner {

class StaticMethod {
 public:
  virtual ~StaticMethod() = default;
  // Named, with fixed dtypes and shapes; they stay where they are.
  virtual std::span<const packer::ManifestPort> inputs() const = 0;
  virtual std::span<const packer::ManifestPort> outputs() const = 0;
  // To be set before run(); the bytes must stay until it returns. Keeps its contents.
  virtual TensorView& input(size_t index) = 0;
  // Only rows [begin, begin + count) of the output will be read, until this is called again.
  virtual void want_rows(size_t output, int64_t begin, int64_t count) = 0;
  virtual Status run() = 0;
  // Valid until the next run() of any method of the same programs.
  virtual const TensorView& output(size_t index) const = 0;
};

struct StaticMethods {
  std::unique_ptr<StaticMethod> kv;
  std::unique_ptr<StaticMethod> prefill;  // nullptr if there is none
  std::optional<int64_t> window;          // positions of a sliding window
};

}  // namespace ferry::runner
