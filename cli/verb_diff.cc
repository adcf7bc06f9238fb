// ferry diff writes the difference of two bundles as one file, which ferry apply takes.

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/verbs.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "patch/make_patch.h"

namespace ferry::cli {
namespace {

using patch::FileState;

struct DiffLine {
  std::string old_folder, new_folder, output;
  bool overwrite = false;
};

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string diff_json(const DiffLine& options, const patch::PatchSummary& summary) {
  JsonWriter json;
  json.begin_object().member("old", options.old_folder).member("new", options.new_folder);
  json.member("patch", options.output).member("old_bytes", summary.old_bytes);
  json.member("new_bytes", summary.new_bytes).member("patch_bytes", summary.patch_bytes);
  json.key("files").begin_array();
  for (const patch::PatchedFile& file : summary.files) {
    json.begin_object().member("name", file.name).member("state", name_of(file.state));
    json.member("bytes", file.bytes).member("copied", file.copied).member("stored", file.stored);
    json.end_object();
  }
  json.end_array().end_object();
  return json.take();
}

std::string diff_text(const DiffLine& options, const patch::PatchSummary& summary) {
  std::string text = fmt::format(
      "{}: {}, {:.2f} % of {}\n", printable(options.output), human_bytes(summary.patch_bytes),
      percent(summary.patch_bytes, summary.new_bytes), human_bytes(summary.new_bytes));
  for (const patch::PatchedFile& file : summary.files) {
    if (file.state == FileState::kUnchanged) continue;
    text += fmt::format("  {:<8}  {}", name_of(file.state), printable(file.name));
    if (file.state != FileState::kRemoved) {
      text += fmt::format("  {} of {}", human_bytes(file.stored), human_bytes(file.bytes));
    }
    text += '\n';
  }
  const uint64_t unchanged = summary.count(FileState::kUnchanged);
  return text + fmt::format("  {} file{} unchanged\n", unchanged, unchanged == 1 ? "" : "s");
}

Result<int> diff(const DiffLine& options, Context& context) {
  if (options.output.empty()) return fail(ErrorCode::kUsage, "-o PATCH is required");
  const auto summary = FERRY_TRY(patch::make_patch(options.old_folder, options.new_folder,
                                                   options.output, options.overwrite,
                                                   context.pool(), context.progress("comparing")));
  if (context.json) {
    context.print_result(diff_json(options, summary), 0);
  } else if (!context.quiet) {
    context.print(diff_text(options, summary));
  }
  return 0;
}

}  // namespace

void add_diff(CommandLine& line) {
  auto options = std::make_shared<DiffLine>();
  line.verb("diff", "Write what differs between two bundles as one file, for an update")
      .positional("OLD", options->old_folder, "Bundle, or other folder of files, that devices have")
      .positional("NEW", options->new_folder, "Bundle that they are to have")
      .option("-o,--out FILE", options->output, "Patch to write")
      .flag("--overwrite", options->overwrite, "Replace an existing patch")
      .description(
          "Tensors are compared with those of their name and contents, all other bytes in chunks. "
          "`ferry apply` makes NEW of OLD and the patch. `ferry audit --diff` shows where sizes "
          "differ.")
      .example("ferry diff v1/ v2/ -o v2.patch", "Writes v2.patch, for devices that have v1/.")
      .exit_codes({{"0", "written"},
                   {"3", "a folder in a folder, or a manifest that is not valid"},
                   {"6", "the patch exists already"}})
      .action([options](Context& context) { return diff(*options, context); });
}

}  // namespace ferry::cli
