// Unicode as the reference (tokenizers 0.23) has it: classes of characters, lower case, normal
// forms. The reference's libraries follow different versions of Unicode: some know fewer characters
// than utf8proc, others know more.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace ferry::text::reference {

bool is_nonspacing_mark(char32_t c);  // Mn, which BertNormalizer strips
bool is_mark(char32_t c);             // M, which StripAccents strips
bool is_punctuation(char32_t c);      // P, and the symbols of ASCII
bool is_control(char32_t c);          // Cc, Cf, Co, which BertNormalizer removes, with \t, \n, \r
bool is_word(char32_t c);             // \w
bool is_number(char32_t c);           // N
// Returns whether NFKC and NFKD of the reference leave the character unchanged although newer
// versions of Unicode map it.
bool is_unmapped(char32_t c);
// U+0130 is not supported, because its lower case is two characters.
char32_t lower(char32_t c);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` is valid UTF-8. Only parts that can change are normalized, so a text that is already
// normalized costs one pass.
Status normalize(std::string& text, NormalForm form);

}  // namespace ferry::text::reference
