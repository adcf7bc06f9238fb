#include "cli/report_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "cli/parity_document.h"
#include "core/file.h"
#include "core/result.h"
#include "core/text.h"
#include "packer/manifest.h"
#include "report/html_page.h"

namespace ferry::cli {
namespace {

constexpr uint64_t kLargestReport = uint64_t{256} << 20;

constexpr std::array<std::pair<std::string_view, ReportForm>, 3> kForms = {{
    {".html", ReportForm::kHtml},
    {".json", ReportForm::kJson},
    {".md", ReportForm::kMarkdown},
}};

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Returns whether --report has written this file.
bool is_report(const std::string& path, ReportForm form) {
  const Result<std::string> text = read_text_file(path, kLargestReport);
  if (!text) return false;
  const std::string mark = fmt::format("{{\"{}\"", kReportMark);
  switch (form) {
    case ReportForm::kHtml:
      return (text->starts_with("<!doctype html>") || text->starts_with("<!DOCTYPE html>")) &&
             text->find(mark) != std::string::npos;
    case ReportForm::kJson:
      return text->starts_with(mark);
    case ReportForm::kMarkdown:
      return text->starts_with(fmt::format("<!-- {}", kReportMark));
  }
  return false;
}

Result<ReportForm> form_of(const std::string& path) {
  const std::string name = base_name(path);
  for (const auto& [ending, form] : kForms) {
    if (name.size() > ending.size() && name.ends_with(ending)) return form;
  }
  return fail(ErrorCode::kUsage,
              fmt::format("--report {}: a report ends in .html, .json or .md", printable(path)));
}

}  // namespace

Status check_directory_of(const std::string& option, const std::string& path,
                          const std::string& bundle) {
  const std::string directory = directory_of(path);
  std::error_code error;
  // A program may be that of a bundle.
  const std::string beside = directory_of(bundle);
  const bool is_program =
      std::filesystem::is_regular_file(bundle, error) &&
      std::filesystem::exists(fmt::format("{}/{}", beside, packer::kManifestName), error);
  if (std::filesystem::equivalent(directory, is_program ? beside : bundle, error)) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} {}: a bundle has no files but those of its manifest", option,
                            printable(path)));
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    return os_error(path, "cannot create", errno);
  }
  return {};
}

Status check_new_file(const std::string& option, const std::string& path,
                      const std::string& bundle) {
  if (path.empty()) return {};
  FERRY_RETURN_IF_ERROR(check_directory_of(option, path, bundle));
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  return os_error(path, "cannot create", EEXIST);
}

Status check_audit_page(const std::string& option, const std::string& path,
                        const std::string& bundle) {
  FERRY_RETURN_IF_ERROR(check_directory_of(option, path, bundle));
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (S_ISREG(info.st_mode)) {
    const Result<std::string> text = read_text_file(path, kLargestReport);
    if (text && report::is_page(report::PageKind::kAudit, *text)) return {};
  }
  return fail(ErrorCode::kExists,
              fmt::format("{} {}: exists and is no page of an audit", option, printable(path)));
}

Result<ReportForm> check_report_file(const std::string& path, const std::string& bundle) {
  const ReportForm form = FERRY_TRY(form_of(path));
  FERRY_RETURN_IF_ERROR(check_directory_of("--report", path, bundle));
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return form;
  if (S_ISREG(info.st_mode) && is_report(path, form)) return form;
  return fail(ErrorCode::kExists,
              fmt::format("--report {}: exists and is no parity report", printable(path)));
}

}  // namespace ferry::cli
