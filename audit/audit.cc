#include "audit/audit.h"

#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "audit/contents.h"
#include "audit/findings.h"
#include "audit/targets.h"
#include "core/file.h"
#include "core/text.h"

namespace ferry::audit {
namespace {

namespace fs = std::filesystem;

// Reads the FlatBuffer identifier, which reveals programs and data files that have other
// extensions.
Result<std::string> file_identifier(const InputFile& file) {
  std::array<char, 8> bytes = {};
  if (file.size() < bytes.size()) return std::string();
  FERRY_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(bytes))));
  return std::string(bytes.data() + 4, 4);
}

// Looks only at the top of the directory.
bool holds_programs(const std::string& directory) {
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const fs::path extension = at->path().extension();
    if (extension == ".pte" || extension == ".ptd") return true;
  }
  return false;
}

Result<Audit> audit_file(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  if (path.ends_with(".pte") || path.ends_with(".bpte")) return audit_program(file);
  if (path.ends_with(".ptd")) return audit_data(file);
  const std::string identifier = FERRY_TRY(file_identifier(file));
  if (identifier == "ET12") return audit_program(file);
  if (identifier == "FT01") return audit_data(file);
  return audit_checkpoint(path);
}

Result<Audit> audit_structure(const std::string& path, ThreadPool& pool) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (fs::exists(path + "/manifest.json", ignored)) return audit_bundle(path, pool);
    return holds_programs(path) ? audit_folder(path) : audit_checkpoint(path);
  }
  if (!fs::exists(path, ignored)) return audit_checkpoint(path);  // returns the error
  return audit_file(path);
}

}  // namespace

std::string target_name(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.ends_with('/')) trimmed.pop_back();
  return base_name(trimmed);
}

uint64_t Audit::bytes() const {
  uint64_t sum = 0;
  for (const AuditedFile& file : files) sum += file.bytes;
  return sum;
}

uint64_t Audit::elements() const {
  uint64_t sum = 0;
  for (const Leaf& leaf : leaves) sum += leaf.elements;
  return sum;
}

uint64_t Audit::bytes_of(LeafKind kind) const {
  uint64_t sum = 0;
  for (const Leaf& leaf : leaves) sum += leaf.kind == kind ? leaf.bytes : 0;
  return sum;
}

Result<Audit> audit_path(const std::string& path, const AuditOptions& options, ThreadPool& pool) {
  Audit audit = FERRY_TRY(audit_structure(path, pool));
  if (options.digests) {
    FERRY_RETURN_IF_ERROR(read_contents(path, audit, options.progress, pool));
    audit.content_read = true;
  }
  audit.findings = find_all(audit);
  return audit;
}

}  // namespace ferry::audit
