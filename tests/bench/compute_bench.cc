// The compute kernels beside the limits of the machine: decode beside a plain read of the same
// bytes, prefill as a share of the peak rate of the multiply-add units. Run with
// --benchmark_filter=NAME.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/bf16_linear.h"
#include "kernels/compute.h"

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
  kernels::cast(DType::kF32, some.data(), dtype, tile.data(), static_cast<int64_t>(some.size()));
  std::vector<char> bytes(n * static_cast<size_t>(dtype_bytes(dtype)));
  for (size_t i = 0; i < bytes.size(); i += tile.size()) {
    std::memcpy(bytes.data() + i, tile.data(), std::min(tile.size(), bytes.size() - i));
  }
  return bytes;
}

// Sums 32 words at a time, which the compiler turns into vector additions.
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

// The upper bound of decode. Args: threads.
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

// Args: dtype, k, threads. Reads the weights of a model one after the other: 1 GiB of [1024, k]
// matrices.
void linear_decode(benchmark::State& state) {
  const kernels::Bf16Choice instructions(true);
  const auto dtype = static_cast<DType>(state.range(0));
  const int64_t k = state.range(1), n = 1024;
  ThreadPool pool(static_cast<size_t>(state.range(2)));
  const int64_t matrix = n * k * dtype_bytes(dtype);
  const auto w = random_bytes(dtype, static_cast<size_t>(kDecodeBytes / dtype_bytes(dtype)));
  const auto x = random_bytes(dtype, static_cast<size_t>(k));
  std::vector<char> out(static_cast<size_t>(n * dtype_bytes(dtype)));
  for (auto _ : state) {
    for (int64_t at = 0; at + matrix <= kDecodeBytes; at += matrix) {
      kernels::linear(dtype, x.data(), w.data() + at, out.data(), 1, n, k, pool);
    }
    benchmark::DoNotOptimize(out.data());
  }
  set_rate(state, "GB/s", static_cast<double>(kDecodeBytes - kDecodeBytes % matrix));
}
BENCHMARK(linear_decode)
    ->ArgsProduct({{int64_t(DType::kF32), int64_t(DType::kBF16), int64_t(DType::kF16)},
                   {1024, 3072},
                   {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Args: dtype, m, k, n, threads.
void linear_prefill(benchmark::State& state) {
  const kernels::Bf16Choice instructions(true);
  const auto dtype = static_cast<DType>(state.range(0));
  const int64_t m = state.range(1), k = state.range(2), n = state.range(3);
  ThreadPool pool(static_cast<size_t>(state.range(4)));
  const auto w = random_bytes(dtype, static_cast<size_t>(n * k));
  const auto x = random_bytes(dtype, static_cast<size_t>(m * k));
  std::vector<char> out(static_cast<size_t>(m * n * dtype_bytes(dtype)));
  for (auto _ : state) {
    kernels::linear(dtype, x.data(), w.data(), out.data(), m, n, k, pool);
    benchmark::DoNotOptimize(out.data());
  }
  set_rate(state, "GFLOP/s", 2.0 * static_cast<double>(m * n * k));
}
BENCHMARK(linear_prefill)
    ->ArgsProduct(
        {{int64_t(DType::kF32), int64_t(DType::kBF16)}, {4, 32, 512}, {1024, 3072}, {1024}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Args: dtype of the caches, t, position, kv heads, heads, threads; heads have 128 values. Decoding
// reads the caches once: compare GB/s with plain_read. Prefill counts the multiply-adds of the keys
// that are not masked.
void sdpa(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const int64_t t = state.range(1), start = state.range(2), dim = 128;
  const kernels::SdpaShape shape{1, t, state.range(4), state.range(3), dim, start + t};
  ThreadPool pool(static_cast<size_t>(state.range(5)));
  const auto query = random_values(static_cast<size_t>(t * shape.heads * dim));
  const auto rows = static_cast<size_t>(shape.context * shape.kv_heads);
  const DType bits = dtype == DType::kI8 ? DType::kF16 : dtype;  // any bits are valid codes
  const auto cache = random_bytes(bits, rows * static_cast<size_t>(dim));
  const auto values = cache;
  const std::vector<float> scales(rows, 0.01f);
  const std::vector<int8_t> zero_points(rows, 3);
  std::vector<float> out(query.size());
  for (auto _ : state) {
    kernels::sdpa_f32(shape, query.data(), {dtype, cache.data(), scales.data(), zero_points.data()},
                      {dtype, values.data(), scales.data(), zero_points.data()}, nullptr, true,
                      start, 0.09f, out.data(), pool);
    benchmark::DoNotOptimize(out.data());
  }
  const auto pairs = t * start + t * (t + 1) / 2;
  const auto seen = static_cast<double>(pairs);
  if (t == 1) {
    const size_t values_read = 2 * rows * static_cast<size_t>(dim);
    set_rate(state, "GB/s",
             static_cast<double>(values_read * static_cast<size_t>(dtype_bytes(dtype))));
  } else {
    set_rate(state, "GFLOP/s", 4.0 * seen * static_cast<double>(dim * shape.heads));
  }
}
BENCHMARK(sdpa)
    ->ArgsProduct({{int64_t(DType::kF32)}, {1}, {63, 4095, 65535}, {1, 2, 8}, {16}, {1, 2}})
    ->ArgsProduct({{int64_t(DType::kF16), int64_t(DType::kI8)}, {1}, {511, 2047}, {8}, {16}, {2}})
    ->ArgsProduct({{int64_t(DType::kF32), int64_t(DType::kF16), int64_t(DType::kI8)},
                   {512},
                   {0},
                   {8},
                   {16},
                   {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Args: t, heads, threads; states are [128, 128]. It counts 7 multiply-adds or products per value
// of the state.
void delta_rule(benchmark::State& state) {
  const kernels::DeltaRuleShape shape{1, state.range(1), state.range(0), 128, 128, false};
  const auto steps = static_cast<size_t>(shape.heads * shape.t);
  ThreadPool pool(static_cast<size_t>(state.range(2)));
  const auto query = random_values(steps * 128);
  const auto value = query, key = std::vector<float>(query.size(), 0.08f);
  const std::vector<float> decay(steps, 0.9f), beta(steps, 0.5f);
  const auto initial = random_values(static_cast<size_t>(shape.heads) * 128 * 128);
  std::vector<float> out(value.size()), last(initial.size());
  for (auto _ : state) {
    kernels::gated_delta_rule_f32(shape, query.data(), key.data(), value.data(), decay.data(),
                                  beta.data(), initial.data(), out.data(), last.data(), pool);
    benchmark::DoNotOptimize(out.data());
  }
  set_rate(state, "Gsteps/s", static_cast<double>(steps));
  set_rate(state, "GFLOP/s", static_cast<double>(steps) * 7 * 128 * 128);
}
BENCHMARK(delta_rule)
    ->ArgsProduct({{1, 512}, {16}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// Args: values. It runs on one thread.
void sigmoid(benchmark::State& state) {
  const auto a = random_values(static_cast<size_t>(state.range(0)));
  std::vector<float> out(a.size());
  for (auto _ : state) {
    kernels::sigmoid_f32(a.data(), out.data(), state.range(0));
    benchmark::DoNotOptimize(out.data());
  }
  set_rate(state, "Gvalues/s", static_cast<double>(state.range(0)));
}
BENCHMARK(sigmoid)->Arg(4096);

// Args: from, to, values. It runs on one thread.
void cast_values(benchmark::State& state) {
  const auto from = static_cast<DType>(state.range(0)), to = static_cast<DType>(state.range(1));
  const auto a = random_bytes(from, static_cast<size_t>(state.range(2)));
  std::vector<char> out(static_cast<size_t>(state.range(2) * dtype_bytes(to)));
  for (auto _ : state) {
    kernels::cast(from, a.data(), to, out.data(), state.range(2));
    benchmark::DoNotOptimize(out.data());
  }
  set_rate(state, "Gvalues/s", static_cast<double>(state.range(2)));
}
BENCHMARK(cast_values)
    ->Args({int64_t(DType::kF32), int64_t(DType::kBF16), 4096})
    ->Args({int64_t(DType::kF32), int64_t(DType::kF16), 4096})
    ->Args({int64_t(DType::kBF16), int64_t(DType::kF32), 4096});

}  // namespace
}  // namespace ferry::kernels
