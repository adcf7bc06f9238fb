// The style and the scripts of the pages as texts. embed.cmake makes them from report/page.
#pragma once

#include <string_view>

namespace ferry::report {

extern const std::string_view kPageStyle;
extern const std::string_view kAuditScript;
extern const std::string_view kParityScript;
extern const std::string_view kBatchScript;

}  // namespace ferry::report
