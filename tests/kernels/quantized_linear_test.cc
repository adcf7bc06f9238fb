#include "kernels/quantized_linear.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/kernels/compute_testing.h"
#include "tests/kernels/quantized_testing.h"

namespace ferry::kernels::quantized_linear_test {
namespace {

// Compares values; NaN equals NaN.
void expect_same(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    ASSERT_EQ(actual[i], expected[i]) << i;
  }
}

template <class Body>
void on_every_set(const Body& body) {
  for (const InstructionSet* set : instruction_sets()) {
    SCOPED_TRACE(set->name);
    body(*set);
  }
}

std::vector<float> activations(int64_t m, int64_t columns) {
  auto x = random_values(static_cast<size_t>(m * columns), 3, 2.0f);
  for (int64_t i = 0; i < m; ++i) {
    float* row = x.data() + i * columns;
    if (i % 5 == 1) std::fill_n(row, columns, 0.0f);
    if (i % 5 == 2) std::for_each(row, row + columns, [](float& v) { v = std::abs(v) * 1e30f; });
    if (i % 5 == 3) std::for_each(row, row + columns, [](float& v) { v = -std::abs(v) * 1e-30f; });
  }
  return x;
}

void expect_plain(const Shape& shape, int64_t m) {
  SCOPED_TRACE(std::to_string(shape.bits) + " bits, " + std::to_string(shape.rows) + " x " +
               std::to_string(shape.columns) + ", group " + std::to_string(shape.group) + ", m " +
               std::to_string(m));
  const TestMatrix w(shape);
  const auto x = activations(m, shape.columns);
  const auto bias = random_values(static_cast<size_t>(shape.rows), 9);
  const float* biases = shape.rows % 2 == 0 ? bias.data() : nullptr;
  const auto expected = plain_dynamic_linear(x, m, w, biases);
  ThreadPool pool(2);
  on_every_set([&](const InstructionSet& set) {
    expect_same(run_dynamic_linear(set, x, m, w.coded, biases, pool), expected);
  });
}

TEST(QuantizedLinear, EveryInstructionSetGivesTheBitsOfPlainSums) {
  for (const int64_t m : {1, 2, 3, 6, 8, 13}) {
    for (const int64_t rows : {1, 16, 35}) {
      for (const int64_t columns : {32, 64, 128, 192, 288, 544, 576}) {
        expect_plain({4, rows, columns, 32}, m);
        expect_plain({4, rows, columns, 32, DType::kF32}, m);
        expect_plain({4, rows, columns, 0}, m);
        expect_plain({8, rows, columns, 0, DType::kF32}, m);
      }
      for (const int64_t group : {64, 128, 192}) expect_plain({4, rows, group * 11, group}, m);
    }
  }
}

TEST(QuantizedLinear, GroupsOfAnyLength) {
  for (const int64_t m : {1, 4}) {
    expect_plain({4, 9, 96, 96, DType::kF32}, m);
    expect_plain({4, 9, 288, 96, DType::kF32}, m);
    expect_plain({4, 9, 48, 16}, m);
    expect_plain({4, 9, 42, 7}, m);
    expect_plain({4, 9, 2, 0}, m);
    expect_plain({4, 9, 50, 0}, m);
    expect_plain({8, 9, 1, 0}, m);
    expect_plain({8, 9, 77, 0}, m);
    expect_plain({8, 9, 128, 32, DType::kF32}, m);
  }
}

// A copy of bytes directly before a page that cannot be read.
class BeforeTheEnd {
 public:
  explicit BeforeTheEnd(const std::vector<std::byte>& bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t readable = (bytes.size() + page - 1) / page * page;
    size_ = readable + page;
    map_ = static_cast<std::byte*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(map_ + readable, page, PROT_NONE), 0);
    data_ = std::copy_backward(bytes.begin(), bytes.end(), map_ + readable);
  }
  BeforeTheEnd(const BeforeTheEnd&) = delete;
  BeforeTheEnd& operator=(const BeforeTheEnd&) = delete;
  ~BeforeTheEnd() { munmap(map_, size_); }
  const std::byte* data() const { return data_; }

 private:
  std::byte *map_ = nullptr, *data_ = nullptr;
  size_t size_ = 0;
};

void expect_plain_before_the_end(const Shape& shape, int64_t m) {
  TestMatrix w(shape);
  const auto x = activations(m, shape.columns);
  const auto expected = plain_dynamic_linear(x, m, w, nullptr);
  const BeforeTheEnd codes(w.codes), scales(w.scales);
  w.coded.codes = codes.data();
  w.coded.scales = scales.data();
  ThreadPool pool(1);
  on_every_set([&](const InstructionSet& set) {
    expect_same(run_dynamic_linear(set, x, m, w.coded, nullptr, pool), expected);
  });
}

// Kernels prefetch codes beyond those that they use.
TEST(QuantizedLinear, NothingBehindTheMatrixIsNeeded) {
  for (const int64_t m : {1, 3}) {
    expect_plain_before_the_end({4, 5, 288, 32}, m);
    for (const int64_t columns : {64, 128, 192, 320}) {
      expect_plain_before_the_end({4, 5, columns, 32}, m);
      expect_plain_before_the_end({4, 5, columns, 32, DType::kF32}, m);
    }
    expect_plain_before_the_end({4, 5, 1152, 128}, m);
    expect_plain_before_the_end({4, 5, 416, 0}, m);
    expect_plain_before_the_end({8, 5, 420, 0, DType::kF32}, m);
  }
}

TEST(QuantizedLinear, SumsOfTheLargestCodesDoNotOverflow) {
  const struct {
    int bits;
    int64_t group;
    std::byte codes;
  } kCases[] = {{4, 128, std::byte{0}},
                {4, 128, std::byte{0xff}},
                {4, 32, std::byte{0}},
                {4, 32, std::byte{0xff}},
                {8, 0, std::byte{0x80}}};
  for (const auto& [bits, group, codes] : kCases) {
    for (const int64_t m : {1, 5}) {
      TestMatrix w({bits, 3, 8192, group});
      std::fill(w.codes.begin(), w.codes.end(), codes);
      std::vector<float> x(static_cast<size_t>(m * 8192), -3.0f);
      const auto expected = plain_dynamic_linear(x, m, w, nullptr);
      ThreadPool pool(1);
      on_every_set([&](const InstructionSet& set) {
        expect_same(run_dynamic_linear(set, x, m, w.coded, nullptr, pool), expected);
      });
    }
  }
}

TEST(QuantizedLinear, RowsThatAreNotFiniteGiveNaN) {
  const TestMatrix w({4, 3, 64, 32}), bytes({8, 3, 64, 0, DType::kF32});
  ThreadPool pool(1);
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const int64_t m : {1, 3}) {
      auto x = random_values(static_cast<size_t>(m * 64));
      x[static_cast<size_t>(m * 64) - 5] = bad;
      on_every_set([&](const InstructionSet& set) {
        for (const TestMatrix* matrix : {&w, &bytes}) {
          const auto out = run_dynamic_linear(set, x, m, matrix->coded, nullptr, pool);
          for (size_t i = 0; i < out.size(); ++i) {
            EXPECT_EQ(std::isnan(out[i]), i >= out.size() - 3) << i;
          }
        }
      });
    }
  }
}

TEST(QuantizedLinear, ARangeBeyondF32GivesNaNAndATinyOneZero) {
  const TestMatrix w({4, 3, 64, 32});
  ThreadPool pool(1);
  std::vector<float> x(64, 3e38f);
  x[7] = -3e38f;
  on_every_set([&](const InstructionSet& set) {
    for (const float v : run_dynamic_linear(set, x, 1, w.coded, nullptr, pool)) {
      EXPECT_TRUE(std::isnan(v));
    }
  });
  std::fill(x.begin(), x.end(), 1e-40f);
  on_every_set([&](const InstructionSet& set) {
    for (const float v : run_dynamic_linear(set, x, 1, w.coded, nullptr, pool)) {
      EXPECT_NEAR(v, 0.0f, 1e-3f);
    }
  });
}

TEST(QuantizedLinear, ThreadsAndBatchesDoNotMatter) {
  for (const Shape& shape :
       {Shape{4, 515, 320, 32}, Shape{4, 515, 256, 128}, Shape{8, 515, 320, 0}}) {
    const TestMatrix w(shape);
    const auto x = activations(11, shape.columns);
    on_every_set([&](const InstructionSet& set) {
      ThreadPool one(1);
      const auto expected = run_dynamic_linear(set, x, 11, w.coded, nullptr, one);
      for (const size_t threads : {2, 3, 5}) {
        ThreadPool pool(threads);
        expect_same(run_dynamic_linear(set, x, 11, w.coded, nullptr, pool), expected);
      }
      std::vector<float> alone;
      for (auto row = x.begin(); row != x.end(); row += shape.columns) {
        const std::vector<float> values(row, row + shape.columns);
        const auto out = run_dynamic_linear(set, values, 1, w.coded, nullptr, one);
        alone.insert(alone.end(), out.begin(), out.end());
      }
      expect_same(alone, expected);
    });
  }
}

TEST(QuantizedLinear, ManyTasksOfOneInput) {
  ThreadPool pool(2);
  const TestMatrix a({4, 40, 256, 32}), b({4, 7, 256, 128}), c({8, 33, 256, 0});
  for (const int64_t m : {1, 6}) {
    const auto x = activations(m, 256);
    std::vector<PackedMatrix> packed;
    std::vector<std::vector<float>> outs;
    for (int i = 0; i < 7; ++i) {
      for (const TestMatrix* w : {&a, &b, &c}) {
        packed.push_back(PackedMatrix::pack(w->coded));
        outs.emplace_back(static_cast<size_t>(m * w->coded.rows));
      }
    }
    std::vector<LinearTask> tasks;
    for (size_t i = 0; i < outs.size(); ++i) tasks.push_back({&packed[i], nullptr, outs[i].data()});
    const AlignedBytes scratch(dynamic_linear_scratch(m, 256));
    dynamic_linear(x.data(), m, 256, tasks, scratch.bytes(), pool);
    for (size_t i = 0; i < outs.size(); ++i) {
      const TestMatrix& w = i % 3 == 0 ? a : i % 3 == 1 ? b : c;
      expect_same(outs[i], plain_dynamic_linear(x, m, w, nullptr));
    }
  }
}

// The first product with a matrix computes data that later products use, also for a matrix that
// occurs twice.
TEST(QuantizedLinear, TheFirstProductsOfAMatrixAreAsTheLaterOnes) {
  ThreadPool pool(2);
  for (const Shape& shape : {Shape{4, 40, 256, 32}, Shape{4, 40, 96, 96}, Shape{8, 33, 256, 0}}) {
    const TestMatrix w(shape);
    for (const size_t times : {1, 2}) {
      const PackedMatrix packed = PackedMatrix::pack(w.coded);
      for (const int64_t m : {1, 6, 2, 1}) {
        const auto x = activations(m, shape.columns);
        std::vector<std::vector<float>> outs(
            times, std::vector<float>(static_cast<size_t>(m * shape.rows)));
        std::vector<LinearTask> tasks;
        for (auto& out : outs) tasks.push_back({&packed, nullptr, out.data()});
        const AlignedBytes scratch(dynamic_linear_scratch(m, shape.columns));
        dynamic_linear(x.data(), m, shape.columns, tasks, scratch.bytes(), pool);
        for (const auto& out : outs) expect_same(out, plain_dynamic_linear(x, m, w, nullptr));
      }
    }
  }
}

// The error is relative to the sum of absolute products.
void expect_near_products(const std::vector<float>& out, const std::vector<float>& x, int64_t m,
                          const TestMatrix& w, const float* bias) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t n = 0; n < w.coded.rows; ++n) {
      double sum = bias != nullptr ? bias[n] : 0, size = 1e-30;
      for (int64_t k = 0; k < w.coded.columns; ++k) {
        const double product = double{x[static_cast<size_t>(i * w.coded.columns + k)]} *
                               w.code(n, k) * double{w.scale(n, k / w.group())};
        sum += product, size += std::abs(product);
      }
      ASSERT_NEAR(out[static_cast<size_t>(i * w.coded.rows + n)], sum, size * 1e-5)
          << i << " " << n;
    }
  }
}

void expect_weight_only(const Shape& shape, int64_t m) {
  SCOPED_TRACE(std::to_string(shape.bits) + " bits, " + std::to_string(shape.rows) + " x " +
               std::to_string(shape.columns) + ", group " + std::to_string(shape.group) + ", m " +
               std::to_string(m));
  const TestMatrix w(shape);
  const auto x = random_values(static_cast<size_t>(m * shape.columns), 5);
  const auto bias = random_values(static_cast<size_t>(shape.rows), 6);
  const float* biases = shape.rows % 2 == 0 ? bias.data() : nullptr;
  on_every_target([&] {
    const auto run = [&](const float* rows, int64_t count, ThreadPool& pool) {
      const PackedMatrix packed = PackedMatrix::pack(w.coded);
      std::vector<float> out(static_cast<size_t>(count * shape.rows), -7.0f);
      const LinearTask task{&packed, biases, out.data()};
      weight_only_linear(rows, count, shape.columns, {&task, 1}, pool);
      return out;
    };
    ThreadPool one(1), three(3);
    const auto out = run(x.data(), m, one);
    expect_near_products(out, x, m, w, biases);
    expect_same(run(x.data(), m, three), out);
    const auto alone = run(x.data() + (m - 1) * shape.columns, 1, one);
    expect_same(alone, {out.end() - shape.rows, out.end()});
  });
}

TEST(WeightOnlyLinear, IsTheProductWithTheWeights) {
  for (const int64_t m : {1, 2, 3, 9}) {
    expect_weight_only({4, 35, 256, 32}, m);
    expect_weight_only({4, 6, 96, 0, DType::kF32}, m);
    expect_weight_only({4, 6, 50, 0, DType::kF32}, m);
    expect_weight_only({4, 6, 40, 8}, m);
    expect_weight_only({4, 6, 42, 7}, m);
    expect_weight_only({8, 130, 256, 0, DType::kF32}, m);
    expect_weight_only({8, 35, 320, 32, DType::kF32}, m);
    expect_weight_only({8, 7, 77, 0}, m);
    expect_weight_only({8, 7, 77, 7}, m);
    expect_weight_only({8, 1, 1, 0}, m);
  }
}

TEST(WeightOnlyLinear, NotANumberSpreadsInItsRowOnly) {
  const TestMatrix w({8, 5, 64, 0, DType::kF32});
  ThreadPool pool(1);
  const PackedMatrix packed = PackedMatrix::pack(w.coded);
  auto x = random_values(3 * 64);
  x[70] = kNan;
  std::vector<float> out(15);
  const LinearTask task{&packed, nullptr, out.data()};
  weight_only_linear(x.data(), 3, 64, {&task, 1}, pool);
  for (size_t i = 0; i < 15; ++i) EXPECT_EQ(std::isnan(out[i]), i / 5 == 1) << i;
}

// The expected rows follow XNNPACK's formula for dynamic quantisation of inputs.
struct RowCase {
  std::vector<float> values;
  std::vector<int8_t> codes;
  int32_t zero_point;
  uint32_t inverse_scale;
};

TEST(QuantizeRow, AsXnnpackDoes) {
  const RowCase cases[] = {
      {{0.5f, -1.25f, 2.0f, 0.1f}, {9, -128, 127, -22}, -30, 0x3c50d0d1},
      {{1, 2, 3, 4}, {-64, 0, 63, 127}, -128, 0x3c808081},
      {{-1, -2, -3, -4}, {63, -1, -64, -128}, 127, 0x3c808081},
      {{0, 0, 0}, {127, 127, 127}, 127, 0x3f800000},
  };
  for (const RowCase& c : cases) {
    std::vector<int8_t> codes(c.values.size());
    const QuantizedRow row = quantize_row(c.values, codes);
    EXPECT_EQ(codes, c.codes);
    EXPECT_EQ(row.zero_point, c.zero_point);
    EXPECT_EQ(std::bit_cast<uint32_t>(row.inverse_scale), c.inverse_scale);
  }
}

TEST(QuantizeRow, EveryInstructionSetGivesTheSameCodes) {
  for (const int64_t columns : {1, 7, 32, 33, 300}) {
    for (uint32_t seed = 1; seed < 20; ++seed) {
      const auto x = random_values(static_cast<size_t>(columns), seed, std::exp2(float(seed) - 9));
      std::vector<int8_t> codes(x.size());
      const QuantizedRow expected = quantize_row(x, codes);
      on_every_set([&](const InstructionSet& set) {
        const size_t padded = padded_columns(x.size());
        const AlignedBytes slot(ActivationRow::bytes(padded));
        const ActivationRow row{slot.bytes().data(), padded};
        set.quantize(x.data(), x.size(), seed % 2 == 0, row);
        EXPECT_EQ(row.head().row.zero_point, expected.zero_point);
        EXPECT_EQ(row.head().row.inverse_scale, expected.inverse_scale);
        EXPECT_EQ(std::vector<int8_t>(row.codes(), row.codes() + columns), codes);
        EXPECT_TRUE(std::all_of(row.codes() + columns, row.codes() + padded,
                                [](int8_t c) { return c == 0; }));
      });
    }
  }
}

}  // namespace
}  // namespace ferry::kernels::quantized_linear_test
