#include "text/tokenizer/proto_reader.h"

#include <fmt/format.h>

#include <bit>

namespace ferry::text {

float ProtoField::as_float() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }

Failure ProtoReader::bad(std::string_view what) const {
  return bad_input(fmt::format("{}: {} at byte {}", where_, what, at_));
}

Result<uint64_t> ProtoReader::varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (at_ == message_.size()) return bad("a number ends behind its message");
    const auto byte = static_cast<unsigned char>(message_[at_++]);
    if (shift == 63 && byte > 1) break;
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  return bad("a number of more than 64 bits");
}

Result<uint64_t> ProtoReader::fixed(size_t size) {
  if (message_.size() - at_ < size) return bad("a number ends behind its message");
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= uint64_t{static_cast<unsigned char>(message_[at_ + i])} << (8 * i);
  }
  at_ += size;
  return value;
}

Result<std::string_view> ProtoReader::bytes() {
  const uint64_t size = FERRY_TRY(varint());
  if (size > message_.size() - at_) return bad("a field ends behind its message");
  const std::string_view found = message_.substr(at_, size);
  at_ += size;
  return found;
}

Result<std::optional<ProtoField>> ProtoReader::next() {
  using enum ProtoField::Wire;
  if (at_ == message_.size()) return std::optional<ProtoField>();
  const uint64_t tag = FERRY_TRY(varint());
  ProtoField field;
  if (tag >> 3 == 0 || tag >> 3 > (1U << 29) - 1) return bad("the number of a field is wrong");
  field.number = static_cast<uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      field.value = FERRY_TRY(varint());
      break;
    case 1:
      field.wire = kFixed64;
      field.value = FERRY_TRY(fixed(8));
      break;
    case 2:
      field.wire = kBytes;
      field.bytes = FERRY_TRY(bytes());
      break;
    case 5:
      field.wire = kFixed32;
      field.value = FERRY_TRY(fixed(4));
      break;
    default:
      return bad("a field of an unknown kind");
  }
  return std::optional(field);
}

}  // namespace ferry::text
