#include "proof/bounds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/encoding.h"
#include "core/program_interface.h"
#include "packer/coding.h"
#include "packer/loose_programs.h"

namespace ferry::proof {
namespace {

// Floors of the first layers. Measured on tiny random models, correct conversions have at least 29
// dB in bf16 and 47 dB in f16. With the delta rule, whose gated norm divides by small numbers, they
// have at least 12 dB and 31 dB. docs/verifying.md has the table.
constexpr double kPlainBF16 = 21, kDeltaBF16 = 5;
// f16 has three more bits of significand than bf16, which are 18 dB.
constexpr double kMoreInF16 = 18;
// Quantised inputs and outputs hold a value as well as the range of their calibration fits the
// value; values beyond the range are cut off. A wrong tensor has 0 dB.
constexpr double kPlainU16 = 30, kPlainU8 = 12;
// Independent rounding errors add up from layer to layer.
constexpr double kFirstLayers = 4;

double first_floor(DType rounding, bool delta_rule) {
  const double plain = rounding == DType::kU8 ? kPlainU8 : kPlainU16;
  if (is_encoded(rounding)) return delta_rule ? std::min(plain, kDeltaBF16) : plain;
  return (delta_rule ? kDeltaBF16 : kPlainBF16) + (rounding == DType::kF16 ? kMoreInF16 : 0);
}

// Returns the lower of both floors for a layer.
std::optional<double> floor_at(std::optional<DType> rounding, std::optional<double> coded,
                               bool delta_rule, int64_t layer) {
  if (!rounding && !coded) return std::nullopt;
  double base = rounding ? first_floor(*rounding, delta_rule) : *coded;
  if (coded) base = std::min(base, *coded);
  const double depth = std::max(1.0, static_cast<double>(layer + 1) / kFirstLayers);
  return base - 10 * std::log10(depth);
}

bool has_recurrent_state(const packer::Manifest& manifest) {
  const auto is_recurrent = [](const packer::ManifestBuffer& buffer) {
    return buffer.name.ends_with(".recurrent_state");
  };
  const auto is_port = [](const packer::ManifestPort& port) {
    return is_layer_port(port.name, kRecurrentStatePort);
  };
  for (const packer::ManifestProgram* program : manifest.programs()) {
    for (const packer::ManifestMethod& method : program->methods) {
      if (std::ranges::any_of(method.buffers, is_recurrent)) return true;
      if (std::ranges::any_of(method.inputs, is_port)) return true;
    }
  }
  return false;
}

// In ascending order of loss.
constexpr std::array kRoundings = {DType::kF16, DType::kU16, DType::kBF16, DType::kU8};

std::optional<DType> coarsest(const std::set<DType>& dtypes) {
  const auto found = std::find_if(kRoundings.rbegin(), kRoundings.rend(),
                                  [&](DType dtype) { return dtypes.contains(dtype); });
  return found == kRoundings.rend() ? std::nullopt : std::optional(*found);
}

// Returns the dtypes to which static programs convert their inputs and outputs. Masks lose nothing,
// because every dtype has 0 and a number that hides a position.
std::set<DType> port_dtypes(const packer::Manifest& manifest) {
  std::set<DType> dtypes;
  if (manifest.program_style != kStaticStyle) return dtypes;
  for (const packer::ManifestProgram* program : manifest.programs()) {
    for (const packer::ManifestMethod& method : program->methods) {
      for (const auto* ports : {&method.inputs, &method.outputs}) {
        for (const packer::ManifestPort& port : *ports) {
          const bool mask = port.name == kAttentionMaskPort || port.name == kWindowMaskPort;
          if (!mask) dtypes.insert(port.dtype);
        }
      }
    }
  }
  return dtypes;
}

// Other tools give caches any name. State of three or more dimensions is caches, or what stands for
// them.
std::set<DType> loose_cache_dtypes(const packer::Bundle& bundle) {
  std::set<DType> dtypes;
  for (const packer::BundleProgram& program : bundle.programs()) {
    for (const pte::Method& method : program.loaded.program.methods) {
      const pte::StateFinder state(method);
      for (const int32_t value : state.values()) {
        const auto& tensor = std::get<pte::Tensor>(method.values[static_cast<size_t>(value)]);
        if (tensor.sizes.size() < 3) continue;
        dtypes.insert(tensor.dtype == DType::kI8 ? DType::kU8 : tensor.dtype);
      }
    }
  }
  return dtypes;
}

// Returns the dtypes of the KV caches of stateful programs. i8 caches have a scale for each row and
// lose less than u8 inputs and outputs of static programs, whose scale is common to all positions.
std::set<DType> cache_dtypes(const packer::Bundle& bundle) {
  if (is_loose(bundle)) return loose_cache_dtypes(bundle);
  std::set<DType> dtypes;
  for (const packer::ManifestProgram* program : bundle.manifest().programs()) {
    for (const packer::ManifestMethod& method : program->methods) {
      for (const packer::ManifestBuffer& buffer : method.buffers) {
        const bool cache =
            buffer.name.ends_with("kv_cache.k_cache") || buffer.name.ends_with("kv_cache.v_cache");
        if (cache) dtypes.insert(buffer.dtype == DType::kI8 ? DType::kU8 : buffer.dtype);
      }
    }
  }
  return dtypes;
}

void add_matrices(const packer::BundleData& data, std::set<DType>& dtypes) {
  for (const ptd::NamedTensor& tensor : data.content.tensors) {
    if (tensor.sizes.size() >= 2 && is_castable(tensor.dtype)) dtypes.insert(tensor.dtype);
  }
}

// Programs of other tools have their weights inside.
void add_constants(const packer::BundleProgram& program, std::set<DType>& dtypes) {
  for (const pte::Method& method : program.loaded.program.methods) {
    for (const pte::Value& value : method.values) {
      const auto* tensor = std::get_if<pte::Tensor>(&value);
      const bool constant =
          tensor != nullptr && !tensor->allocation && (tensor->data_index > 0 || tensor->external);
      if (constant && tensor->sizes.size() >= 2 && is_castable(tensor->dtype)) {
        dtypes.insert(tensor->dtype);
      }
    }
  }
}

// Returns the dtypes in which matrices are stored.
std::set<DType> matrix_dtypes(const packer::Bundle& bundle) {
  std::set<DType> dtypes;
  for (const auto& [name, data] : bundle.data()) add_matrices(data, dtypes);
  if (!is_loose(bundle)) return dtypes;
  for (const packer::BundleProgram& program : bundle.programs()) add_constants(program, dtypes);
  return dtypes;
}
constexpr std::string_view kTowerRoles[] = {kVisionEncoderRole, kAudioEncoderRole,
                                            kSourceEncoderRole};

std::set<DType> vision_dtypes(const packer::Bundle& bundle) {
  std::set<DType> dtypes;
  for (const std::string_view role : kTowerRoles) {
    if (bundle.manifest().find(role) == nullptr) continue;
    for (const size_t program : bundle.programs_of(role)) {
      for (const packer::BundleData* data : bundle.data_of(program)) add_matrices(*data, dtypes);
    }
  }
  return dtypes;
}

bool is_vision(const ReferenceTensor& tensor) {
  return tensor.kind == ReferenceTensor::Kind::kVision;
}

}  // namespace

ParityBounds ParityBounds::with(std::shared_ptr<const NoiseModel> measured_noise) const {
  ParityBounds out = *this;
  if (!given) out.noise = std::move(measured_noise);
  return out;
}

ParityBounds ParityBounds::as_measurement() const {
  ParityBounds out = *this;
  out.measured = !given;
  return out;
}

std::optional<double> ParityBounds::floor_db(const ReferenceTensor& tensor) const {
  if (is_vision(tensor))
    return floor_at(vision_rounding, vision_coded_db, /*delta_rule=*/false, tensor.layer);
  return floor_at(rounding, coded_db, delta_rule, tensor.layer);
}
std::optional<double> ParityBounds::logits_floor_db() const {
  return floor_at(rounding, coded_db, delta_rule, layers);
}

std::optional<double> ParityBounds::limit(const ReferenceTensor& tensor, double scale) const {
  std::optional<double> most = max_abs;
  // If only the decoder rounds, the vision tower is as exact as f32.
  if (is_vision(tensor) && has_floors() && !vision_rounding && !vision_coded_db)
    most = f32_tolerance(/*delta_rule=*/false);
  return most ? std::optional(*most * std::max(scale, 1.0)) : std::nullopt;
}

bool ParityBounds::within(const ReferenceTensor& tensor, const ValueMetrics& metrics) const {
  if (!metrics.finite) return false;
  if (measured) return true;
  if (metrics.noise_ratio) return *metrics.noise_ratio <= kNoiseMultiple;
  const std::optional<double> most = limit(tensor, metrics.scale);
  if (most && *most < metrics.max_abs) return false;
  const std::optional<double> floor = floor_db(tensor);
  return !floor || metrics.sqnr_db >= *floor;
}

bool ParityBounds::logits_within(const ValueMetrics& metrics) const {
  if (!metrics.finite) return false;
  if (measured) return true;
  if (metrics.noise_ratio) return *metrics.noise_ratio <= kNoiseMultiple;
  if (max_abs && metrics.max_abs > *max_abs) return false;
  const std::optional<double> floor = logits_floor_db();
  return !floor || metrics.sqnr_db >= *floor;
}

bool ParityBounds::explains_choice(std::span<const float> got, std::span<const float> want) const {
  if (measured) return true;
  // Errors of at most e can swap two logits whose difference is at most 2 e.
  if (noise) return top_margin(want) <= 2 * kNoiseMultiple * noise->logits_rms();
  if (max_abs) return top_margin(want) <= 2 * *max_abs;
  ValueComparison row;
  row.add(got, want);
  return row.metrics().sqnr_db >= *logits_floor_db() - kOneRowDb;
}

// The tolerance is ten times the error of the reference implementation in f32 against f64.
double f32_tolerance(bool delta_rule) { return delta_rule ? 1e-3 : 1e-4; }

bool has_half_matrices(const packer::Bundle& bundle) {
  const std::set<DType> dtypes = matrix_dtypes(bundle);
  return dtypes.contains(DType::kF16) || dtypes.contains(DType::kBF16);
}

ParityBounds f32_bounds(const packer::Bundle& bundle, std::optional<double> tolerance) {
  ParityBounds bounds;
  bounds.delta_rule = has_recurrent_state(bundle.manifest());
  bounds.layers = bundle.manifest().num_layers;
  bounds.max_abs = tolerance.value_or(f32_tolerance(bounds.delta_rule));
  bounds.given = tolerance.has_value();
  return bounds;
}

namespace {

constexpr std::string_view kTextRoles[] = {kTextDecoderRole, kTextEncoderRole, kTokenEmbeddingRole};

// Returns the bounds of rounding. `coded` gives the floor of quantised weights and activations.
template <class Floor>
ParityBounds bounds_with(const packer::Bundle& bundle, std::optional<double> tolerance,
                         const Floor& coded) {
  ParityBounds bounds = f32_bounds(bundle, tolerance);
  if (tolerance) return bounds;
  std::set<DType> dtypes = port_dtypes(bundle.manifest());
  dtypes.merge(cache_dtypes(bundle));
  bounds.rounded_ports = coarsest(dtypes).has_value();
  dtypes.merge(matrix_dtypes(bundle));
  bounds.rounding = coarsest(dtypes);
  bounds.vision_rounding = coarsest(vision_dtypes(bundle));
  if (const std::optional<packer::Coding> coding = packer::coding_of(bundle, kTextRoles)) {
    bounds.coded_db = coded(*coding, bounds.delta_rule);
    if (bounds.coded_db) bounds.coding = name_of(*coding);
  }
  if (const std::optional<packer::Coding> coding = packer::coding_of(bundle, kTowerRoles)) {
    bounds.vision_coded_db = coded(*coding, /*delta_rule=*/false);
    // The decoder computes with the outputs of the vision tower.
    if (bounds.vision_coded_db &&
        (!bounds.coded_db || *bounds.vision_coded_db < *bounds.coded_db)) {
      bounds.coded_db = bounds.vision_coded_db;
      bounds.coding = name_of(*coding);
    }
  }
  if (bounds.has_floors()) bounds.max_abs.reset();
  return bounds;
}

}  // namespace

ParityBounds widened_bounds_of(const packer::Bundle& bundle, std::optional<double> tolerance) {
  ParityBounds bounds = f32_bounds(bundle, tolerance);
  if (tolerance) return bounds;
  std::set<DType> dtypes = port_dtypes(bundle.manifest());
  dtypes.merge(cache_dtypes(bundle));
  bounds.rounding = coarsest(dtypes);
  bounds.rounded_ports = bounds.rounding.has_value();
  if (bounds.rounding) bounds.max_abs.reset();
  return bounds;
}

ParityBounds bounds_of(const packer::Bundle& bundle, std::optional<double> tolerance) {
  return bounds_with(bundle, tolerance, [](const packer::Coding& coding, bool delta_rule) {
    return std::optional(packer::coded_floor_db(coding, delta_rule));
  });
}

ParityBounds before_factor_codes(const packer::Bundle& bundle, const ParityBounds& bounds) {
  const packer::ManifestAdapter* adapter = bundle.manifest().find_adapter(bundle.adapter());
  if (adapter == nullptr || bounds.given) return bounds;
  const std::vector<ptd::NamedTensor>& factors = bundle.data().at(adapter->file).content.tensors;
  if (std::ranges::count(factors, DType::kI8, &ptd::NamedTensor::dtype) == 0) return bounds;
  const double floor = packer::coded_floor_db({.bits = 8}, bounds.delta_rule);
  ParityBounds out = bounds;
  out.noise.reset();
  out.max_abs.reset();
  out.coded_db = std::min(bounds.coded_db.value_or(floor), floor);
  if (out.coding.empty()) out.coding = "int8 factors";
  return out;
}

ParityBounds activation_bounds_of(const packer::Bundle& bundle, std::optional<double> tolerance) {
  return bounds_with(bundle, tolerance, packer::activation_floor_db);
}

ParityBounds bounds_between(const packer::Bundle& a, const packer::Bundle& b,
                            std::optional<double> tolerance) {
  const ParityBounds first = bounds_of(a, tolerance), second = bounds_of(b, tolerance);
  std::set<DType> roundings;
  for (const ParityBounds& bounds : {first, second}) {
    if (bounds.rounding) roundings.insert(*bounds.rounding);
  }
  const std::optional<DType> rounding = coarsest(roundings);
  // If both bundles round alike, the bundle that is quantised to a lower floor decides.
  const bool second_is_coarser =
      second.rounding == rounding &&
      (first.rounding != rounding ||
       (second.coded_db && (!first.coded_db || *second.coded_db < *first.coded_db)));
  ParityBounds out = second_is_coarser ? second : first;
  const ParityBounds& other = second_is_coarser ? first : second;
  out.rounded_ports = first.rounded_ports || second.rounded_ports;
  if (other.coded_db && !out.coded_db) {
    out.coded_db = other.coded_db;
    out.vision_coded_db = other.vision_coded_db;
    out.coding = other.coding;
  }
  if (other.rounding == rounding && other.coded_db == out.coded_db && other.max_abs) {
    out.max_abs = std::min(out.max_abs.value_or(*other.max_abs), *other.max_abs);
  }
  return out;
}

}  // namespace ferry::proof
