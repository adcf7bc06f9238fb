// A key and its value as a GGUF file stores them. Converters make them, and dialects/gguf writes
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace ferry {

// The type and the value as the bytes of another GGUF file.
struct GgufStoredValue {
  std::vector<std::byte> bytes = {};
  bool operator==(const GgufStoredValue&) const = default;
};

// The alternative decides the type in the file. Readers of GGUF insist on certain types:
// block_count is a u32, lists of token types are i32. Texts may hold any bytes.
using GgufValue =
    std::variant<uint16_t, uint32_t, int32_t, float, bool, std::string, std::vector<int32_t>,
                 std::vector<float>, std::vector<bool>, std::vector<std::string>, GgufStoredValue>;

struct GgufKeyValue {
  std::string key = {};
  GgufValue value = {};
  bool operator==(const GgufKeyValue&) const = default;
};

}  // namespace ferry
