// Input: any bytes as the graph of a native package (.ptn). It is refused, or its methods have
// names of their own.
#include <set>
#include <string>

#include "formats/ptn/package.h"
#include "tests/fuzz/require.h"

namespace ferry::ptn::ptn_fuzz {
namespace {

void check(std::span<const std::byte> graph) {
  const auto methods = read_graph(graph, "fuzz.ptn");
  if (!methods) return require_good_message(methods.error());
  require(!methods->empty());
  std::set<std::string> names;
  for (const Method& method : *methods) {
    require(names.insert(method.name).second);
    for (const Constant& constant : method.constants) require(!constant.value.dynamic);
  }
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(std::as_bytes(std::span(data, size)));
  return 0;
}

}  // namespace ferry::ptn::ptn_fuzz
