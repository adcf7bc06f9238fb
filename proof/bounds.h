// Bounds are the largest errors that a verification accepts. bounds_of() derives them from the
// dtypes of the bundle's weights. docs/verifying.md says how they were measured.
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

// A difference may be this many times its noise (NoiseComparison::ratio()). docs/verifying.md lists
// the models on which the factor was measured.
inline constexpr double kNoiseMultiple = 32;

struct ParityBounds {
  // The noise of this model on the compared prompts. Tensors in `noise` may differ by
  // kNoiseMultiple times their noise. The other members hold for all other tensors.
  std::shared_ptr<const NoiseModel> noise = {};
  // Outputs are only measured: nothing except values that are not finite exceeds the bounds.
  bool measured = false;
  // The caller has stated a tolerance, which replaces all other bounds.
  bool given = false;
  // Largest absolute error of a logit. A layer tensor may differ by this number times its largest
  // value, or by this number if its largest value is below 1. nullopt: only the floors hold.
  std::optional<double> max_abs;
  // The dtype that rounds most: kF16 or kBF16 for matrices that are stored in it; kF16, kBF16, kU16
  // or kU8 for inputs or outputs of a static program. Every tensor has a floor of its
  // signal-to-noise ratio. nullopt: everything is f32.
  std::optional<DType> rounding;
  // The dtype of the matrices of the vision encoder. nullopt: they are f32, and the tensors of the
  // encoder are held to the bounds of f32.
  std::optional<DType> vision_rounding = {};
  // Floors of the first layers if weights, or activations before their products, are quantised;
  // otherwise nullopt. `coding` describes the quantisation for people.
  std::optional<double> coded_db = {}, vision_coded_db = {};
  std::string coding = {};
  bool rounded_ports = false;  // some inputs or outputs are not f32
  bool delta_rule = false;     // the model has recurrent states (Gated DeltaNet)
  int64_t layers = 0;

  // Whether floors hold beside the largest absolute error.
  bool has_floors() const { return rounding || coded_db; }
  // Returns these bounds with noise in place of constants, unless the caller has stated a
  // tolerance.
  ParityBounds with(std::shared_ptr<const NoiseModel> measured_noise) const;
  // Returns these bounds for outputs that are only measured.
  ParityBounds as_measurement() const;
  // Returns nullptr if the bounds do not depend on noise.
  const TensorNoise* noise_of(const std::string& prompt, const std::string& tensor) const {
    return noise ? noise->find(prompt, tensor) : nullptr;
  }
  // Returns the floor in dB; nullopt if nothing is rounded or quantised.
  std::optional<double> floor_db(const ReferenceTensor& tensor) const;
  std::optional<double> logits_floor_db() const;

  // Returns the largest accepted difference of a tensor whose largest value is `scale`; nullopt if
  // only the floor holds.
  std::optional<double> limit(const ReferenceTensor& tensor, double scale) const;
  bool within(const ReferenceTensor& tensor, const ValueMetrics& metrics) const;
  bool logits_within(const ValueMetrics& metrics) const;
  // Whether errors within the bounds can explain that the largest logits of `got` and `want` have
  // different indices.
  bool explains_choice(std::span<const float> got, std::span<const float> want) const;
};

// A single row may have this much more noise than the whole tensor.
inline constexpr double kOneRowDb = 6;

// Returns the largest accepted error of an f32 logit if no noise was measured.
double f32_tolerance(bool delta_rule);
// Whether any matrix is stored in f16 or bf16.
bool has_half_matrices(const packer::Bundle& bundle);
// Derives bounds from the dtypes in the bundle's data files, not from those in its manifest.
// `tolerance` replaces all bounds.
ParityBounds bounds_of(const packer::Bundle& bundle, std::optional<double> tolerance);
// Returns `bounds` for a comparison with the adapter of the bundle before its factors were rounded
// to codes of 8 bits; `bounds` themselves if the bundle runs without an adapter or its factors have
// no codes.
ParityBounds before_factor_codes(const packer::Bundle& bundle, const ParityBounds& bounds);
// Returns the bounds for a comparison of two bundles: those of the bundle that rounds more.
ParityBounds bounds_between(const packer::Bundle& a, const packer::Bundle& b,
                            std::optional<double> tolerance);
// Returns the bounds for a comparison with the bundle's own weights and f32 activations, as
// MethodOptions::widen executes them. Such a comparison shows the effect of rounding and quantising
// activations. If the bundle does neither, these are the bounds of f32.
ParityBounds activation_bounds_of(const packer::Bundle& bundle, std::optional<double> tolerance);
// Returns the bounds of a bundle with f32 activations: only caches, inputs and outputs are rounded.
ParityBounds widened_bounds_of(const packer::Bundle& bundle, std::optional<double> tolerance = {});
// Returns the bounds of a bundle whose matrices are all f32.
ParityBounds f32_bounds(const packer::Bundle& bundle, std::optional<double> tolerance = {});

}  // namespace ferry::proof
