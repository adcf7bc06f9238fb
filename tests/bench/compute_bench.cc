// How close the compute kernels come to the machine: decode beside a plain read of the same bytes,
// prefill as a share of what the multiply-add units can do. Run with --benchmark_filter=NAME.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "runner/kernels/compute.h"

namespace ferry::kernels {
namespace {

std::vector<float> random_values(size_t n) {
  std::vector<float> values(n);
  std::minstd_rand bits(1);
  for (float& v : values) v = static_cast<float>(bits() % 2001) / 1000.0f - 1.0f;
  return values;
}

std::vector<char> random_bytes(DType dtype, size_t n) {
  const std::vector<float> some = random_values(size_t{1} << 16);
  std::vector<char> tile(some.size() * static_cast<size_t>(dtype_bytes(dtype)));
  cast(DType::kF32, some.data(), dtype, tile.data(), static_cast<int64_t>(some.size()));
  std::vector<char> bytes(n * static_cast<size_t>(dtype_bytes(dtype)));
  for (size_t i = 0; i < bytes.size(); i += tile.size()) {
    std::memcpy(bytes.data() + i, tile.data(), std::min(tile.size(), bytes.size() - i));
  }
  return bytes;
}

// Eight words at a time, which the compiler turns into vector additions.
uint64_t sum_words(const char* begin, size_t bytes) {
  uint64_t sums[32] = {};
  for (size_t i = 0; i + sizeof sums <= bytes; i += sizeof sums) {
    uint64_t words[32];
    std::memcpy(words, begin + i, sizeof words);
    for (int j = 0; j < 32; ++j) sums[j] += words[j];
  }
  uint64_t sum = 0;
  for (uint64_t s : sums) sum += s;
  return sum;
}

void set_rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] =
      benchmark::Counter(per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

constexpr int64_t kDecodeBytes = int64_t{1} << 30;

// The ceiling of decode: args are threads.
void plain_read(benchmark::State& state) {
  ThreadPool pool(static_cast<size_t>(state.range(0)));
  const std::vector<char> w(kDecodeBytes, 1);
  const size_t part = size_t{1} << 18;
  std::vector<uint64_t> sums(w.size() / part);
  for (auto _ : state) {
    pool.parallel_for(sums.size(), [&](size_t i) { sums[i] = sum_words(&w[i * part], part); });
    benchmark::DoNotOptimize(sums.data());
  }
  set_rate(state, "GB/s", static_cast<double>(w.size()));
}
BENCHMARK(plain_read)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

// Args: dtype, k, threads. The weights of a model one after the other: 1 GiB of [1024, k] matrices.
void linear_decode(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const int64_t k = state.range(1), n = 1024;
  ThreadPool pool(static_cast<size_t>(state.range(2)));
  const int64_t matrix = n * k * dtype_bytes(dtype);
  const auto w = random_bytes(dtype, static_cast<size_t>(kDecodeBytes / dtype_bytes(dtype)));
  const auto x = random_bytes(dtype, static_cast<size_t>(k));
  std::vector<char> out(static_cast<size_t>(n * dtype_bytes(dtype)));
  for (auto _ : state) {
    for (int64_t at = 0; at + matrix <= kDecodeBytes; at += matrix) {
      linear(dtype, x.data(), w.data() + at, out.data(), 1, n, k, pool);
    }
    benchmark::DoNotOptimize(out.data());
  }
  set_rate(state, "GB/s", static_cast<double>(kDecodeBytes / matrix * matrix));
}
BENCHMARK(linear_decode)
    ->ArgsProduct({{int64_t(DType::kF32), int64_t(DType::kBF16), int64_t(DType::kF16)},
                   {1024, 3072},
                   {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// The ceiling of prefill: multiply-adds on registers only, one thread.
void linear_prefill(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const int64_t m = state.range(1), k = state.range(2), n = state.range(3);
  ThreadPool pool(static_cast<size_t>(state.range(4)));
  const auto w = random_bytes(dtype, static_cast<size_t>(n * k));
  const auto x = random_bytes(dtype, static_cast<size_t>(m * k));
  std::vector<char> out(static_cast<size_t>(m * n * dtype_bytes(dtype)));
  for (auto _ : state) {
    linear(dtype, x.data(), w.data(), out.data(), m, n, k, pool);
    benchmark::DoNotOptimize(out.data());
  }
  set_rate(state, "GFLOP/s", 2.0 * static_cast<double>(m * n * k));
}
BENCHMARK(linear_prefill)
    ->ArgsProduct(
        {{int64_t(DType::kF32), int64_t(DType::kBF16)}, {4, 32, 512}, {1024, 3072}, {1024}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ferry::kernels
