// Checks the bytes of constants.
#include <fmt/format.h>

#include <cstring>

#include "core/text.h"
#include "formats/xnnpack/validate.h"

namespace ferry::xnnpack {

namespace {

using Bytes = std::span<const std::byte>;

// Returns the index of the first scale that is not positive and normal, or SIZE_MAX if all are.
// Positive normal numbers are the codes from the lowest bit of the exponent up to infinity.
template <class Word, Word kSmallest, Word kInfinity>
size_t find_wrong_scale(Bytes bytes) {
  const auto is_wrong = [&](size_t i) {
    Word word;
    std::memcpy(&word, bytes.data() + i * sizeof(Word), sizeof(Word));
    return static_cast<Word>(word - kSmallest) >= static_cast<Word>(kInfinity - kSmallest);
  };
  const size_t count = bytes.size() / sizeof(Word);
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += is_wrong(i);
  if (wrong == 0) return SIZE_MAX;
  size_t first = 0;
  while (!is_wrong(first)) ++first;
  return first;
}

constexpr auto kFindInF32 = find_wrong_scale<uint32_t, 0x00800000, 0x7f800000>;
constexpr auto kFindInBF16 = find_wrong_scale<uint16_t, 0x0080, 0x7f80>;

std::string describe(const Constant& constant) {
  return constant.key.empty() ? fmt::format("constant at {}", constant.offset)
                              : fmt::format("named data {}", quoted(constant.key));
}

}  // namespace

Result<Bytes> constant_bytes(const Constant& constant, Bytes blob, const NamedLookup& lookup,
                             const std::string& name) {
  if (constant.key.empty()) return blob.subspan(constant.offset, constant.bytes);
  const std::optional<Bytes> bytes = lookup(constant.key);
  if (!bytes) return bad_input(fmt::format("{}: {} is nowhere", name, describe(constant)));
  if (bytes->size() == constant.bytes) return *bytes;
  return bad_input(fmt::format("{}: {} bytes, expected {} ({})", name, bytes->size(),
                               constant.bytes, describe(constant)));
}

Status check_constants(const Graph& graph, Bytes blob, const NamedLookup& lookup,
                       const std::string& name) {
  std::vector<Bytes> constants(1);
  for (size_t i = 1; i < graph.constants.size(); ++i) {
    constants.push_back(FERRY_TRY(constant_bytes(graph.constants[i], blob, lookup, name)));
  }
  for (const Value& value : graph.values) {
    const auto* channel = std::get_if<PerChannel>(&value.quantization);
    const auto* group = std::get_if<PerChannelGroup>(&value.quantization);
    if (!channel && !group) continue;
    const uint32_t index = channel ? channel->scales : group->scales;
    const size_t wrong = channel ? kFindInF32(constants[index]) : kFindInBF16(constants[index]);
    if (wrong == SIZE_MAX) continue;
    return bad_input(fmt::format("{}: scale {} is not positive and normal ({})", name, wrong,
                                 describe(graph.constants[index])));
  }
  return {};
}

}  // namespace ferry::xnnpack
