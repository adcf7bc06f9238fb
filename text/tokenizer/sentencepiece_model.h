// SentencePieceModel holds the contents of a SentencePiece file (`tokenizer.model`, a message
// ModelProto of Protocol Buffers).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::text {

struct SentencePieceModel {
  enum class Kind : int64_t { kUnigram = 1, kBpe = 2, kWord = 3, kCharacter = 4 };
  enum class PieceKind : int64_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  struct Piece {
    std::string text;  // valid UTF-8, not empty, at most kMaxPiece bytes
    float score = 0;   // finite
    PieceKind kind = PieceKind::kNormal;
  };
  static constexpr size_t kMaxPiece = 512;

  std::vector<Piece> pieces;  // by id, all different
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false, white_space_is_suffix = false;
  int64_t unk_id = 0, bos_id = 1, eos_id = 2, pad_id = -1;
  std::string unk_piece = "<unk>", bos_piece = "<s>", eos_piece = "</s>", pad_piece = "<pad>";
  std::string unk_surface = " \xE2\x81\x87 ";  // the text of the unknown piece in decoded texts
  std::string charsmap;                        // precompiled_charsmap, or empty if absent
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  bool denormalizes = false;  // whether texts are to be changed after decoding

  // kBadInput for bytes that are no such message, and for impossible pieces and ids. `name` begins
  // error messages.
  static Result<SentencePieceModel> parse(std::string_view bytes, const std::string& name);
};

}  // namespace ferry::text
