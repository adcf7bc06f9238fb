// What a bundle costs to load and to decode with, beside a plain read of the same bytes in the same
// run. FERRY_BENCH_BUNDLE names the bundle; without it there is nothing to measure.
//   FERRY_BENCH_BUNDLE=b build/bench/bin/bundle_bench

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

ThreadPool& pool() {
  static ThreadPool threads(ThreadPool::hardware_threads());
  return threads;
}

// Opened once; benchmarks of speed share it.
const packer::Bundle& bundle() {
  static const Result<packer::Bundle> opened =
      packer::Bundle::open(bundle_path(), /*check_digests=*/false, pool());
  if (!opened) std::abort();
  return *opened;
}

// Bytes of weights that one token reads: every external tensor once, the embedding table not at all
// (one row of it), unless the head is tied to it.
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

// Sums the bytes of the data files as 64-bit words, on all threads.
void plain_read(benchmark::State& state) {
  uint64_t bytes = 0;
  for (auto _ : state) {
    bytes = 0;
    for (const auto& [name, data] : bundle().data()) {
      const std::span<const std::byte> all = data.file.bytes();
      constexpr size_t kPart = size_t{1} << 22;
      pool().parallel_for((all.size() + kPart - 1) / kPart, [&](size_t part) {
        const size_t begin = part * kPart;
        const size_t words = std::min(kPart, all.size() - begin) / (8 * sizeof(uint64_t));
        uint64_t sums[8] = {};
        for (size_t i = 0; i < words; ++i) {
          uint64_t block[8];
          std::memcpy(block, all.data() + begin + i * sizeof block, sizeof block);
          for (size_t k = 0; k < 8; ++k) sums[k] += block[k];
        }
        benchmark::DoNotOptimize(sums);
      });
      bytes += all.size();
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}

void decode(benchmark::State& state) {
  Result<runner::StatefulDecoder> decoder = runner::StatefulDecoder::load(bundle(), pool(), {});
  const std::vector<int64_t> one = {1};
  for (auto _ : state) {
    if (decoder->position() == bundle().manifest().context_length) decoder->restart();
    Result<std::span<const float>> logits = decoder->forward(one);
    if (!logits) state.SkipWithError(logits.error().message.c_str());
    benchmark::DoNotOptimize(logits);
  }
  state.SetBytesProcessed(static_cast<int64_t>(weight_bytes_per_token()) * state.iterations());
  state.SetItemsProcessed(state.iterations());
}

void prefill(benchmark::State& state) {
  Result<runner::StatefulDecoder> decoder = runner::StatefulDecoder::load(bundle(), pool(), {});
  const std::vector<int64_t> tokens(static_cast<size_t>(state.range(0)), 1);
  for (auto _ : state) {
    decoder->restart();
    Result<std::span<const float>> logits = decoder->forward(tokens);
    if (!logits) state.SkipWithError(logits.error().message.c_str());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK(load)->Unit(benchmark::kMillisecond);
BENCHMARK(plain_read)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(decode)->Unit(benchmark::kMillisecond)->UseRealTime()->MinTime(3);
BENCHMARK(prefill)->Arg(128)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);

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
