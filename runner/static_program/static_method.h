// A method of a static program. StaticMethod is the interface that a decoder uses, so that tests
// can give it methods without programs. StaticPorts holds the purpose of each input and output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "packer/manifest.h"
#include "runner/method.h"
#include "runner/static_program/kv_manager.h"

namespace ferry::runner {

// One method, independent of its executor.
class StaticMethod {
 public:
  virtual ~StaticMethod() = default;
  // Inputs have names, fixed dtypes and fixed shapes. The span stays valid while the method lives.
  virtual std::span<const packer::ManifestPort> inputs() const = 0;
  virtual std::span<const packer::ManifestPort> outputs() const = 0;
  // Must be set before run(); the bytes must stay until run() returns. The view keeps its contents.
  virtual TensorView& input(size_t index) = 0;
  // Says that only rows [begin, begin + count) of the output will be read, until the next call.
  virtual void want_rows(size_t output, int64_t begin, int64_t count) = 0;
  // Method::can_be_strided() of an input that is a cache, and Method::set_stored_columns().
  virtual bool can_be_strided(size_t /*index*/) const { return false; }
  virtual void set_stored_columns(int64_t /*columns*/) {}
  virtual Status run() = 0;
  // Valid until the next run() of any method of the same programs.
  virtual const TensorView& output(size_t index) const = 0;
};

struct StaticMethods {
  std::unique_ptr<StaticMethod> kv;
  std::unique_ptr<StaticMethod> prefill;  // nullptr if there is none
  ThreadPool* pool = nullptr;             // copies caches, if there is one; must outlive them
  std::optional<int64_t> window;          // positions of a sliding window
  bool two_way_images = false;            // whether the rows of an image attend to each other
  bool two_way_in_windows = false;        // and only in layers with windows
};

// The roles of the inputs and outputs of one method. A role follows from the name. Sizes and dtypes
// follow from the tensors of that role, never from those of another role.
struct StaticPorts {
  // Indices of inputs and outputs of the method.
  struct Cache {
    CacheTensor tensor;
    size_t input = 0, output = 0;
    std::optional<Encoding> output_encoding = {};
  };
  struct State {
    std::string name;
    size_t input = 0, output = 0;
    uint64_t bytes = 0;
  };

  int64_t ar = 0, cl = 0, vocab = 0;  // tokens in a call, positions of the context, logits of a row
  size_t tokens = 0, logits = 0;
  std::optional<size_t> attention_mask, window_mask, input_pos;
  DType cache_dtype = DType::kF32;
  std::vector<Cache> caches;  // by layer, keys before values
  std::vector<State> states;  // states of recurrent layers

  // kBadInput or kUnsupported name the input or output and its layer. `method` begins error
  // messages. A method has at least one mask and one cache.
  static Result<StaticPorts> read(std::span<const packer::ManifestPort> inputs,
                                  std::span<const packer::ManifestPort> outputs,
                                  const std::string& method);
};

// Returns kBadInput unless both methods can continue each other's caches and states. The codes of
// their caches may represent different numbers.
Status check_same_state(const StaticPorts& kv, const StaticPorts& prefill);
// Returns whether the codes of all caches represent equal numbers in both methods.
bool same_encodings(const StaticPorts& kv, const StaticPorts& prefill);

}  // namespace ferry::runner
