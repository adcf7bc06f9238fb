// fuzz_replay NAME DIRECTORY...: runs a fuzz target on the files below directories. A target that
// fails ends the program by a signal, and the file is printed.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

// replayed.inc, which CMake writes, has a row for each target.
#define FERRY_REPLAYED(name) extern "C" int replay_##name(const uint8_t* data, size_t size);
#include "replayed.inc"
#undef FERRY_REPLAYED

namespace {

namespace fs = std::filesystem;

struct Target {
  const char* name;
  int (*run)(const uint8_t* data, size_t size);
};
constexpr Target kTargets[] = {
#define FERRY_REPLAYED(name) {#name, replay_##name},
#include "replayed.inc"
#undef FERRY_REPLAYED
};

const char* current = "";

extern "C" void name_the_file(int signal) {
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, current, std::strlen(current));
  written = ::write(STDERR_FILENO, ": failed\n", 9);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void run_on(const Target& target, const std::string& path) {
  current = path.c_str();
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // A copy of the exact size, so that sanitizers see a read past its end.
  const std::vector<uint8_t> bytes(text.begin(), text.end());
  target.run(bytes.data(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  for (const int number : {SIGILL, SIGTRAP, SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) {
    ::signal(number, name_the_file);
  }
  const auto* const target = std::ranges::find_if(
      kTargets, [&](const Target& t) { return argc > 1 && std::strcmp(t.name, argv[1]) == 0; });
  if (target == std::end(kTargets)) {
    std::fprintf(stderr, "fuzz_replay NAME DIRECTORY...: there is no such target\n");
    return 2;
  }
  size_t count = 0;
  for (int i = 2; i < argc; ++i) {
    size_t here = 0;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      run_on(*target, entry.path().string());
      ++here;
    }
    if (here == 0) {
      std::fprintf(stderr, "%s: no inputs\n", argv[i]);
      return 1;
    }
    count += here;
  }
  std::printf("%zu inputs\n", count);
  return count == 0;
}
