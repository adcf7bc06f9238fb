#include "dialects/gguf/tokenizer/sentence_pieces.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>

#include "core/utf8.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ferry::text {
namespace {

// Reads the fields of a protobuf message, one after the other.
class Message {
 public:
  explicit Message(std::string_view bytes) : left_(bytes) {}

  enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
  struct Field {
    uint64_t number = 0;
    uint32_t wire = 0;
    uint64_t value = 0;      // value of a varint or a fixed width
    std::string_view bytes;  // contents of kLengthDelimited
  };

  bool at_end() const { return left_.empty(); }
  // Returns nullopt where the bytes are no field.
  std::optional<Field> next() {
    const auto tag = varint();
    if (!tag || (*tag >> 3) == 0) return std::nullopt;
    Field field;
    field.number = *tag >> 3;
    field.wire = static_cast<uint32_t>(*tag & 7);
    if (field.wire == kFixed64 || field.wire == kFixed32) {
      return fixed(field, field.wire == kFixed64 ? 8 : 4);
    }
    const auto value = varint();
    if (!value || (field.wire != kVarint && field.wire != kLengthDelimited)) return std::nullopt;
    field.value = *value;
    if (field.wire == kVarint) return field;
    if (*value > left_.size()) return std::nullopt;
    field.bytes = left_.substr(0, static_cast<size_t>(*value));
    left_.remove_prefix(static_cast<size_t>(*value));
    return field;
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  std::optional<Field> fixed(Field field, size_t size) {
    if (left_.size() < size) return std::nullopt;
    for (size_t i = 0; i < size; ++i) {
      field.value |= uint64_t{static_cast<unsigned char>(left_[i])} << (8 * i);
    }
    left_.remove_prefix(size);
    return field;
  }

  std::string_view left_;
};

constexpr uint64_t kPieces = 1;  // field of the model
constexpr uint64_t kText = 1, kScore = 2, kType = 3;

std::optional<SentencePiece> read_spelled_piece(std::string_view bytes) {
  Message message(bytes);
  SentencePiece piece;
  while (!message.at_end()) {
    const auto field = message.next();
    if (!field) return std::nullopt;
    if (field->number == kText && field->wire == Message::kLengthDelimited) {
      piece.text = field->bytes;
    } else if (field->number == kScore && field->wire == Message::kFixed32) {
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field->value));
    } else if (field->number == kType && field->wire == Message::kVarint) {
      if (field->value < SentencePiece::kNormal || field->value > SentencePiece::kByte) {
        return std::nullopt;
      }
      piece.type = static_cast<uint32_t>(field->value);
    }
  }
  if (!utf8::is_valid(piece.text)) return std::nullopt;
  return piece;
}

}  // namespace

Result<std::vector<SentencePiece>> read_sentence_pieces(std::string_view bytes,
                                                        const std::string& name) {
  Message model(bytes);
  std::vector<SentencePiece> pieces;
  while (!model.at_end()) {
    const auto field = model.next();
    if (!field) return bad_input(name + ": is no SentencePiece model");
    if (field->number != kPieces || field->wire != Message::kLengthDelimited) continue;
    auto piece = read_spelled_piece(field->bytes);
    if (!piece) return bad_input(fmt::format("{}: piece {} is malformed", name, pieces.size()));
    if (std::ssize(pieces) > kMaxTokenId) return bad_input(name + ": too many pieces");
    pieces.push_back(*std::move(piece));
  }
  if (pieces.empty()) return bad_input(name + ": has no pieces");
  return pieces;
}

}  // namespace ferry::text
