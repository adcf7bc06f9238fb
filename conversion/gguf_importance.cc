#include "conversion/gguf_importance.h"

#include <fmt/format.h>

#include <utility>

#include "core/checked.h"
#include "core/text.h"

namespace ferry::conversion {
namespace {

using converters::GgufElement;
using converters::GgufFileType;

constexpr const char* kField = "imatrix";

bool is_embedding(const std::string& name) { return name.ends_with("token_embd.weight"); }

}  // namespace

Result<GgufImportance> GgufImportance::open(const ExportOptions& options,
                                            std::optional<GgufFileType> type) {
  GgufImportance importance;
  importance.type_ = type;
  if (options.imatrix.empty()) return importance;
  if (!type || !converters::gguf_file_type_info(*type).mixed) {
    return fail_field(ErrorCode::kUsage, kField,
                      fmt::format(": changes nothing in files of type {}: choose another type with "
                                  "outtype, such as q4_k_m",
                                  type ? converters::gguf_file_type_info(*type).name : "auto"));
  }
  importance.matrix_ = FERRY_TRY(formats::read_importance_matrix(options.imatrix));
  importance.path_ = options.imatrix;
  return importance;
}

Result<std::shared_ptr<const std::vector<float>>> GgufImportance::of(const std::string& name,
                                                                     const Shape& shape,
                                                                     GgufElement type) {
  const auto at = matrix_.find(name);
  std::shared_ptr<const std::vector<float>> numbers;
  if (at != matrix_.end()) {
    const int64_t matrix_elements = shape.size() < 2 ? 0 : shape[shape.size() - 2];
    const int64_t wanted =
        matrix_elements == 0 ? 0 : checked_numel(shape).value_or(0) / matrix_elements;
    const bool fits = std::ssize(*at->second) == wanted;
    if (!fits && !is_embedding(name)) {
      return bad_input(fmt::format("{}: {} has {} numbers, and the columns of the matrices are {}",
                                   printable(path_), quoted(name), at->second->size(), wanted));
    }
    if (fits) numbers = at->second;
  }
  if (numbers == nullptr && type_ && converters::gguf_needs_importance(name, type, *type_)) {
    return fail_field(ErrorCode::kUsage, kField,
                      fmt::format(": files of type {} need an importance matrix with {}",
                                  converters::gguf_file_type_info(*type_).name, quoted(name)));
  }
  if (!is_given() || !converters::gguf_takes_importance(type)) return numbers;
  ++(numbers == nullptr ? missing_ : found_);
  if (numbers == nullptr && first_missing_.empty()) first_missing_ = name;
  return numbers;
}

Result<std::vector<std::string>> GgufImportance::notes() const {
  if (!is_given() || missing_ == 0) return std::vector<std::string>();
  if (found_ == 0) {
    return fail_field(ErrorCode::kUsage, kField,
                      fmt::format(": {} has no entry of a tensor of the file, such as {}",
                                  printable(path_), quoted(first_missing_)));
  }
  return std::vector<std::string>{
      fmt::format("{} has no entry of {} quantised tensor{}, such as {}: they are quantised "
                  "without one",
                  printable(path_), missing_, missing_ == 1 ? "" : "s", quoted(first_missing_))};
}

}  // namespace ferry::conversion
