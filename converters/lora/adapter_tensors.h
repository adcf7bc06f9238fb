// AdapterTensors sorts the tensors of an adapter by the modules that they belong to.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "converters/lora/lora.h"
#include "core/dtype.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::converters {

// A and B of one module: of a linear layer A is (rank, inputs) and B is (outputs, rank); of an
// embedding A is (rank, entries) and B is (width, rank). DoRA has a magnitude for each row of B.
struct AdapterHalves {
  std::optional<size_t> a, b, magnitude;
  bool embedding = false;
  size_t any() const { return a ? *a : b ? *b : *magnitude; }
};

class AdapterTensors {
 public:
  // The tensors of the adapter are the entries of `source` from `first` on; both must outlive the
  // result. kBadInput for a tensor of no known kind, and for one that is there twice.
  static Result<AdapterTensors> sort(const TensorSource& source, size_t first,
                                     const LoraConfig& config);

  const LoraConfig& config() const { return *config_; }
  const TensorSource& source() const { return *source_; }
  const std::map<std::string, AdapterHalves>& modules() const { return modules_; }
  // Tensors that replace those of the checkpoint, by key: modules_to_save, and the weights that
  // peft saves below the adapter of an embedding or a head as `M.base_layer.weight`.
  const std::map<std::string, size_t>& saved() const { return saved_; }

  // An error about an entry.
  Failure bad(size_t index, const std::string& what, ErrorCode code = ErrorCode::kBadInput) const;
  Status expect_floats(size_t index) const;
  // kBadInput unless both halves and, with DoRA alone, the magnitudes are there, and
  // `target_modules` names the module.
  Status check_halves(std::string_view module, const AdapterHalves& halves) const;
  // kBadInput unless A and B are floats of these shapes, and magnitudes one for each row of B, for
  // the weight `key` of `shape`.
  Status check_shapes(const AdapterHalves& halves, const std::string& key, const Shape& shape,
                      const Shape& a, const Shape& b) const;

 private:
  AdapterTensors(const TensorSource& source, const LoraConfig& config)
      : source_(&source), config_(&config) {}
  Status add(size_t index);

  const TensorSource* source_;
  const LoraConfig* config_;
  std::map<std::string, AdapterHalves> modules_;
  std::map<std::string, size_t> saved_;
};

}  // namespace ferry::converters
