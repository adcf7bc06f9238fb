#include "runner/static_program/kv_manager.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "runner/sampler.h"

namespace ferry::runner::kv_manager_test {
namespace {

constexpr int64_t kCl = 13;

// The expected cache as codes or bit patterns, one for each element of [heads, positions,
// head_dim].
struct Expected {
  CacheTensor tensor;
  std::vector<uint32_t> elements;  // [position][head][d]
};

uint32_t element(std::span<const std::byte> bytes, int64_t at, size_t size) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(at) * size, size);
  return value;
}

std::vector<CacheTensor> tensors_of(const std::optional<Encoding>& encoding) {
  return {{0, true, 2, 3, encoding},
          {3, true, 1, 4, encoding},
          {0, false, 2, 3, encoding},
          {3, false, 1, 4, encoding}};
}

Result<KvManager> make_manager(DType dtype, std::vector<CacheTensor> tensors, int64_t cl,
                               std::span<const int64_t> ar_lengths) {
  MemoryBudget budget(uint64_t{1} << 20);
  return KvManager::make(dtype, std::move(tensors), cl, ar_lengths, budget);
}

// A KvManager beside a plain list of the values that it must hold.
class Pair {
 public:
  Pair(DType dtype, std::optional<Encoding> encoding, std::array<int64_t, 2> ar, int64_t cl = kCl)
      : cl_(cl),
        dtype_(dtype),
        size_(static_cast<size_t>(dtype_bytes(dtype))),
        zero_(encoding ? static_cast<uint32_t>(encoding->zero_point) : 0),
        encoding_(encoding),
        manager(make_manager(dtype, tensors_of(encoding), cl, ar).value()) {
    for (const CacheTensor& tensor : tensors_of(encoding)) expected_.push_back({tensor, {}});
  }

  // Updates both with random columns, of which `chosen` are kept.
  Status call(Random& random, const std::vector<int64_t>& chosen, std::span<const bool> selected) {
    const int64_t ar = manager.call_length();
    std::vector<std::vector<std::byte>> bytes;
    std::vector<NewColumns> columns;
    for (Expected& expected : expected_) {
      const auto [layer, is_key, heads, dim, encoding] = expected.tensor;
      std::vector<uint32_t> values(static_cast<size_t>(heads * dim * ar));
      for (uint32_t& v : values) {
        v = static_cast<uint32_t>(random.next()) & (size_ == 1   ? 0xffu
                                                    : size_ == 2 ? 0xffffu
                                                                 : ~0u);
      }
      auto& raw = bytes.emplace_back(values.size() * size_);
      for (size_t i = 0; i < values.size(); ++i) std::memcpy(&raw[i * size_], &values[i], size_);
      if (std::ssize(chosen) > room()) continue;
      for (int64_t i : chosen) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t d = 0; d < dim; ++d) {
            const int64_t at = is_key ? (h * dim + d) * ar + i : (h * ar + i) * dim + d;
            expected.elements.push_back(values[static_cast<size_t>(at)]);
          }
        }
      }
    }
    for (const auto& raw : bytes) columns.push_back({raw, encoding_});
    return manager.update(columns, std::ssize(chosen), selected);
  }

  // Returns the number that the element `bits` stands for.
  float number(uint32_t bits) const {
    if (encoding_) return static_cast<float>(encoding_->real(bits));
    float value = 0;
    to_f32(dtype_, reinterpret_cast<const std::byte*>(&bits), &value, 1);
    return value;
  }

  void expect_numbers(size_t i) const {
    const std::vector<uint32_t>& elements = expected_[i].elements;
    const std::vector<float> floats = manager.floats(i);
    ASSERT_EQ(floats.size(), elements.size());
    for (size_t at = 0; at < floats.size(); ++at) {
      const float want = number(elements[at]);
      ASSERT_TRUE(floats[at] == want || (std::isnan(want) && std::isnan(floats[at]))) << at;
    }
  }

  void expect_equal() const {
    const int64_t distance = manager.stored_columns();
    const int64_t columns = std::min(distance, cl_ - manager.call_length());
    for (size_t i = 0; i < expected_.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_numbers(i));
      const auto [layer, is_key, heads, dim, encoding] = expected_[i].tensor;
      const auto view = manager.view(i, manager.call_length());
      ASSERT_EQ(view.size(),
                static_cast<size_t>(heads * dim * (cl_ - manager.call_length())) * size_);
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t d = 0; d < dim; ++d) {
          for (int64_t t = 0; t < columns; ++t) {
            const int64_t at = is_key ? (h * dim + d) * distance + t : (h * distance + t) * dim + d;
            const uint32_t want =
                t < manager.length()
                    ? expected_[i].elements[static_cast<size_t>((t * heads + h) * dim + d)]
                    : zero_;
            ASSERT_EQ(element(view, at, size_), want)
                << "tensor " << i << " head " << h << " d " << d << " column " << t;
          }
        }
      }
    }
  }

  int64_t room() const { return cl_ - manager.call_length() - manager.length(); }
  void forget() {
    for (Expected& e : expected_) e.elements.clear();
  }

 private:
  int64_t cl_;
  DType dtype_;
  size_t size_;
  uint32_t zero_;
  std::optional<Encoding> encoding_;
  std::vector<Expected> expected_;

 public:
  KvManager manager;
};

std::vector<int64_t> first(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(i);
  return all;
}

struct Kind {
  DType dtype;
  std::optional<Encoding> encoding;
};

const Kind kKinds[] = {{DType::kF32, {}},
                       {DType::kF16, {}},
                       {DType::kBF16, {}},
                       {DType::kU8, Encoding{0.1, 128}},
                       {DType::kU16, Encoding{0.001, 31000}}};

TEST(KvManager, HoldsWhatItWasGivenThroughAnySequenceOfCallsAndRearrangements) {
  for (const Kind& kind : kKinds) {
    for (const auto& ar : {std::array<int64_t, 2>{5, 1}, {1, 4}, {8, 3}, {2, 2}}) {
      for (uint64_t seed = 0; seed < 20; ++seed) {
        Random random(seed);
        Pair pair(kind.dtype, kind.encoding, ar);
        for (int step = 0; step < 30; ++step) {
          if (random.next() % 3 == 0) {
            const int64_t to = ar[random.next() % 2];
            const bool fits = pair.manager.length() <= kCl - to;
            EXPECT_EQ(pair.manager.rearrange(to).has_value(), fits);
          }
          if (random.next() % 12 == 0) {
            pair.manager.clear();
            pair.forget();
          }
          const int64_t most = std::min(pair.manager.call_length(), pair.room());
          const auto n = static_cast<int64_t>(random.next() % static_cast<uint64_t>(most + 1));
          ASSERT_TRUE(pair.call(random, first(n), {}));
          ASSERT_NO_FATAL_FAILURE(pair.expect_equal());
        }
      }
    }
  }
}

TEST(KvManager, PackedCachesGrowAndAreArrangedAgain) {
  constexpr int64_t kContext = 1100;
  for (const Kind& kind : kKinds) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Random random(seed);
      Pair pair(kind.dtype, kind.encoding, {130, 1}, kContext);
      ASSERT_TRUE(pair.manager.pack(130));
      EXPECT_EQ(pair.manager.stored_columns(), 256);
      int64_t stored = 0;
      while (pair.room() > 0) {
        const int64_t most = std::min(pair.manager.call_length(), pair.room());
        const auto n = 1 + static_cast<int64_t>(random.next() % static_cast<uint64_t>(most));
        ASSERT_TRUE(pair.call(random, first(n), {}));
        const int64_t to = random.next() % 2 == 0 ? 130 : 1;
        const bool fits = pair.manager.length() <= kContext - to;
        const bool packs = random.next() % 8 != 0;
        EXPECT_EQ((packs ? pair.manager.pack(to) : pair.manager.rearrange(to)).has_value(), fits);
        if (!fits) break;
        if (packs) {
          EXPECT_GE(pair.manager.stored_columns(), pair.manager.length());
          stored = std::max(stored, pair.manager.stored_columns());
        }
        ASSERT_NO_FATAL_FAILURE(pair.expect_equal());
      }
      EXPECT_GE(stored, 512);
      pair.manager.clear();
      pair.forget();
      ASSERT_TRUE(pair.manager.pack(1));
      EXPECT_EQ(pair.manager.stored_columns(), 256);
      ASSERT_NO_FATAL_FAILURE(pair.expect_equal());
    }
  }
}

TEST(KvManager, RearrangementBothWaysKeepsEveryHead) {
  for (const Kind& kind : kKinds) {
    for (const int64_t n : {0, 1, 4, 5}) {
      Random random(3);
      Pair pair(kind.dtype, kind.encoding, {8, 1});
      ASSERT_TRUE(pair.call(random, first(n), {}));
      for (const int64_t ar : {1, 8, 1, 8}) {
        ASSERT_TRUE(pair.manager.rearrange(ar));
        ASSERT_NO_FATAL_FAILURE(pair.expect_equal());
      }
    }
  }
}

TEST(KvManager, SelectedColumnsAreWrittenDenselyForEveryHead) {
  for (const Kind& kind : kKinds) {
    Random random(5);
    Pair pair(kind.dtype, kind.encoding, {8, 1});
    const bool selected[] = {true, false, false, true, true, false, true, false};
    // Only the first three columns of four are selected.
    ASSERT_TRUE(pair.call(random, {0, 3, 4}, selected));
    ASSERT_NO_FATAL_FAILURE(pair.expect_equal());
    const bool two[] = {false, true};  // shorter than the call
    ASSERT_TRUE(pair.call(random, {1}, two));
    ASSERT_NO_FATAL_FAILURE(pair.expect_equal());
  }
}

TEST(KvManager, WhatDoesNotFitIsRefusedAndChangesNothing) {
  Random random(5);
  Pair pair(DType::kF32, {}, {4, 1});
  ASSERT_TRUE(pair.call(random, first(4), {}));
  ASSERT_TRUE(pair.call(random, first(4), {}));
  const auto refused = pair.call(random, first(2), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_EQ(refused.error().message,
            "2 new columns do not fit: a call has 4 tokens, and 8 of 9 columns are cached");
  pair.expect_equal();
  const bool one[] = {true, false, false, false};
  EXPECT_FALSE(pair.manager.update({}, 2, one));
  ASSERT_TRUE(pair.call(random, first(1), {}));
  ASSERT_TRUE(pair.manager.rearrange(1));
  ASSERT_TRUE(pair.call(random, first(1), {}));
  const Status back = pair.manager.rearrange(4);
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().message, "10 cached positions exceed the 9 of calls of 4 tokens");
  pair.expect_equal();
}

// Bytes that update() does not write keep a mark that no new column has.
TEST(KvManager, UpdatesWriteOnlyTheNewColumns) {
  constexpr int64_t kAr = 2, kHeads = 2, kDim = 3, kColumns = kCl - kAr;
  const int64_t lengths[] = {kAr};
  KvManager manager = *make_manager(
      DType::kU8, {{0, true, kHeads, kDim, {}}, {0, false, kHeads, kDim, {}}}, kCl, lengths);
  const std::vector<std::byte> added(static_cast<size_t>(kHeads * kDim * kAr), std::byte{1});
  const NewColumns columns[] = {{added, {}}, {added, {}}};
  ASSERT_TRUE(manager.update(columns, 2));
  for (size_t i = 0; i < 2; ++i) {
    const std::span<const std::byte> bytes = manager.view(i, kAr);
    std::memset(const_cast<std::byte*>(bytes.data()), 7, bytes.size());
  }
  ASSERT_TRUE(manager.update(columns, 1));
  for (int64_t at = 0; at < kHeads * kDim * kColumns; ++at) {
    const bool new_key = at % kColumns == 2, new_value = at / kDim % kColumns == 2;
    const auto i = static_cast<size_t>(at);
    EXPECT_EQ(manager.view(0, kAr)[i], new_key ? std::byte{1} : std::byte{7});
    EXPECT_EQ(manager.view(1, kAr)[i], new_value ? std::byte{1} : std::byte{7});
  }
}

TEST(KvManager, HasOneMemoryForBothMethods) {
  const int64_t ar[] = {8, 2};
  const auto manager = make_manager(DType::kU16, {{0, true, 2, 64, Encoding{1, 0}}}, 100, ar);
  EXPECT_EQ(manager->bytes(), 2u * 64 * 98 * 2);
  EXPECT_EQ(manager->view(0, 8).data(), manager->view(0, 2).data());
  EXPECT_EQ(manager->view(0, 8).size(), 2u * 64 * 92 * 2);
}

TEST(KvManager, RefusesOtherDtypesAndSizesThatCannotBe) {
  const int64_t ar[] = {1};
  for (const DType dtype : {DType::kI32, DType::kI8, DType::kF64, DType::kI64}) {
    const auto manager = make_manager(dtype, {{0, true, 1, 1}}, 8, ar);
    ASSERT_FALSE(manager);
    EXPECT_EQ(manager.error().code, ErrorCode::kUnsupported);
  }
  const auto huge = make_manager(DType::kF32, {{0, true, 1 << 30, 1 << 30}}, 1 << 30, ar);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().message, "the KV caches are too large");
  const auto large = make_manager(DType::kF32, {{0, true, 1024, 256}}, 8, ar);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kIo);
}

// -- encodings that differ from those of the cache

std::vector<uint32_t> reencoded(DType dtype, const Encoding& from, const Encoding& to,
                                const std::vector<uint32_t>& codes) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  const auto n = std::ssize(codes);
  const int64_t ar[] = {n};
  KvManager manager = make_manager(dtype, {{0, false, 1, 1, to}}, n * 2, ar).value();
  std::vector<std::byte> bytes(codes.size() * size);
  for (size_t i = 0; i < codes.size(); ++i) std::memcpy(&bytes[i * size], &codes[i], size);
  const NewColumns columns[] = {{bytes, from}};
  EXPECT_TRUE(manager.update(columns, n));
  std::vector<uint32_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(element(manager.view(0, n), i, size));
  return out;
}

TEST(KvManager, EncodesNewColumnsAsTheCacheIs) {
  // (code - 10) * 2 is encoded as (code - 4) * 4. Exact halves go to the even step, and the ends
  // are clamped.
  EXPECT_EQ(reencoded(DType::kU8, {2, 10}, {4, 4}, {10, 11, 12, 13, 14, 9, 7, 0, 255}),
            (std::vector<uint32_t>{4, 4, 5, 6, 6, 4, 2, 0, 126}));
  EXPECT_EQ(reencoded(DType::kU8, {4, 0}, {1, 0}, {0, 63, 64, 255}),
            (std::vector<uint32_t>{0, 252, 255, 255}));
  EXPECT_EQ(reencoded(DType::kU16, {1, 65535}, {1, 3}, {65535, 65533, 65532, 0}),
            (std::vector<uint32_t>{3, 1, 0, 0}));
}

TEST(KvManager, EncodingAnewIsDecodingAndEncoding) {
  Random random(9);
  for (const DType dtype : {DType::kU8, DType::kU16}) {
    for (int trial = 0; trial < 20; ++trial) {
      const auto any = [&] {
        return Encoding{0.01 + random.uniform(),
                        static_cast<int64_t>(random.next() % (largest_code(dtype) + 1))};
      };
      const Encoding from = any(), to = any();
      std::vector<uint32_t> codes, want;
      for (int i = 0; i < 64; ++i) {
        codes.push_back(static_cast<uint32_t>(random.next() % (largest_code(dtype) + 1)));
        want.push_back(static_cast<uint32_t>(to.code(from.real(codes.back()), dtype)));
      }
      EXPECT_EQ(reencoded(dtype, from, to, codes), want);
      EXPECT_EQ(reencoded(dtype, to, to, codes), codes);
    }
  }
}

// Computes the result in plain code: decoded, divided, rounded to the nearest step with halves to
// even, clamped.
uint32_t encoded_anew(uint32_t code, const Encoding& from, const Encoding& to, DType dtype) {
  const double real =
      (static_cast<double>(code) - static_cast<double>(from.zero_point)) * from.scale;
  const double exact = real / to.scale, below = std::floor(exact), rest = exact - below;
  const bool odd = std::fmod(below, 2) != 0;
  const bool up = rest > 0.5 || (rest == 0.5 && odd);
  const double anew = below + (up ? 1 : 0) + static_cast<double>(to.zero_point);
  const double most = dtype == DType::kU8 ? 255 : 65535;
  return static_cast<uint32_t>(anew < 0 ? 0 : anew > most ? most : anew);
}

TEST(KvManager, EncodesEveryCodeAnewAsAPlainLoopDoes) {
  std::vector<uint32_t> all8, some16;
  for (uint32_t code = 0; code < 256; ++code) all8.push_back(code);
  for (uint32_t code = 0; code < 65536; code += 37) some16.push_back(code);
  some16.push_back(65535);
  const Encoding encodings8[] = {{1, 0}, {1, 255}, {0.5, 128}, {2, 10}, {0.013, 77}, {3e-5, 3}};
  for (const Encoding& from : encodings8) {
    for (const Encoding& to : encodings8) {
      std::vector<uint32_t> want;
      for (const uint32_t c : all8) want.push_back(encoded_anew(c, from, to, DType::kU8));
      EXPECT_EQ(reencoded(DType::kU8, from, to, all8), want);
      EXPECT_TRUE(from != to || want == all8);
    }
  }
  const Encoding encodings16[] = {{1, 0}, {1, 65535}, {0.5, 32768}, {2, 10}, {0.00013, 31000}};
  for (const Encoding& from : encodings16) {
    for (const Encoding& to : encodings16) {
      std::vector<uint32_t> want;
      for (const uint32_t c : some16) want.push_back(encoded_anew(c, from, to, DType::kU16));
      EXPECT_EQ(reencoded(DType::kU16, from, to, some16), want);
      EXPECT_TRUE(from != to || want == some16);
    }
  }
}

// A call of another length gives columns, and only those that are kept are written.
TEST(KvManager, TakesColumnsOfCallsOfAnyLength) {
  constexpr int64_t kHeads = 2, kDim = 3, kCall = 5, kColumns = 8;
  const Encoding from{0.3, 100}, to{1, 7};
  const int64_t ar[] = {2};
  KvManager manager = *make_manager(
      DType::kU8, {{0, true, kHeads, kDim, to}, {0, false, kHeads, kDim, to}}, kColumns + 2, ar);
  std::vector<std::byte> codes;
  for (int64_t i = 0; i < kHeads * kDim * kCall; ++i)
    codes.push_back(static_cast<std::byte>(i * 8));
  const NewColumns columns[] = {{codes, from}, {codes, from}};
  const bool selected[] = {false, true, false, true, true};
  ASSERT_TRUE(manager.update(columns, 2, selected, kCall));
  EXPECT_EQ(manager.length(), 2);
  EXPECT_EQ(manager.room(), 6);
  for (int64_t row = 0; row < kHeads * kDim; ++row) {
    for (int64_t c = 0; c < kColumns; ++c) {
      const int64_t token = c == 0 ? 1 : 3, h = row / kDim, d = row % kDim;
      const auto want = [&](int64_t at) {
        return c < 2 ? encoded_anew(static_cast<uint32_t>(at * 8), from, to, DType::kU8) : 7;
      };
      EXPECT_EQ(element(manager.view(0, 2), row * kColumns + c, 1), want(row * kCall + token));
      EXPECT_EQ(element(manager.view(1, 2), (h * kColumns + c) * kDim + d, 1),
                want((h * kCall + token) * kDim + d));
    }
  }
  EXPECT_FALSE(manager.update(columns, 6, {}, kCall));  // more columns than the call has
}

// Later calls and a change of the method do not change columns that were encoded.
TEST(KvManager, EncodesAColumnOnce) {
  const Encoding from{0.3, 100}, to{1, 7};
  const int64_t ar[] = {2, 1};
  KvManager manager = make_manager(DType::kU8, {{0, true, 1, 1, to}}, 8, ar).value();
  const std::byte codes[] = {std::byte{200}, std::byte{120}};
  const NewColumns prefill[] = {{codes, from}}, decode[] = {{std::span(codes).first(1), to}};
  ASSERT_TRUE(manager.update(prefill, 2));
  ASSERT_TRUE(manager.rearrange(1));
  ASSERT_TRUE(manager.update(decode, 1));
  ASSERT_TRUE(manager.rearrange(2));
  ASSERT_TRUE(manager.update(prefill, 1));
  const uint32_t want[] = {37, 13, 200, 37, 7, 7};
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(element(manager.view(0, 2), i, 1), want[i]) << i;
}

TEST(Encoding, RoundsHalvesToEvenBeforeTheZeroPoint) {
  const Encoding odd{1, 3};
  EXPECT_EQ(odd.code(0.5, DType::kU8), 3);
  EXPECT_EQ(odd.code(1.5, DType::kU8), 5);
  EXPECT_EQ(odd.code(-0.5, DType::kU8), 3);
  EXPECT_EQ(odd.code(1e300, DType::kU8), 255);
  EXPECT_EQ(odd.code(-1e300, DType::kU16), 0);
  EXPECT_EQ(odd.code(std::numeric_limits<double>::infinity(), DType::kU16), 65535);
  EXPECT_EQ(odd.code(std::numeric_limits<double>::quiet_NaN(), DType::kU8), 3);
  EXPECT_EQ(odd.real(odd.code(0, DType::kU8)), 0.0);
}

}  // namespace
}  // namespace ferry::runner::kv_manager_test
