// StaticPorts: what the ports of one method of a static program are for. Roles come from names,
// sizes and dtypes from the ports of that role; a tensor of another role never matters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "packer/manifest.h"
#include "runner/static_program/kv_manager.h"

namespace ferry::runner {

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
  std::vector<State> states;  // of recurrent layers

  // kBadInput or kUnsupported name the port and its layer. `method` begins the messages. There is
  // one mask and one cache at least.
  static Result<StaticPorts> read(std::span<const packer::ManifestPort> inputs,
                                  std::span<const packer::ManifestPort> outputs,
                                  const std::string& method);
};

// kBadInput unless both methods can continue each other's caches and states. The codes of their
// caches may stand for different numbers.
Status check_same_state(const StaticPorts& kv, const StaticPorts& prefill);
// Whether the codes of all caches stand for the same numbers in both.
bool same_encodings(const StaticPorts& kv, const StaticPorts& prefill);

}  // namespace ferry::runner
