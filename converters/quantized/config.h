// The quantization_config of a checkpoint, which says how its quantised matrices are stored.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"

namespace ferry::converters {

enum class QuantizedForm {
  kScaled,   // "weight" in 8-bit elements, also for codes of 4 bits, and scales
  kPacked,   // compressed-tensors: "weight_packed", integers packed along rows
  kGptq,     // "qweight", integers packed along columns
  kAwq,      // "qweight", integers packed across columns
  kBlocks,   // "NAME_blocks" and "NAME_scales": MXFP4
  kTernary,  // BitNet: "weight" of -1, 0 and 1, two bits each, and "weight_scale"
  kRounded,  // BitNet: "weight" in floats, which become ternary
};

// How the scales of a matrix (rows, columns) lie: one for each block of the matrix. A size of 0
// means as many rows or columns as the matrix has.
struct ScaleBlock {
  int64_t rows = 0, columns = 0;
  bool operator==(const ScaleBlock&) const = default;
};

struct QuantizedScheme {
  QuantizedForm form = QuantizedForm::kScaled;
  int bits = 8;
  bool is_float = false;  // kScaled: f8_e4m3 rather than i8
  bool has_zero_points = false;
  ScaleBlock block = {};
  bool operator==(const QuantizedScheme&) const = default;
};

struct QuantizationConfig {
  std::string method;  // "gptq"
  // There is more than one scheme only where modules differ; the tensors of a module then say which
  // scheme is theirs.
  std::vector<QuantizedScheme> schemes;
  std::string scale_suffix;   // kScaled: "weight_scale_inv"
  int64_t zero_offset = 0;    // kGptq: added to stored zero points
  bool needs_groups = false;  // kGptq with desc_act: "g_idx" must be there
  bool divides = false;       // kTernary: values are divided by the scale
  // The model that was quantised rounds the inputs of its matrices too: its config keeps the
  // quantization_config, which ModelType::ternary reads.
  bool rounds_inputs = false;
  std::vector<std::string> kept;  // names of modules that are not quantised
  std::optional<DType> dtype;     // dtype that the config computes in
  std::string note;               // for the user; may be empty
};

// Returns nullopt where `config_json` has no quantization_config. Errors name `name` and the key:
// kUnsupported for methods, formats and fields that are not obeyed, kBadInput for values that make
// no sense.
Result<std::optional<QuantizationConfig>> parse_quantization_config(const std::string& config_json,
                                                                    const std::string& name);

// Returns `config_json` without its quantization_config: the config of the model that was
// quantised.
Result<std::string> without_quantization_config(const std::string& config_json,
                                                const std::string& name);

}  // namespace ferry::converters
