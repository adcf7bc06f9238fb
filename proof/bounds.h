// Bounds: the largest errors that a verification accepts. bounds_of() derives them from the dtypes
// of the bundle's weights. docs/verifying.md says how they were measured.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/dtype.h"
#include "packer/bundle_reader.h"
#include "proof/noise.h"
#include "proof/parity.h"
#include "proof/reference.h"

namespace ferry::proof {

// How many times its noise a difference may be (NoiseComparison::ratio). docs/verifying.md says on
// which models it was measured.
inline constexpr double kNoiseMultiple = 32;

struct ParityBounds {
  // The noise of this model on the prompts that are compared: tensors that it has may differ by
  // kNoiseMultiple times it. What follows holds for all others.
  std::shared_ptr<const NoiseModel> noise = {};
  // Outputs are measured, and are no gate: only values that are not finite are beyond the bounds.
  bool measured = false;
  // Stated by the caller: replaces everything else.
  bool given = false;
  // Largest absolute error of a logit; a layer tensor may differ by this times its largest value,
  // or times 1 if that is larger. None: only the floors hold.
  std::optional<double> max_abs;
  // kF16 or kBF16: the matrices are stored in it; kF16, kBF16, kU16 or kU8: inputs or outputs of a
  // static program are; the coarsest of them. Every tensor has a floor of its signal-to-noise
  // ratio. None: all is f32.
  std::optional<DType> rounding;
  // The dtype of the matrices of the vision encoder. None: they are f32, and its tensors are held
  // to the bounds of f32.
  std::optional<DType> vision_rounding = {};
  // Of the first layers, where weights are quantised or activations before their products; none
  // where neither is. `coding` says what is, for people.
  std::optional<double> coded_db = {}, vision_coded_db = {};
  std::string coding = {};
  bool rounded_ports = false;  // inputs or outputs are not f32
  bool delta_rule = false;     // the model has recurrent states (Gated DeltaNet)
  int64_t layers = 0;

  // Whether floors hold, and not the largest absolute error alone.
  bool has_floors() const { return rounding || coded_db; }
  // These bounds with noise in place of constants, unless the caller has stated a tolerance.
  ParityBounds with(std::shared_ptr<const NoiseModel> measured_noise) const;
  // These bounds for outputs that are no gate.
  ParityBounds as_measurement() const;
  // nullptr where the bounds are not those of noise.
  const TensorNoise* noise_of(const std::string& prompt, const std::string& tensor) const {
    return noise ? noise->find(prompt, tensor) : nullptr;
  }
  // In dB; none where nothing is rounded or quantised.
  std::optional<double> floor_db(const ReferenceTensor& tensor) const;
  std::optional<double> logits_floor_db() const;

  // The largest difference of a tensor whose largest value is `scale`; none where only its floor
  // holds.
  std::optional<double> limit(const ReferenceTensor& tensor, double scale) const;
  bool within(const ReferenceTensor& tensor, const ValueMetrics& metrics) const;
  bool logits_within(const ValueMetrics& metrics) const;
  // Whether errors within the bounds can explain that `got` and `want` have their largest logits at
  // different indices.
  bool explains_choice(std::span<const float> got, std::span<const float> want) const;
};

// A single row may have this much more noise than the whole tensor.
inline constexpr double kOneRowDb = 6;

// Largest absolute error of a logit in f32, where no noise was measured.
double f32_tolerance(bool delta_rule);
// Whether any matrix is stored in f16 or bf16.
bool has_half_matrices(const packer::Bundle& bundle);
// Uses the dtypes in the bundle's data files, not those of its manifest. `tolerance` replaces all
// bounds.
ParityBounds bounds_of(const packer::Bundle& bundle, std::optional<double> tolerance);
// For two bundles that are compared with each other: those of the one that rounds more.
ParityBounds bounds_between(const packer::Bundle& a, const packer::Bundle& b,
                            std::optional<double> tolerance);
// Against the bundle's own weights with activations in f32, as MethodOptions::widen executes them:
// what rounding and quantising activations does. The bounds of f32 where neither is done.
ParityBounds activation_bounds_of(const packer::Bundle& bundle, std::optional<double> tolerance);
// Bounds of a bundle with activations in f32: only what caches, inputs and outputs round is left.
ParityBounds widened_bounds_of(const packer::Bundle& bundle, std::optional<double> tolerance = {});
// For a bundle all of whose matrices are f32.
ParityBounds f32_bounds(const packer::Bundle& bundle, std::optional<double> tolerance = {});

}  // namespace ferry::proof
