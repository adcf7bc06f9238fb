// Classes of characters as the reference (tokenizers 0.23) has them. Its libraries follow different
// versions of Unicode: some know fewer characters than utf8proc, others know more.
#pragma once

#include <cstdint>

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

}  // namespace ferry::text::reference
