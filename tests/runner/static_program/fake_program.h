// A small language model as the methods of a static program, and the same model in plain: all of a
// sequence at once, every token seeing those before it within the window.
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

// What a program is made of. Keys and values are multiples of 1/8 from -15.875 to 15.875, which
// every dtype of a cache holds exactly in the encodings below.
struct FakeOptions {
  int64_t kv_length = 1, prefill_length = 4, context = 24, vocab = 13;
  std::optional<int64_t> window = {};  // of the sliding layers; none: there is no window mask
  DType kv = DType::kF32, mask = DType::kF32, logits = DType::kF32;
  bool has_prefill = true;
  bool recurrent = false;
  // Of the caches of prefill_forward, where they are not those of kv_forward, and of its new
  // columns, where they are not those of its caches.
  std::optional<Encoding> prefill_cache = {}, prefill_output = {};
  std::vector<FakeLayer> layers = {{0, 2, 4, false}, {2, 1, 6, true}};
  uint64_t seed = 1;
  // Of the caches of kv_forward, where they are not exact.
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

  // Every call of them is listed in calls(): "kv_forward" or "prefill_forward". The program must
  // outlive them.
  StaticMethods methods();
  std::vector<std::string>& calls() { return calls_; }
  // The next run fails.
  void fail_once() { failing_ = true; }

  // [T, V], in f32.
  std::vector<std::vector<float>> all_at_once(const std::vector<int64_t>& tokens) const;

  const FakeOptions& options() const { return options_; }

 private:
  friend class FakeMethod;
  FakeOptions options_;
  std::unique_ptr<FakeWeights> weights_;
  std::vector<std::string> calls_;
  bool failing_ = false;
};

// The ports of a method with calls of `ar` tokens.
struct FakePorts {
  std::vector<packer::ManifestPort> inputs, outputs;
};
FakePorts fake_ports(const FakeOptions& options, int64_t ar);

}  // namespace ferry::runner
