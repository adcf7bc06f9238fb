// Compiles the functions of libfmt from its headers, once, because Debian has no archive of it.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

#include <cstdio>

// Never called; that it could be is what makes the compiler emit the functions.
extern const void* const ferry_uses_of_fmt[];
const void* const ferry_uses_of_fmt[] = {
    reinterpret_cast<const void*>(
        static_cast<std::string (*)(fmt::string_view, fmt::format_args)>(&fmt::vformat)),
    reinterpret_cast<const void*>(
        static_cast<void (*)(std::FILE*, fmt::string_view, fmt::format_args)>(&fmt::vprint)),
    reinterpret_cast<const void*>(&fmt::detail::throw_format_error),
    reinterpret_cast<const void*>(static_cast<bool (*)(uint32_t)>(&fmt::detail::is_printable)),
    reinterpret_cast<const void*>(&fmt::detail::decimal_point_impl<char>),
    reinterpret_cast<const void*>(&fmt::detail::thousands_sep_impl<char>),
    reinterpret_cast<const void*>(&fmt::detail::dragonbox::to_decimal<float>),
    reinterpret_cast<const void*>(&fmt::detail::dragonbox::to_decimal<double>),
};
