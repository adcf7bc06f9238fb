// The importance matrix of an export to GGUF: what each tensor gets of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conversion/export.h"
#include "core/dtype.h"
#include "core/result.h"
#include "dialects/gguf/file/importance.h"
#include "dialects/gguf/model/written_types.h"

namespace ferry::conversion {

class GgufImportance {
 public:
  // Reads the file of the options, if they name one. kUsage if `type`, which is empty if tensors
  // keep their types, is none that an importance matrix changes.
  static Result<GgufImportance> open(const ExportOptions& options,
                                     std::optional<converters::GgufFileType> type);

  bool is_given() const { return !path_.empty(); }
  // Returns the numbers for a tensor of `shape` that gets `type`; null if there are none. As with
  // llama-quantize, embeddings may have numbers of another size, which are not used. kBadInput for
  // other tensors with such numbers, kUsage if the file type needs numbers that there are not.
  Result<std::shared_ptr<const std::vector<float>>> of(const std::string& name, const Shape& shape,
                                                       converters::GgufElement type);
  // Says which tensors had no numbers. kUsage if none had.
  Result<std::vector<std::string>> notes() const;

 private:
  std::string path_;
  std::optional<converters::GgufFileType> type_;
  formats::ImportanceMatrix matrix_;
  size_t found_ = 0, missing_ = 0;
  std::string first_missing_;
};

}  // namespace ferry::conversion
