// The cost of loading a bundle and of decoding with it, beside a plain read of the same bytes in
// the same run. FERRY_BENCH_BUNDLE names the bundle; without it nothing is measured.
//   FERRY_BENCH_BUNDLE=b [FERRY_BENCH_THREADS=n] build/bench/bin/bundle_bench

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "packer/bundle_reader.h"
#include "runner/stateful_decoder.h"

namespace ferry {
namespace {

const char* bundle_path() { return std::getenv("FERRY_BENCH_BUNDLE"); }

size_t thread_count() {
  const char* wanted = std::getenv("FERRY_BENCH_THREADS");
  const long count = wanted == nullptr ? 0 : std::strtol(wanted, nullptr, 10);
  return count > 0 ? static_cast<size_t>(count) : ThreadPool::hardware_threads();
}

ThreadPool& pool() {
  static ThreadPool threads(thread_count());
  return threads;
}

// Opens the bundle once; all benchmarks of decoding share it.
const packer::Bundle& bundle() {
  static const Result<packer::Bundle> opened =
      packer::Bundle::open(bundle_path(), /*check_digests=*/false, pool());
  if (!opened) std::abort();
  return *opened;
}

// Returns the bytes of weights that one token reads: every external tensor once. The embedding
// table does not count, because a token reads one row of it, unless the head is tied to it.
uint64_t weight_bytes_per_token() {
  uint64_t bytes = 0;
  for (const packer::ManifestTensor& tensor : bundle().manifest().tensors) {
    if (tensor.name != "tok_embeddings.weight") bytes += tensor.bytes;
  }
  return bytes;
}

void load(benchmark::State& state) {
  for (auto _ : state) {
    Result<packer::Bundle> opened =
        packer::Bundle::open(bundle_path(), /*check_digests=*/false, pool());
    Result<runner::StatefulDecoder> decoder = runner::StatefulDecoder::load(*opened, pool(), {});
    if (!decoder) state.SkipWithError(decoder.error().message.c_str());
    benchmark::DoNotOptimize(decoder);
  }
}

// Sums a part of memory as 64-bit words, in kStreams streams side by side.
template <size_t kStreams>
[[gnu::always_inline]] inline uint64_t sum_streams(const std::byte* data, size_t bytes) {
  using Words = uint64_t __attribute__((vector_size(32)));
  constexpr size_t kSums = 4;
  const size_t stream = bytes / kStreams;
  Words sums[kSums] = {};
  for (size_t i = 0; i + sizeof sums <= stream; i += sizeof sums) {
    for (size_t s = 0; s < kStreams; ++s) {
#pragma GCC unroll 4
      for (size_t k = 0; k < kSums; ++k) {
        Words words;
        std::memcpy(&words, data + s * stream + i + k * sizeof words, sizeof words);
        sums[k] += words;
      }
    }
  }
  const Words all = sums[0] + sums[1] + sums[2] + sums[3];
  return all[0] + all[1] + all[2] + all[3];
}

#if defined(__x86_64__)
// Loads of 16 bytes do not saturate the memory bandwidth, so this uses 32.
template <size_t kStreams>
[[gnu::target("avx2")]] uint64_t sum_by_avx2(const std::byte* data, size_t bytes) {
  return sum_streams<kStreams>(data, bytes);
}
#endif

template <size_t kStreams>
uint64_t sum(const std::byte* data, size_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return sum_by_avx2<kStreams>(data, bytes);
#endif
  return sum_streams<kStreams>(data, bytes);
}

// Reads the data files once, on all threads, and returns the number of bytes.
template <size_t kStreams>
uint64_t read_data() {
  uint64_t bytes = 0;
  for (const auto& [name, data] : bundle().data()) {
    const std::span<const std::byte> all = data.file.bytes();
    constexpr size_t kPart = size_t{1} << 20;
    pool().parallel_for((all.size() + kPart - 1) / kPart, [&](size_t part) {
      const size_t begin = part * kPart;
      uint64_t words = sum<kStreams>(all.data() + begin, std::min(kPart, all.size() - begin));
      benchmark::DoNotOptimize(words);
    });
    bytes += all.size();
  }
  return bytes;
}

// Measures the bandwidth that limits decoding: the larger result over the numbers of streams.
// Processors differ in how many streams keep their memory busy.
template <size_t kStreams>
void plain_read(benchmark::State& state) {
  uint64_t bytes = read_data<kStreams>();  // the first pass also pays for page faults
  for (auto _ : state) bytes = read_data<kStreams>();
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}

// Decodes tokens at the positions from 0 to kDecoded, as llama-bench's tg32 does.
constexpr int64_t kDecoded = 32;

void decode(benchmark::State& state) {
  Result<runner::StatefulDecoder> decoder =
      runner::StatefulDecoder::load(bundle(), pool(), {.own_bf16 = true});
  const std::vector<int64_t> one = {1};
  read_data<1>();
  for (auto _ : state) {
    if (decoder->position() == kDecoded) decoder->restart();
    Result<std::span<const float>> logits = decoder->forward(one);
    if (!logits) state.SkipWithError(logits.error().message.c_str());
    benchmark::DoNotOptimize(logits);
  }
  state.SetBytesProcessed(static_cast<int64_t>(weight_bytes_per_token()) * state.iterations());
  state.SetItemsProcessed(state.iterations());
}

void prefill(benchmark::State& state) {
  Result<runner::StatefulDecoder> decoder =
      runner::StatefulDecoder::load(bundle(), pool(), {.own_bf16 = true});
  const std::vector<int64_t> tokens(static_cast<size_t>(state.range(0)), 1);
  if (state.range(0) > bundle().manifest().context_length) {
    return state.SkipWithError("the context is shorter");
  }
  for (auto _ : state) {
    decoder->restart();
    Result<std::span<const float>> logits = decoder->forward(tokens);
    if (!logits) state.SkipWithError(logits.error().message.c_str());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK(load)->Unit(benchmark::kMillisecond);
BENCHMARK(plain_read<1>)->Unit(benchmark::kMillisecond)->UseRealTime()->MinTime(1);
BENCHMARK(plain_read<4>)->Unit(benchmark::kMillisecond)->UseRealTime()->MinTime(1);
BENCHMARK(decode)->Unit(benchmark::kMillisecond)->UseRealTime()->MinTime(3);
BENCHMARK(prefill)->Arg(128)->Arg(512)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  if (ferry::bundle_path() == nullptr) {
    std::fputs("bundle_bench: set FERRY_BENCH_BUNDLE to a bundle directory\n", stderr);
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
