#include "proof/weight_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "calibration/code_search.h"
#include "calibration/smoothing.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "graph/graph.h"
#include "kernels/common_target.h"
#include "proof/calibration.h"
#include "proof/checkpoint_execution.h"
#include "proof/linear_inputs.h"
#include "proof/part_moments.h"
#include "proof/stored_weights.h"
#include "proof/weight_costs.h"

namespace ferry::proof {
namespace {

void multiply_columns(const std::vector<float>& factors, std::span<float> values) {
  for (size_t at = 0; at < values.size(); at += factors.size()) {
    for (size_t c = 0; c < factors.size(); ++c) values[at + c] *= factors[c];
  }
}

// The means of activations of text are those of one sequence in so many.
constexpr size_t kSequencesOfMeans = 8;

class Calibrator {
 public:
  Calibrator(const plan::Conversion& layers, const plan::Conversion& target,
             const Sequences& sequences, ThreadPool& pool, const Progress& progress)
      : layers_(layers),
        planned_(weights_of(target)),
        calibrated_(codes_of_their_own(planned_)),
        rounding_(rounding_weights(target)),
        sequences_(sequences),
        pool_(pool),
        passed_(sequences.size()),
        progress_(progress, calibrated_bytes()) {}

  // Also compares the codes with the nearest ones, on `held_out`.
  Result<std::shared_ptr<const graph::CalibratedWeights>> run_compared(const Sequences& held_out) {
    comparison_.emplace(held_out, pool_, name());
    auto chosen = FERRY_TRY(run());
    graph::CalibratedWeights compared = *chosen;
    if (comparison_->nearest() < comparison_->chosen()) compared = {};
    compared.nearest_divergence = comparison_->nearest();
    compared.divergence = comparison_->chosen();
    compared.compared_tokens = comparison_->tokens();
    return std::make_shared<const graph::CalibratedWeights>(std::move(compared));
  }

  Result<std::shared_ptr<const graph::CalibratedWeights>> run() {
    for (const plan::ConvertedComponent& component : layers_.components) {
      if (!is_executed(component)) continue;
      role_ = component.role;
      readers_ = readers_of_weights(component);
      for (size_t i = 0; i < component.parts.size(); ++i) {
        const bool last =
            &component == &layers_.components.back() && i + 1 == component.parts.size();
        FERRY_RETURN_IF_ERROR(calibrate_part(component.parts[i], last));
        progress_.advance(bytes_of(component.parts[i]));
      }
    }
    return std::make_shared<const graph::CalibratedWeights>(std::move(chosen_));
  }

  Result<MeasuredCosts> costs(std::vector<graph::LinearQuantization> alternatives) {
    alternatives_ = std::move(alternatives);
    meter_.emplace(sequences_, pool_, name());
    auto chosen = FERRY_TRY(run());
    std::map<std::string, double> divergences(meter_->divergences().begin(),
                                              meter_->divergences().end());
    for (MatrixCost& cost : costs_) cost.divergence = divergences.at(cost.weight);
    return MeasuredCosts{std::move(costs_), std::move(smoothed_), std::move(chosen)};
  }

 private:
  static uint64_t bytes_of(const graph::Model& part) {
    uint64_t bytes = 0;
    for (const graph::Weight& weight : part.weights.weights()) {
      bytes += weight.recipe.output().bytes();
    }
    return bytes;
  }
  // A vision encoder is not calibrated without images, an encoder of sounds never.
  bool is_executed(const plan::ConvertedComponent& component) const {
    const RowEncoder* rows = packer::row_encoder(layers_.plan->manifest(), component.role);
    if (rows != nullptr && rows->role == kAudioEncoderRole) return false;
    return component.role != kVisionEncoderRole || !sequences_.images.empty();
  }
  uint64_t calibrated_bytes() const {
    uint64_t bytes = 0;
    for (const plan::ConvertedComponent& component : layers_.components) {
      if (!is_executed(component)) continue;
      for (const graph::Model& part : component.parts) bytes += bytes_of(part);
    }
    return bytes;
  }

  Status calibrate_part(const graph::Model& given, bool last) {
    graph::Model part = given;
    const std::vector<LinearInput> inputs = observed_inputs(part, calibrated_, rounding_, readers_);
    ExpertInputs experts =
        FERRY_TRY(ExpertInputs::add_to(part, source(), [this](const std::string& weight) {
          return calibrated_.contains(weight);
        }));
    if (!inputs.empty() || !experts.nodes().empty()) {
      PartMoments moments = FERRY_TRY(measure(part, inputs, experts));
      for (size_t i = 0; i < inputs.size(); ++i) {
        FERRY_RETURN_IF_ERROR(choose(part, inputs[i], moments.inputs[i]));
      }
      for (size_t i = 0; i < experts.nodes().size(); ++i) {
        FERRY_RETURN_IF_ERROR(choose(experts.nodes()[i], moments.experts[i]));
      }
    }
    if (meter_) {
      std::vector<std::string> weights;
      for (const LinearInput& input : inputs) {
        std::ranges::copy(input.weights, std::back_inserter(weights));
      }
      for (const ExpertMatrices& node : experts.nodes()) {
        weights.insert(weights.end(), {node.w1, node.w3, node.w2});
      }
      std::erase_if(weights, [&](const std::string& weight) {
        return !chosen_.codes.contains(weight) || !is_metered(weight);
      });
      FERRY_RETURN_IF_ERROR(meter_->advance(given, role_, weights, weights_from(source()),
                                            unsmoothed_weights(), last));
    }
    if (comparison_) {
      const CodeComparison::Weights weights = {weights_from(source()), nearest_weights(),
                                               stored_weights()};
      FERRY_RETURN_IF_ERROR(comparison_->advance(part, role_, inputs, weights, last));
    }
    return last ? Status() : advance(part, inputs);
  }

  // Measures the inputs as the bundle's program will have them: smoothed, and rounded.
  Result<PartMoments> measure(const graph::Model& part, const std::vector<LinearInput>& inputs,
                              ExpertInputs& experts) {
    FERRY_RETURN_IF_ERROR(check_memory_of_moments(inputs, experts.nodes()));
    const auto loaded = FERRY_TRY(LoadedPart::load(part, weights_from(source()), pool_, name()));
    FERRY_RETURN_IF_ERROR(choose_factors(*loaded, inputs));
    const auto prepare = [&](size_t i, std::vector<float>& values) {
      if (const auto factors = factors_of(inputs[i])) multiply_columns(*factors, values);
      if (inputs[i].rounded) round_rows(values, inputs[i].columns);
    };
    return measure_moments(*loaded, role_, inputs, experts, sequences_, passed_, prepare, pool_);
  }

  // Chooses the factors of the activations that can be smoothed.
  Status choose_factors(LoadedPart& loaded, const std::vector<LinearInput>& inputs) {
    std::vector<calibration::ChannelMeans> means;
    for (const LinearInput& input : inputs) means.emplace_back(input.columns);
    if (std::ranges::none_of(inputs, &LinearInput::can_be_smoothed)) return {};
    FERRY_RETURN_IF_ERROR(
        observe_inputs(loaded, [&](size_t i, int32_t, std::vector<float>& values) {
          if (inputs[i].can_be_smoothed()) means[i].add(values);
        }));
    // Few of the sequences may have images.
    const size_t step = role_ == kVisionEncoderRole ? 1 : kSequencesOfMeans;
    for (size_t i = 0; i < sequences_.size(); i += step) {
      PassedTensors passed = passed_[i];
      FERRY_RETURN_IF_ERROR(sequences_.run(loaded, role_, i, passed));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const LinearInput& input = inputs[i];
      const bool is_f32 = std::ranges::all_of(input.norm, [&](const std::string& name) {
        const auto found = planned_.find(name);
        return found != planned_.end() && found->second->recipe.output().dtype == DType::kF32;
      });
      if (!input.can_be_smoothed() || !is_f32) continue;
      const calibration::SmoothingFactors factors = means[i].factors();
      for (const std::string& name : input.norm) smooth(name, factors.inputs);
      if (!input.product.empty()) smooth_rows(input.product, factors.inputs);
      for (const std::string& name : input.weights) smooth(name, factors.weights);
      if (meter_) smoothed_.push_back(input);
    }
    return {};
  }
  void smooth_rows(const std::string& weight, const std::vector<float>& factors) {
    auto shared = std::make_shared<const std::vector<float>>(factors);
    made_of(weight).smooth_rows(shared);
    chosen_.rows[weight] = std::move(shared);
  }
  void smooth(const std::string& weight, const std::vector<float>& factors) {
    auto shared = std::make_shared<const std::vector<float>>(factors);
    made_of(weight).smooth(shared);
    chosen_.factors[weight] = std::move(shared);
  }
  // Returns the recipe of a weight for which something is chosen.
  graph::Recipe& made_of(const std::string& weight) {
    return made_.try_emplace(weight, planned_.at(weight)->recipe).first->second;
  }
  // Returns the factors of an activation's columns; nullptr if it has none.
  const std::vector<float>* factors_of(const LinearInput& input) const {
    const auto& factors = input.norm.empty() ? chosen_.rows : chosen_.factors;
    const auto found = factors.find(input.norm.empty() ? input.product : input.norm.front());
    return found == factors.end() ? nullptr : found->second.get();
  }

  // Executes the part with the bundle's weights and activations.
  Status advance(const graph::Model& part, const std::vector<LinearInput>& inputs) {
    const auto loaded = FERRY_TRY(LoadedPart::load(part, stored_weights(), pool_, name()));
    return run_rounded(*loaded, role_, inputs, sequences_, passed_);
  }

  // Returns the factor of an input of the weight.
  Result<calibration::Factor> factor_of(calibration::Moments& moments, const std::string& weight) {
    std::vector<float> matrix = moments.matrix(pool_);
    if (std::ranges::all_of(matrix, [](float v) { return std::isfinite(v); })) {
      return calibration::factor_of(std::move(matrix), moments.columns(), pool_);
    }
    return bad_input(fmt::format("{}: calibration gives values that are not finite (inputs of {})",
                                 printable(name()), quoted(weight)));
  }

  // Chooses the codes of the weights that read one input.
  Status choose(const graph::Model& part, const LinearInput& input, calibration::Moments& moments) {
    const calibration::Factor factor = FERRY_TRY(factor_of(moments, input.weights.front()));
    for (const std::string& weight : input.weights) {
      graph::Recipe values_recipe = part.weights.find(weight)->recipe;
      const auto factors = chosen_.factors.find(weight);
      if (factors != chosen_.factors.end()) values_recipe.smooth(factors->second);
      const auto by_rows = chosen_.rows.find(weight);
      if (by_rows != chosen_.rows.end()) values_recipe.smooth_rows(by_rows->second);
      std::vector<float> values(values_recipe.output().bytes() / sizeof(float));
      FERRY_RETURN_IF_ERROR(graph::materialize(values_recipe, source(), 0,
                                               std::as_writable_bytes(std::span(values))));
      ChosenMatrix chosen(weight);
      choose_rows(values, factor, chosen);
      keep(std::move(chosen));
    }
    return {};
  }

  // Chooses the codes of experts, each for the tokens that it gets.
  Status choose(const ExpertMatrices& node, ExpertMoments& moments) {
    ChosenMatrix w1(node.w1, true), w3(node.w3, true), w2(node.w2, true);
    const auto size = static_cast<size_t>(node.inner * node.hidden);
    for (size_t e = 0; e < moments.x.size(); ++e) {
      const calibration::Factor of_x = FERRY_TRY(factor_of(moments.x[e], node.w1));
      choose_rows(std::span(node.gates).subspan(e * size, size), of_x, w1);
      if (!node.ups.empty()) choose_rows(std::span(node.ups).subspan(e * size, size), of_x, w3);
      const calibration::Factor of_inner = FERRY_TRY(factor_of(moments.inner[e], node.w2));
      choose_rows(std::span(node.downs).subspan(e * size, size), of_inner, w2);
    }
    for (ChosenMatrix* matrix : {&w1, &w3, &w2}) {
      if (!matrix->cost.weight.empty()) keep(std::move(*matrix));
    }
    return {};
  }

  // The codes of a weight, whose rows may have several factors.
  struct ChosenMatrix {
    explicit ChosenMatrix(std::string weight, bool is_of_experts = false)
        : cost{.weight = std::move(weight), .is_of_experts = is_of_experts} {}
    graph::ChosenCodes rows = {};
    double nearest_error = 0;
    MatrixCost cost;  // for costs() only; errors are not relative yet
    bool is_finite = true;
  };
  void choose_rows(std::span<const float> values, const calibration::Factor& factor,
                   ChosenMatrix& chosen) {
    const std::string& weight = chosen.cost.weight;
    if (!calibrated_.contains(weight)) return;
    // The conversion refuses such a weight by its name.
    chosen.is_finite &= std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
    if (!chosen.is_finite) return;
    const graph::QuantizationScheme& scheme = planned_.at(weight)->recipe.steps.back().scheme;
    const calibration::ChosenRows rows = calibration::choose_codes(scheme, values, factor, pool_);
    chosen.rows.codes.insert(chosen.rows.codes.end(), rows.codes.begin(), rows.codes.end());
    chosen.rows.scales.insert(chosen.rows.scales.end(), rows.scales.begin(), rows.scales.end());
    chosen.nearest_error += rows.nearest_error;
    if (meter_ && is_metered(weight)) add_alternatives(values, factor, chosen.cost);
  }
  // Adds the errors of rows with other schemes.
  void add_alternatives(std::span<const float> values, const calibration::Factor& factor,
                        MatrixCost& cost) {
    if (cost.alternatives.empty()) {
      for (const graph::LinearQuantization& other : alternatives_) {
        const int64_t group = cost.form_of(other).group;
        const auto columns = static_cast<int64_t>(factor.order.size());
        if (group == 0 || columns % group == 0) cost.alternatives.emplace_back(other, 0);
      }
    }
    for (auto& [other, error] : cost.alternatives) {
      error += calibration::nearest_error(cost.form_of(other), values, factor, pool_);
    }
  }
  void keep(ChosenMatrix&& chosen) {
    if (!chosen.is_finite || chosen.rows.codes.empty()) return;
    const std::string& weight = chosen.cost.weight;
    auto codes = std::make_shared<const graph::ChosenCodes>(std::move(chosen.rows));
    graph::Step& step = made_of(weight).steps.back();
    step.scheme.method = graph::ScaleMethod::kCalibrated;
    step.chosen = codes;
    chosen_.codes[weight] = std::move(codes);
    if (!meter_ || !is_metered(weight)) return;
    for (auto& [other, error] : chosen.cost.alternatives) {
      error = chosen.nearest_error > 0 ? error / chosen.nearest_error : 1;
    }
    costs_.push_back(std::move(chosen.cost));
  }

  // A matrix that several nodes read is in several parts, and each part would measure its codes
  // alone.
  bool is_metered(const std::string& weight) const { return readers_.at(weight) == 1; }

  // Reads weights in f32 as the bundle stores them.
  ReadWeight stored_weights() const { return weights_of_bundle(/*chosen=*/true); }
  // Reads weights in f32 as a bundle without a calibration stores them.
  ReadWeight nearest_weights() const { return weights_of_bundle(/*chosen=*/false); }
  ReadWeight weights_of_bundle(bool chosen) const {
    return [this, chosen](const graph::Weight& weight, uint64_t offset,
                          std::span<std::byte> out) -> Status {
      const auto found = planned_.find(weight.name);
      if (found == planned_.end()) return graph::materialize(weight.recipe, source(), offset, out);
      const auto made = chosen ? made_.find(weight.name) : made_.end();
      const graph::Recipe& recipe = made != made_.end() ? made->second : found->second->recipe;
      if (recipe.is_coded()) return decode(recipe, offset, out);
      const auto size = static_cast<uint64_t>(dtype_bytes(recipe.output().dtype));
      std::vector<std::byte> stored(out.size() / sizeof(float) * size);
      FERRY_RETURN_IF_ERROR(
          graph::materialize(recipe, source(), offset / sizeof(float) * size, stored));
      to_f32(recipe.output().dtype, stored.data(), reinterpret_cast<float*>(out.data()),
             out.size() / sizeof(float));
      return {};
    };
  }

  // Reads weights like stored_weights(), with the factors taken out of them.
  ReadWeight unsmoothed_weights() const {
    return [this, stored = stored_weights()](const graph::Weight& weight, uint64_t offset,
                                             std::span<std::byte> out) -> Status {
      FERRY_RETURN_IF_ERROR(stored(weight, offset, out));
      const size_t first = offset / sizeof(float), count = out.size() / sizeof(float);
      auto* values = reinterpret_cast<float*>(out.data());
      if (const auto by = chosen_.factors.find(weight.name); by != chosen_.factors.end()) {
        const std::vector<float>& factors = *by->second;
        for (size_t i = 0; i < count; ++i) values[i] /= factors[(first + i) % factors.size()];
      }
      if (const auto by = chosen_.rows.find(weight.name); by != chosen_.rows.end()) {
        const auto columns = static_cast<size_t>(weight.recipe.output().shape.back());
        for (size_t i = 0; i < count; ++i) values[i] /= (*by->second)[(first + i) / columns];
      }
      return {};
    };
  }

  Status decode(const graph::Recipe& recipe, uint64_t offset, std::span<std::byte> out) const {
    const graph::QuantizationScheme scheme = coding_of(recipe);
    const int64_t columns = recipe.outputs[0].shape.back();
    const auto first = static_cast<int64_t>(offset / sizeof(float));
    const auto end = first + static_cast<int64_t>(out.size() / sizeof(float));
    const int64_t begin_row = first / columns, rows = (end + columns - 1) / columns - begin_row;
    std::vector<std::byte> codes(static_cast<uint64_t>(rows) * row_bytes(recipe, 0));
    std::vector<std::byte> scales(static_cast<uint64_t>(rows) * row_bytes(recipe, 1));
    const std::span<std::byte> outs[] = {codes, scales};
    FERRY_RETURN_IF_ERROR(graph::materialize_rows(recipe, source(), begin_row, rows, outs));
    std::vector<float> values(static_cast<size_t>(rows * columns));
    graph::dequantize_rows(scheme, codes, scales, columns, values);
    std::memcpy(out.data(), values.data() + (first - begin_row * columns), out.size());
    return {};
  }

  const TensorSource& source() const { return *layers_.mapped.source; }
  const std::string& name() const { return source().path(); }

  const plan::Conversion& layers_;
  std::map<std::string, const graph::Weight*> planned_;  // the weights of the bundle
  const std::set<std::string> calibrated_, rounding_;    // names of weights
  std::map<std::string, int> readers_;                   // of the component's weights
  const Sequences& sequences_;
  std::string_view role_;  // of the component that is calibrated now
  ThreadPool& pool_;
  std::vector<PassedTensors> passed_;  // for each sequence
  SharedProgress progress_;
  graph::CalibratedWeights chosen_;
  std::map<std::string, graph::Recipe> made_;  // of weights for which something is chosen
  std::optional<CodeComparison> comparison_;   // for run_compared() only
  // For costs() only.
  std::optional<DivergenceMeter> meter_;
  std::vector<LinearInput> smoothed_;
  std::vector<graph::LinearQuantization> alternatives_;
  std::vector<MatrixCost> costs_;
};

struct Plans {
  plan::Conversion target, layers;
};
Result<Plans> plans_of(const plan::ConvertOptions& options, const Sequences& sequences,
                       ThreadPool& pool) {
  if (!options.quantize.quantizes()) {
    return fail_field(ErrorCode::kUsage, "calibrate-weights", ": no weights are quantised");
  }
  if (options.single_head_attention) {
    return fail_field(ErrorCode::kUsage, "calibrate-weights",
                      ": single-head attention splits matrices, which are calibrated whole");
  }
  plan::ConvertOptions without = options;
  without.reference.clear();
  without.adapters.clear();
  without.quantize.calibrated = nullptr;
  plan::Conversion target = FERRY_TRY(plan::plan_conversion(without, &pool));
  plan::Conversion layers =
      FERRY_TRY(plan_calibration(options, sequences.tokens, target.mapped.config.is_encoder));
  return Plans{std::move(target), std::move(layers)};
}

// Of many sequences, one in so many is not calibrated with.
constexpr size_t kHoldOut = 16;

struct SplitSequences {
  Sequences calibrating, held_out;
};
// Fewer sequences calibrate all, and are compared with too.
SplitSequences split_sequences(const Sequences& sequences) {
  if (sequences.size() < kHoldOut) return {sequences, sequences};
  SplitSequences split;
  for (size_t i = 0; i < sequences.size(); ++i) {
    (i % kHoldOut == kHoldOut - 1 ? split.held_out : split.calibrating).add(sequences, i);
  }
  return split;
}

}  // namespace

Result<std::shared_ptr<const graph::CalibratedWeights>> calibrate_weights(
    const plan::ConvertOptions& options, const Sequences& sequences, ThreadPool& pool,
    const Progress& progress) {
  const kernels::CommonTarget target_of_kernels;
  const Plans plans = FERRY_TRY(plans_of(options, sequences, pool));
  if (plans.target.mapped.config.is_encoder) {
    return Calibrator(plans.layers, plans.target, sequences, pool, progress).run();
  }
  const SplitSequences split = split_sequences(sequences);
  return Calibrator(plans.layers, plans.target, split.calibrating, pool, progress)
      .run_compared(split.held_out);
}

std::string line_of(const graph::CalibratedWeights& compared) {
  const bool is_kept = compared.nearest_divergence < compared.divergence;
  return fmt::format(
      "mean KL divergence on {} tokens: {:.4f} with calibrated codes, {:.4f} with the nearest "
      "ones{}",
      compared.compared_tokens, compared.divergence, compared.nearest_divergence,
      is_kept ? "; the bundle has the nearest ones" : "");
}

Result<MeasuredCosts> measure_costs(const plan::ConvertOptions& options, const Sequences& sequences,
                                    std::vector<graph::LinearQuantization> alternatives,
                                    ThreadPool& pool, const Progress& progress) {
  const kernels::CommonTarget target_of_kernels;
  const Plans plans = FERRY_TRY(plans_of(options, sequences, pool));
  if (plans.target.mapped.config.is_encoder) {
    return fail_field(ErrorCode::kUsage, "quantize-budget", ": an encoder has no predictions");
  }
  return Calibrator(plans.layers, plans.target, sequences, pool, progress)
      .costs(std::move(alternatives));
}

}  // namespace ferry::proof
