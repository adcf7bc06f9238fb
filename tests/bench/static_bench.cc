// Tokens/s of static programs beside the stateful program of the same checkpoint, in turns in one
// run.
//   static_bench POSITION ROUNDS STATEFUL_BUNDLE STATIC_BUNDLE...
// The stateful decoder is filled up to POSITION, because its work depends on the position. The work
// of a static program depends on its context length alone. A row "as stated" executes every
// instruction of a static program. A ratio is the median over rounds of the stateful time divided
// by the static time of the same round. Times are processor time, which other processes disturb
// least.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "packer/bundle_reader.h"
#include "runner/decoder.h"

namespace ferry {
namespace {

constexpr size_t kPromptTokens = 128;
constexpr int kTokensOfRound = 4;

struct Seconds {
  double wall = 0, processor = 0;
};

Seconds now() {
  timespec processor;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &processor);
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(wall).count(),
          static_cast<double>(processor.tv_sec) + 1e-9 * static_cast<double>(processor.tv_nsec)};
}

template <class T>
T or_exit(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "static_bench: {}\n", result.error().message);
  std::exit(2);
}

struct Subject {
  std::string name;
  std::unique_ptr<runner::Decoder> decoder;
  std::vector<Seconds> decode = {}, prefill = {};  // times per token, by round
};

Subject load(const std::string& path, bool literal, ThreadPool& pool) {
  const packer::Bundle bundle = or_exit(packer::Bundle::open(path, /*check_digests=*/false, pool));
  const std::string name = std::filesystem::path(path).filename().string();
  return {name + (literal ? ", as stated" : ""),
          or_exit(runner::load_decoder(bundle, pool, {.literal = literal, .own_bf16 = true}))};
}

Seconds time_of(runner::Decoder& decoder, std::span<const int64_t> tokens, size_t piece) {
  const Seconds begin = now();
  for (size_t at = 0; at < tokens.size(); at += piece) {
    (void)or_exit(decoder.forward(tokens.subspan(at, std::min(piece, tokens.size() - at))));
  }
  const Seconds end = now();
  const auto count = static_cast<double>(tokens.size());
  return {(end.wall - begin.wall) / count, (end.processor - begin.processor) / count};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Prints medians over the rounds after the first one, which warms up.
void print(const char* what, const Subject& subject, const std::vector<Seconds>& times,
           const std::vector<Seconds>& baseline) {
  std::vector<double> wall, processor, ratio;
  for (size_t i = 1; i < times.size(); ++i) {
    wall.push_back(times[i].wall);
    processor.push_back(times[i].processor);
    ratio.push_back(baseline[i].processor / times[i].processor);
  }
  fmt::print("{:8} {:34} {:8.2f} tokens/s {:9.2f} ms of processor {:9.2f} least {:6.2f} ratio\n",
             what, subject.name, 1 / median(wall), 1e3 * median(processor),
             1e3 * *std::ranges::min_element(processor), median(ratio));
}

void run(int64_t position, int rounds, std::span<Subject> subjects) {
  const std::vector<int64_t> prompt(kPromptTokens, 1);
  const std::vector<int64_t> some(prompt.begin(), prompt.begin() + kTokensOfRound);
  for (int round = 0; round < rounds; ++round) {
    for (Subject& subject : subjects) {
      subject.decoder->restart();
      subject.prefill.push_back(time_of(*subject.decoder, prompt, prompt.size()));
    }
  }
  const int64_t fill = position - subjects.front().decoder->position();
  const std::vector<int64_t> rest(static_cast<size_t>(std::max<int64_t>(fill, 0)), 1);
  time_of(*subjects.front().decoder, rest, rest.size() + 1);
  for (int round = 0; round < rounds; ++round) {
    for (Subject& subject : subjects) {
      subject.decode.push_back(time_of(*subject.decoder, some, 1));
    }
  }
  for (const Subject& s : subjects) print("decode", s, s.decode, subjects.front().decode);
  for (const Subject& s : subjects) print("prefill", s, s.prefill, subjects.front().prefill);
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  if (argc < 4 || std::atoi(argv[2]) < 2) {
    fmt::print(stderr,
               "static_bench: POSITION ROUNDS STATEFUL_BUNDLE STATIC_BUNDLE...; "
               "2 rounds or more\n");
    return 2;
  }
  ferry::ThreadPool pool(ferry::ThreadPool::hardware_threads());
  std::vector<ferry::Subject> subjects;
  for (int i = 3; i < argc; ++i) {
    subjects.push_back(ferry::load(argv[i], false, pool));
    if (i > 3) subjects.push_back(ferry::load(argv[i], true, pool));
  }
  ferry::run(std::atoll(argv[1]), std::atoi(argv[2]), subjects);
  return 0;
}
