// ProtoReader reads the fields of one message in the wire format of Protocol Buffers, one after
// another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::text {

// The value of a field. `wire` says which member is set.
struct ProtoField {
  enum class Wire { kVarint, kFixed32, kFixed64, kBytes };
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;      // a varint, or the bits of a fixed number
  std::string_view bytes;  // a view of the message

  float as_float() const;
  // int32 and enumerations are stored in two's complement.
  int64_t as_int() const { return static_cast<int64_t>(value); }
};

class ProtoReader {
 public:
  // `where` begins error messages.
  ProtoReader(std::string_view message, std::string where)
      : message_(message), where_(std::move(where)) {}

  // Returns the next field, or nullopt after the last one. kBadInput, with the offset in the
  // message, for fields that end behind the message, numbers of more than 64 bits, and groups.
  Result<std::optional<ProtoField>> next();

 private:
  Result<uint64_t> varint();
  Result<uint64_t> fixed(size_t size);
  Result<std::string_view> bytes();
  Failure bad(std::string_view what) const;

  std::string_view message_;
  std::string where_;
  size_t at_ = 0;
};

}  // namespace ferry::text
