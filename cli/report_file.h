// Checks paths of files that verbs write beside their result: reports, statistics, pages. The
// checks come before the work, so that a wrong path does not waste it.
#pragma once

#include <string>

#include "core/result.h"

namespace ferry::cli {

enum class ReportForm { kHtml, kJson, kMarkdown };

// Returns kUsage for a file inside `bundle`, because the manifest lists all files of a bundle, and
// kIo if no file can be made in the directory. Messages begin with `option`.
Status check_directory_of(const std::string& option, const std::string& path,
                          const std::string& bundle);

// Checks the path of a new file like check_directory_of(), and returns kExists if `path` exists.
// Accepts an empty path.
Status check_new_file(const std::string& option, const std::string& path,
                      const std::string& bundle);

// Checks the path of the page of an audit like check_directory_of(). Returns kExists for an
// existing file that is no such page.
Status check_audit_page(const std::string& option, const std::string& path,
                        const std::string& bundle);

// Checks the path of a parity report like check_directory_of(), and returns the form that its
// ending names. Returns kUsage for another ending, and kExists for an existing file that is no such
// report.
Result<ReportForm> check_report_file(const std::string& path, const std::string& bundle);

}  // namespace ferry::cli
