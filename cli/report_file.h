// Files of reports: `verify --report FILE`.
#pragma once

#include <string>

#include "core/result.h"

namespace ferry::cli {

enum class ReportForm { kHtml, kJson, kMarkdown };

// kUsage for a file within `bundle`, whose files are listed in its manifest; kIo where none can be
// made. `option` begins the message.
Status check_directory_of(const std::string& option, const std::string& path,
                          const std::string& bundle);

// By the ending of `path`. kUsage for another one, kExists where a file is there that is no parity
// report; as check_directory_of() else. Asked before the work, so that it is not lost.
Result<ReportForm> check_report_file(const std::string& path, const std::string& bundle);

}  // namespace ferry::cli
