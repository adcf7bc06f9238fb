// Input: any bytes as a .pte or .bpte file. It is refused, or our writer writes the program again
// unchanged.
#include "formats/pte/bundled.h"
#include "formats/pte/reader.h"
#include "formats/pte/writer.h"
#include "formats/xnnpack/calls.h"
#include "tests/fuzz/require.h"

namespace ferry::pte::pte_fuzz {
namespace {

// Reads every byte that the program refers to.
void touch(const std::vector<std::span<const std::byte>>& pieces) {
  unsigned sum = 0;
  for (const auto& piece : pieces) {
    if (!piece.empty()) sum += std::to_integer<unsigned>(piece.front() ^ piece.back());
  }
  require(sum <= pieces.size() * 255);
}

// Loaders of programs with delegates make these calls.
void check_delegates(const LoadedProgram& loaded) {
  const auto graphs = xnnpack::read_blobs(loaded, "fuzz.pte");
  if (!graphs) return require_good_message(graphs.error());
  for (const Method& method : loaded.program.methods) {
    const Status status = xnnpack::check_calls(method, *graphs, "fuzz.pte");
    if (!status) require_good_message(status.error());
  }
}

void check(std::span<const std::byte> file) {
  if (is_bundled(file)) {
    const auto bundled = read_bundled(file, "fuzz.bpte");
    if (!bundled) return require_good_message(bundled.error());
    return check(bundled->program);
  }
  const auto loaded = read_program(file, "fuzz.pte");
  if (!loaded) return require_good_message(loaded.error());
  touch(loaded->data.constants);
  touch(loaded->data.initial);
  touch(loaded->data.delegates);
  touch(loaded->data.named);
  check_delegates(*loaded);
  const auto layout = plan_program(loaded->program, sizes_of(loaded->data));
  require(layout.has_value());
  // Constants that overlap in the file are written apart.
  if (layout->file_bytes > 64 * file.size() + 4096) return;
  std::vector<std::byte> ours = layout->head;
  ours.resize(layout->file_bytes);
  const auto again = read_program(ours, "ours.pte");
  require(again.has_value() && again->program.named_data == loaded->program.named_data);
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(std::as_bytes(std::span(data, size)));
  return 0;
}

}  // namespace ferry::pte::pte_fuzz
