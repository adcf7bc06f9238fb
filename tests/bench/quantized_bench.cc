// Products with coded matrices beside the limits of the machine, in the shapes of Qwen3-0.6B:
// decode beside a plain read of the same bytes, prefill in multiply-adds. Run with
// --benchmark_filter=NAME. Codes and activations are random.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kernels/quantized_linear.h"

namespace ferry::kernels {
namespace {

std::vector<std::byte> random_bytes(size_t n) {
  std::vector<std::byte> bytes(n);
  uint32_t state = 1;
  for (std::byte& b : bytes) {
    state = state * 1664525 + 1013904223;
    b = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

// `count` matrices, one after the other in memory.
struct Matrices {
  std::vector<std::byte> codes, scales;
  std::vector<PackedMatrix> packed;
  size_t bytes = 0;

  Matrices(int bits, int64_t group, int64_t rows, int64_t columns, size_t count) {
    const size_t one = static_cast<size_t>(rows * columns * bits / 8);
    const size_t scale_count = static_cast<size_t>(rows * (group == 0 ? 1 : columns / group));
    const size_t scale_size = bits == 4 ? 2 : 4;
    codes = random_bytes(one * count);
    scales.resize(scale_count * scale_size * count, std::byte{0x3c});
    for (size_t i = 0; i < count; ++i) {
      packed.push_back(PackedMatrix::pack(
          {bits, rows, columns, group, bits == 4 ? DType::kBF16 : DType::kF32,
           codes.data() + i * one, scales.data() + i * scale_count * scale_size}));
    }
    bytes = codes.size() + scales.size();
  }
};

struct Inputs {
  std::vector<float> x, out;
  std::vector<std::byte> memory;
  std::span<std::byte> scratch;

  Inputs(int64_t m, int64_t columns, int64_t rows) {
    for (int64_t i = 0; i < m * columns; ++i) x.push_back(static_cast<float>(i * 37 % 201 - 100));
    out.resize(static_cast<size_t>(m * rows));
    const uint64_t bytes = dynamic_linear_scratch(m, columns);
    memory.resize(bytes + 64);
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    scratch = std::span(memory).subspan((64 - at % 64) % 64, bytes);
  }
};

void set_rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] =
      benchmark::Counter(per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

uint64_t sum_words(const std::byte* begin, size_t bytes) {
  uint64_t sums[32] = {}, words[32];
  for (size_t i = 0; i + sizeof sums <= bytes; i += sizeof sums) {
    std::memcpy(words, begin + i, sizeof words);
    for (int j = 0; j < 32; ++j) sums[j] += words[j];
  }
  return std::accumulate(sums, sums + 32, uint64_t{0});
}

constexpr size_t kDecodeBytes = size_t{1} << 28;

// The upper bound of decode. Args: threads.
void plain_read(benchmark::State& state) {
  ThreadPool pool(static_cast<size_t>(state.range(0)));
  const std::vector<std::byte> w = random_bytes(kDecodeBytes);
  const size_t part = size_t{1} << 18;
  std::vector<uint64_t> sums(w.size() / part);
  for (auto _ : state) {
    pool.parallel_for(sums.size(), [&](size_t i) { sums[i] = sum_words(&w[i * part], part); });
    benchmark::DoNotOptimize(sums.data());
  }
  set_rate(state, "GB/s", static_cast<double>(w.size()));
}
BENCHMARK(plain_read)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

// Args: bits, group, columns, rows, m, threads. Decode reads as many matrices as make 256 MiB.
void dynamic_products(benchmark::State& state) {
  const auto bits = static_cast<int>(state.range(0));
  const int64_t columns = state.range(2), rows = state.range(3), m = state.range(4);
  ThreadPool pool(static_cast<size_t>(state.range(5)));
  const size_t one = static_cast<size_t>(rows * columns * bits / 8);
  const size_t count = m > 4 ? 1 : std::max<size_t>(1, kDecodeBytes / one);
  const Matrices w(bits, state.range(1), rows, columns, count);
  Inputs in(m, columns, rows);
  for (auto _ : state) {
    for (const PackedMatrix& matrix : w.packed) {
      const LinearTask task{&matrix, nullptr, in.out.data()};
      dynamic_linear(in.x.data(), m, columns, {&task, 1}, in.scratch, pool);
    }
    benchmark::DoNotOptimize(in.out.data());
  }
  set_rate(state, "GB/s", static_cast<double>(w.bytes));
  set_rate(state, "GMAC/s", static_cast<double>(count) * static_cast<double>(m * columns * rows));
}

// Args as for dynamic_products. Activations are f32.
void weight_only_products(benchmark::State& state) {
  const auto bits = static_cast<int>(state.range(0));
  const int64_t columns = state.range(2), rows = state.range(3), m = state.range(4);
  ThreadPool pool(static_cast<size_t>(state.range(5)));
  const size_t one = static_cast<size_t>(rows * columns * bits / 8);
  const size_t count = m > 4 ? 1 : std::max<size_t>(1, kDecodeBytes / one);
  const Matrices w(bits, state.range(1), rows, columns, count);
  Inputs in(m, columns, rows);
  for (auto _ : state) {
    for (const PackedMatrix& matrix : w.packed) {
      const LinearTask task{&matrix, nullptr, in.out.data()};
      weight_only_linear(in.x.data(), m, columns, {&task, 1}, pool);
    }
    benchmark::DoNotOptimize(in.out.data());
  }
  set_rate(state, "GB/s", static_cast<double>(w.bytes));
  set_rate(state, "GMAC/s", static_cast<double>(count) * static_cast<double>(m * columns * rows));
}

void shapes(benchmark::internal::Benchmark* b) {
  for (const int64_t threads : {1, 2}) {
    for (const int64_t m : {1, 4, 128, 512}) {
      for (const auto& [columns, rows] : {std::pair<int64_t, int64_t>{1024, 2048},
                                          {1024, 1024},
                                          {1024, 3072},
                                          {3072, 1024},
                                          {1024, 151936}}) {
        if (rows > 4096 && m > 4) continue;  // the head computes the last position only
        b->Args({4, 32, columns, rows, m, threads});
        b->Args({8, 0, columns, rows, m, threads});
      }
    }
  }
  b->Args({4, 128, 1024, 3072, 1, 2})->Args({4, 128, 1024, 3072, 128, 2});
  b->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(dynamic_products)->Apply(shapes);
BENCHMARK(weight_only_products)
    ->ArgsProduct({{4, 8}, {0}, {1024}, {3072}, {1, 128}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ferry::kernels
