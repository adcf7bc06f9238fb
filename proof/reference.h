// Reference: prompts and the outputs that the original model computed for them, read from a tensor
// file. The names are listed in docs/verifying.md; a '/' in a name counts as '.'.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/shape.h"
#include "core/tensor_source.h"

namespace ferry::proof {

struct ReferencePrompt {
  std::string name;  // "short"; empty for the prompt of a file without prefixes
  std::vector<int64_t> input_ids;
  // Tensor name without the prefix ("logits", "cache.0.key") -> index of the entry.
  std::map<std::string, size_t> tensors;
  bool has(const std::string& tensor) const { return tensors.contains(tensor); }
  bool needs_images() const { return has("pixel_values") || has("image_features"); }
};

class Reference {
 public:
  // `source` must outlive the Reference. kBadInput unless there is at least one prompt, and every
  // tensor belongs to one.
  static Result<Reference> open(const TensorSource& source);

  const std::string& path() const { return source_->path(); }
  const std::vector<ReferencePrompt>& prompts() const { return prompts_; }
  const Shape& shape(const ReferencePrompt& prompt, const std::string& tensor) const;

  // Whether a tensor is what doubles() takes, without keeping its values.
  Status check(const ReferencePrompt& prompt, const std::string& tensor,
               const Shape& expected) const;
  // All values of a floating-point tensor, which must have this shape and be finite.
  Result<std::vector<double>> doubles(const ReferencePrompt& prompt, const std::string& tensor,
                                      const Shape& expected) const;
  Result<std::vector<float>> floats(const ReferencePrompt& prompt, const std::string& tensor,
                                    const Shape& expected) const;
  // All values of an i64 or i32 tensor, which must have this shape.
  Result<std::vector<int64_t>> integers(const ReferencePrompt& prompt, const std::string& tensor,
                                        const Shape& expected) const;
  // All values of an i64 or i32 tensor of rank 1, or of rank 2 with one row.
  Result<std::vector<int64_t>> ids(const ReferencePrompt& prompt, const std::string& tensor) const;

 private:
  explicit Reference(const TensorSource& source) : source_(&source) {}
  Result<std::vector<int64_t>> read_ids(size_t entry) const;
  Status check_type(const TensorEntry& entry, const Shape& expected) const;
  Result<std::vector<int64_t>> read_integers(size_t entry) const;

  const TensorSource* source_;
  std::vector<ReferencePrompt> prompts_;
};

// "FILE: prompt 'NAME'", for messages.
std::string name_of(const Reference& reference, const ReferencePrompt& prompt);

}  // namespace ferry::proof
