// Files that verbs write beside their result: reports, statistics, pages.
#pragma once

#include <string>

#include "core/result.h"

namespace ferry::cli {

enum class ReportForm { kHtml, kJson, kMarkdown };

// kUsage for a file within `bundle`, whose files are listed in its manifest; kIo where none can be
// made. `option` begins the message.
Status check_directory_of(const std::string& option, const std::string& path,
                          const std::string& bundle);

// Likewise, for a new file; kExists where `path` names something already. Nothing for an empty
// path. Asked before the work that fills the file.
Status check_new_file(const std::string& option, const std::string& path,
                      const std::string& bundle);

// Likewise, for the page of an audit, which replaces another such page; kExists for any other file.
Status check_audit_page(const std::string& option, const std::string& path,
                        const std::string& bundle);

// By the ending of `path`. kUsage for another one, kExists where a file is there that is no parity
// report; as check_directory_of() else. Asked before the work, so that it is not lost.
Result<ReportForm> check_report_file(const std::string& path, const std::string& bundle);

}  // namespace ferry::cli
