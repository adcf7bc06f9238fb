#include "text/tokenizer/normal_form.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "core/utf8.h"
#include "text/tokenizer/reference_classes.h"

namespace ferry::text {
namespace {

bool composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }
bool compatibility(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

utf8proc_option_t options(NormalForm form) {
  int flags = UTF8PROC_STABLE | (composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (compatibility(form)) flags |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(flags);
}

// Returns whether normalization leaves the character unchanged and never combines it with the one
// before, so that a part may end before it. May return false for such a character.
bool is_fixed(char32_t c, NormalForm form) {
  if (c < 0x80) return true;
  // The letters of Latin-1 and Latin Extended are composed already. No character below U+0300
  // combines with the one before.
  if (form == NormalForm::kNfc && c < 0x300) return true;
  if (c >= 0xAC00 && c <= 0xD7A3) return composes(form);  // Hangul syllables
  const bool jamo = c >= 0x1160 && c <= 0x11FF;           // the vowels and tails that compose
  if (composes(form) && jamo) return false;
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (property->combining_class != 0) return false;
  if (reference::is_unmapped(c)) return true;
  if (property->decomp_seqindex != UINT16_MAX &&
      (property->decomp_type == 0 || compatibility(form))) {
    return false;
  }
  // In utf8proc, a comb_index of 0x8000 or more belongs to a character that can be the second of a
  // composition.
  return !composes(form) || property->comb_index == UINT16_MAX || property->comb_index < 0x8000;
}

struct Free {
  void operator()(utf8proc_uint8_t* bytes) const { std::free(bytes); }
};

Status append_normalized(std::string& out, std::string_view text, NormalForm form) {
  utf8proc_uint8_t* bytes = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &bytes, options(form));
  const std::unique_ptr<utf8proc_uint8_t, Free> owner(bytes);
  if (size < 0)
    return bad_input(std::string("a text cannot be normalized: ") + utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  return {};
}

}  // namespace

Status normalize(std::string& text, NormalForm form) {
  std::string out;
  size_t copied = 0;      // [0, copied) has been appended to `out`
  size_t last_fixed = 0;  // the offset of the last fixed character
  for (size_t at = 0; at < text.size();) {
    const utf8::Char c = utf8::decode_valid(text, at);
    if (is_fixed(c.value, form)) {
      last_fixed = at;
      at += c.size;
      continue;
    }
    // Normalize from the previous fixed character, which may compose with this one, to the next
    // fixed one.
    size_t end = at + c.size;
    while (end < text.size()) {
      const utf8::Char next = utf8::decode_valid(text, end);
      if (is_fixed(next.value, form)) break;
      end += next.size;
    }
    const size_t begin = last_fixed < copied ? copied : last_fixed;
    out.append(text, copied, begin - copied);
    FERRY_RETURN_IF_ERROR(
        append_normalized(out, std::string_view(text).substr(begin, end - begin), form));
    copied = last_fixed = at = end;
  }
  if (copied == 0) return {};
  out.append(text, copied);
  text = std::move(out);
  return {};
}

}  // namespace ferry::text
