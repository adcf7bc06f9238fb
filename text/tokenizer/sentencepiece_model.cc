#include "text/tokenizer/sentencepiece_model.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <unordered_set>

#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {
namespace {

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

// ProtoReader reads the fields of one message in the wire format of Protocol Buffers, one after
// another.
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

using Wire = ProtoField::Wire;
using Piece = SentencePieceModel::Piece;

// Calls `visit` for every field of a message.
template <class Visit>
Status for_each_field(std::string_view message, const std::string& where, Visit visit) {
  ProtoReader reader(message, where);
  while (const auto field = FERRY_TRY(reader.next())) FERRY_RETURN_IF_ERROR(visit(*field));
  return {};
}

// The value of a known field, whose wire type must match.
class FieldValue {
 public:
  FieldValue(const ProtoField& field, const std::string& where) : field_(field), where_(where) {}

  Status flag(bool& out) const {
    FERRY_RETURN_IF_ERROR(expect(Wire::kVarint));
    out = field_.value != 0;
    return {};
  }
  Status integer(int64_t& out) const {
    FERRY_RETURN_IF_ERROR(expect(Wire::kVarint));
    out = field_.as_int();
    return {};
  }
  Status number(float& out) const {
    FERRY_RETURN_IF_ERROR(expect(Wire::kFixed32));
    out = field_.as_float();
    return {};
  }
  Status text(std::string& out) const {
    FERRY_RETURN_IF_ERROR(expect(Wire::kBytes));
    if (!utf8::is_valid(field_.bytes)) return bad("is not valid UTF-8");
    out = field_.bytes;
    return {};
  }
  Status bytes(std::string& out) const {
    FERRY_RETURN_IF_ERROR(expect(Wire::kBytes));
    out = field_.bytes;
    return {};
  }

 private:
  Status expect(Wire wire) const {
    return field_.wire == wire ? Status() : bad("has a wrong kind");
  }
  Failure bad(std::string_view what) const {
    return bad_input(fmt::format("{}: field {} {}", where_, field_.number, what));
  }

  const ProtoField& field_;
  const std::string& where_;
};

Status check_piece(const Piece& piece, const std::string& where) {
  if (piece.text.empty()) return bad_input(where + ": empty");
  if (piece.text.size() > SentencePieceModel::kMaxPiece) {
    return bad_input(fmt::format("{}: {} bytes, more than {}", where, piece.text.size(),
                                 SentencePieceModel::kMaxPiece));
  }
  if (!std::isfinite(piece.score)) return bad_input(where + ": the score is not a finite number");
  const auto kind = static_cast<int64_t>(piece.kind);
  if (kind < 1 || kind > 6) return bad_input(fmt::format("{}: unknown type {}", where, kind));
  return {};
}

Result<Piece> read_piece(std::string_view message, const std::string& where) {
  Piece piece;
  const Status read = for_each_field(message, where, [&](const ProtoField& field) -> Status {
    const FieldValue value(field, where);
    if (field.number == 1) return value.text(piece.text);
    if (field.number == 2) return value.number(piece.score);
    int64_t kind = 0;
    if (field.number != 3) return {};
    FERRY_RETURN_IF_ERROR(value.integer(kind));
    piece.kind = static_cast<SentencePieceModel::PieceKind>(kind);
    return {};
  });
  FERRY_RETURN_IF_ERROR(read);
  FERRY_RETURN_IF_ERROR(check_piece(piece, where));
  return piece;
}

Status read_trainer(SentencePieceModel& model, std::string_view message, const std::string& where) {
  return for_each_field(message, where, [&](const ProtoField& field) -> Status {
    const FieldValue value(field, where);
    int64_t kind = 0;
    switch (field.number) {
      case 3:
        FERRY_RETURN_IF_ERROR(value.integer(kind));
        if (kind < 1 || kind > 4) return bad_input(fmt::format("{}: model_type {}", where, kind));
        model.kind = static_cast<SentencePieceModel::Kind>(kind);
        return {};
      case 24:
        return value.flag(model.white_space_is_suffix);
      case 35:
        return value.flag(model.byte_fallback);
      case 40:
        return value.integer(model.unk_id);
      case 41:
        return value.integer(model.bos_id);
      case 42:
        return value.integer(model.eos_id);
      case 43:
        return value.integer(model.pad_id);
      case 44:
        return value.text(model.unk_surface);
      case 45:
        return value.text(model.unk_piece);
      case 46:
        return value.text(model.bos_piece);
      case 47:
        return value.text(model.eos_piece);
      case 48:
        return value.text(model.pad_piece);
      default:
        return {};
    }
  });
}

Status read_normalizer(SentencePieceModel& model, std::string_view message,
                       const std::string& where) {
  return for_each_field(message, where, [&](const ProtoField& field) -> Status {
    const FieldValue value(field, where);
    switch (field.number) {
      case 2:
        return value.bytes(model.charsmap);
      case 3:
        return value.flag(model.add_dummy_prefix);
      case 4:
        return value.flag(model.remove_extra_whitespaces);
      case 5:
        return value.flag(model.escape_whitespaces);
      default:
        return {};
    }
  });
}

Status read_denormalizer(SentencePieceModel& model, std::string_view message,
                         const std::string& where) {
  return for_each_field(message, where, [&](const ProtoField& field) -> Status {
    model.denormalizes |= field.number == 2 && !field.bytes.empty();
    return {};
  });
}

Status check_model(const SentencePieceModel& model, const std::string& name) {
  std::unordered_set<std::string_view> seen;
  for (const Piece& piece : model.pieces) {
    if (!seen.insert(piece.text).second) {
      return bad_input(fmt::format("{}: pieces: {} is there twice", name, quoted(piece.text, 60)));
    }
  }
  if (model.unk_surface.size() > kMaxStepText) {
    return bad_input(name + ": trainer_spec: unk_surface is too long");
  }
  const auto count = static_cast<int64_t>(model.pieces.size());
  if (count == 0) return bad_input(name + ": has no pieces");
  if (model.unk_id >= 0 && model.unk_id < count) return {};
  return bad_input(
      fmt::format("{}: trainer_spec: unk_id {} of {} pieces", name, model.unk_id, count));
}

}  // namespace

Result<SentencePieceModel> SentencePieceModel::parse(std::string_view bytes,
                                                     const std::string& name) {
  SentencePieceModel model;
  const Status read = for_each_field(bytes, name, [&](const ProtoField& field) -> Status {
    if (field.number > 5) return {};  // extensions
    if (field.wire != Wire::kBytes) {
      return bad_input(fmt::format("{}: field {} has a wrong kind", name, field.number));
    }
    if (field.number == 1) {
      const size_t id = model.pieces.size();
      if (id > static_cast<size_t>(kMaxTokenId)) return bad_input(name + ": too many pieces");
      model.pieces.push_back(
          FERRY_TRY(read_piece(field.bytes, fmt::format("{}: piece {}", name, id))));
      return {};
    }
    if (field.number == 2) return read_trainer(model, field.bytes, name + ": trainer_spec");
    if (field.number == 3) return read_normalizer(model, field.bytes, name + ": normalizer_spec");
    if (field.number == 5) {
      return read_denormalizer(model, field.bytes, name + ": denormalizer_spec");
    }
    return {};
  });
  FERRY_RETURN_IF_ERROR(read);
  FERRY_RETURN_IF_ERROR(check_model(model, name));
  return model;
}

}  // namespace ferry::text
