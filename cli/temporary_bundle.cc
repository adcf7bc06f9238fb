#include "cli/temporary_bundle.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "core/file.h"
#include "core/os_error.h"
#include "core/text.h"
#include "pipeline/convert.h"

namespace ferry::cli {
namespace {

std::string temporary_folder() {
  const char* given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/tmp";
}

}  // namespace

TemporaryBundle::TemporaryBundle(TemporaryBundle&& other) noexcept { *this = std::move(other); }

TemporaryBundle& TemporaryBundle::operator=(TemporaryBundle&& other) noexcept {
  std::swap(root_, other.root_);
  std::swap(path_, other.path_);
  return *this;
}

void TemporaryBundle::remove() {
  if (!root_.empty()) (void)remove_tree(root_);
  root_.clear();
}

Result<TemporaryBundle> TemporaryBundle::make(Context& context, const std::string& checkpoint) {
  std::string name = temporary_folder() + "/ferry-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) return os_error(name, "cannot create", errno);
  TemporaryBundle made;
  made.root_ = name;
  made.path_ = name + "/bundle";
  pipeline::ConvertOptions options;
  options.source = checkpoint;
  FERRY_TRY(pipeline::convert(options, made.path_, /*overwrite=*/false, context.pool()));
  context.detail(fmt::format("{}: converted to {}", printable(checkpoint), printable(made.path_)));
  return made;
}

}  // namespace ferry::cli
