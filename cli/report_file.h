// Files of reports: `verify --report FILE`.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::cli {

enum class ReportForm { kHtml, kJson, kMarkdown };

// By the ending of `path`. kUsage for another one, where a file is there that is no parity report,
// and within `bundle`, whose files are listed in its manifest; kIo where no file can be made. Asked
// before the work, so that it is not lost.
Result<ReportForm> check_report_file(const std::string& path, const std::string& bundle);

// As a whole or not at all: a temporary file beside it, synced and renamed. What is there is
// replaced.
Status write_whole_file(const std::string& path, std::string_view text);

}  // namespace ferry::cli
