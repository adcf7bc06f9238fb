#include "tests/decoding/vision_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace ferry {

Floats floats_of(const std::string& bytes) {
  Floats values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::string bytes_of(const Floats& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

Floats golden(const std::string& name, const std::string& tensor) {
  return floats_of(TensorFile(vision_golden(name)).bytes_of(tensor));
}

std::vector<int64_t> golden_ids(const std::string& name, const std::string& tensor) {
  const std::string bytes = TensorFile(vision_golden(name)).bytes_of(tensor);
  std::vector<int64_t> ids(bytes.size() / sizeof(int64_t));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

Floats randoms(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  Floats out(count);
  for (float& value : out) value = values(random);
  return out;
}

float furthest(const Floats& a, const Floats& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    // std::max(most, ..) would ignore NaN.
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= most)) most = difference;
  }
  return most;
}

packer::Bundle converted(const TempDir& dir, const std::string& source, const Line& options,
                         ThreadPool& pool, const std::string& name) {
  Line args = {"convert", source, "-o", dir / name, "--dtype", "f32"};
  args.insert(args.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry_once(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return packer::Bundle::open(dir / name, /*check_digests=*/false, pool).value();
}

}  // namespace ferry
