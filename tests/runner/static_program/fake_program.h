// A small language model as the methods of a static program. all_at_once() computes it in plain
// code for a whole sequence, in which every token sees those before it within the window.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/encoding.h"
#include "runner/static_program/static_method.h"

namespace ferry::runner {

struct FakeLayer {
  int64_t number, heads, head_dim;
  bool sliding;
};

// Options of the program. Keys and values are multiples of 1/8 from -15.875 to 15.875, which every
// dtype of a cache holds exactly in the encodings below.
struct FakeOptions {
  int64_t kv_length = 1, prefill_length = 4, context = 24, vocab = 13;
  // The window of the sliding layers. Without a window there is no window mask.
  std::optional<int64_t> window = {};
  DType kv = DType::kF32, mask = DType::kF32, logits = DType::kF32;
  bool has_prefill = true;
  bool recurrent = false;
  // Encoding of the caches of prefill_forward where it differs from that of kv_forward, and
  // encoding of its new columns where it differs from that of its caches.
  std::optional<Encoding> prefill_cache = {}, prefill_output = {};
  std::vector<FakeLayer> layers = {{0, 2, 4, false}, {2, 1, 6, true}};
  uint64_t seed = 1;
  // Encoding of the caches of kv_forward where it is not exact.
  std::optional<Encoding> kv_cache = {};

  std::optional<Encoding> kv_encoding() const;
  std::optional<Encoding> mask_encoding() const;
  std::optional<Encoding> logits_encoding() const;
};

struct FakeWeights;

class FakeProgram {
 public:
  explicit FakeProgram(const FakeOptions& options);
  ~FakeProgram();

  // Returns the methods. Each call of a method is listed in calls() as "kv_forward" or
  // "prefill_forward". The program must outlive the methods.
  StaticMethods methods();
  std::vector<std::string>& calls() { return calls_; }
  // Makes the next run fail.
  void fail_once() { failing_ = true; }

  // Returns logits [T, V], in f32.
  std::vector<std::vector<float>> all_at_once(const std::vector<int64_t>& tokens) const;

  const FakeOptions& options() const { return options_; }

 private:
  friend class FakeMethod;
  FakeOptions options_;
  std::unique_ptr<FakeWeights> weights_;
  std::vector<std::string> calls_;
  bool failing_ = false;
};

// The inputs and outputs of a method with calls of `ar` tokens.
struct FakePorts {
  std::vector<packer::ManifestPort> inputs, outputs;
};
FakePorts fake_ports(const FakeOptions& options, int64_t ar);

}  // namespace ferry::runner
