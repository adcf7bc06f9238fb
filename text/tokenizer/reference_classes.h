// Classes of characters as the reference (tokenizers 0.23) has them. Its libraries follow different
// versions of Unicode: some know fewer characters than utf8proc does, others know more.
#pragma once

#include <cstdint>

namespace ferry::text::reference {

bool is_nonspacing_mark(char32_t c);  // Mn: what BertNormalizer strips
bool is_mark(char32_t c);             // M: what StripAccents strips
bool is_punctuation(char32_t c);      // P, and the symbols of ASCII
bool is_control(char32_t c);  // Cc, Cf, Co: what BertNormalizer cleans away, with \t, \n, \r
bool is_word(char32_t c);     // \w
bool is_number(char32_t c);   // N
// Whether the forms NFKC and NFKD leave it alone although the Unicode of today maps it.
bool is_unmapped(char32_t c);
// Except for U+0130, which becomes two characters.
char32_t lower(char32_t c);

}  // namespace ferry::text::reference
