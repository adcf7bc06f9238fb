#include "proof/weight_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "calibration/code_search.h"
#include "calibration/moments.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "graph/graph.h"
#include "kernels/common_target.h"
#include "kernels/quantized_linear.h"
#include "proof/calibration.h"
#include "proof/checkpoint_execution.h"
#include "proof/stored_weights.h"
#include "runner/memory.h"

namespace ferry::proof {
namespace {

using WeightNames = std::vector<std::string>;

// Names of probes that this file adds begin with this.
constexpr std::string_view kInputProbe = "calibration_input.";

// The inputs of linear nodes of one part: which weights each value is multiplied with.
class LinearInputs {
 public:
  // Adds a probe for every activation that a weight for which `wanted` returns true reads.
  template <class Wanted>
  LinearInputs(graph::Model& part, const Wanted& wanted) {
    for (graph::MethodGraph& method : part.methods) {
      if (method.name != kForwardMethod) continue;
      std::map<graph::ValueId, WeightNames> by_input;
      std::set<graph::ValueId> made;
      for (const graph::Node& node : method.graph.nodes) {
        made.insert(node.outs.begin(), node.outs.end());
        if (node.op != graph::Op::kLinear) continue;
        const auto x = std::get<graph::ValueId>(node.args[pte::ops::Linear::kInput]);
        const auto w = std::get<graph::ValueId>(node.args[pte::ops::Linear::kWeight]);
        const graph::Value& weight = method.graph[w];
        if (!made.contains(x) || !wanted(weight.name)) continue;
        by_input[x].push_back(weight.name);
      }
      for (auto& [value, weights] : by_input) {
        method.graph.probes.push_back({fmt::format("{}{}", kInputProbe, weights_.size()), value});
        weights_.push_back(std::move(weights));
      }
    }
  }

  // [i] holds the names of the weights that read the i-th input.
  const std::vector<WeightNames>& weights() const { return weights_; }
  static std::optional<size_t> index_of(std::string_view probe) {
    if (!probe.starts_with(kInputProbe)) return std::nullopt;
    return static_cast<size_t>(std::stoul(std::string(probe.substr(kInputProbe.size()))));
  }

 private:
  std::vector<WeightNames> weights_;
};

// Rounds rows to 8 bits, as programs round activations.
void round_rows(std::span<float> values, int64_t columns) {
  std::vector<int8_t> codes(static_cast<size_t>(columns));
  for (size_t at = 0; at < values.size(); at += codes.size()) {
    const std::span<float> row = values.subspan(at, codes.size());
    const kernels::QuantizedRow rounded = kernels::quantize_row(row, codes);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(codes[i] - rounded.zero_point) * rounded.inverse_scale;
    }
  }
}

class Calibrator {
 public:
  Calibrator(const plan::Conversion& layers, const plan::Conversion& target, const Prompts& prompts,
             ThreadPool& pool, const Progress& progress)
      : layers_(layers),
        planned_(weights_of(target)),
        prompts_(prompts),
        pool_(pool),
        passed_(prompts.size()),
        progress_(progress, layer_bytes(layers)) {}

  Result<std::shared_ptr<const graph::CalibratedWeights>> run() {
    for (const plan::ConvertedComponent& component : layers_.components) {
      if (component.role == kVisionEncoderRole) continue;
      for (size_t i = 0; i < component.parts.size(); ++i) {
        const bool last =
            &component == &layers_.components.back() && i + 1 == component.parts.size();
        FERRY_RETURN_IF_ERROR(calibrate_part(component.parts[i], last));
        progress_.advance(bytes_of(component.parts[i]));
      }
    }
    return std::make_shared<const graph::CalibratedWeights>(std::move(chosen_));
  }

 private:
  static uint64_t bytes_of(const graph::Model& part) {
    uint64_t bytes = 0;
    for (const graph::Weight& weight : part.weights.weights()) {
      bytes += weight.recipe.output().bytes();
    }
    return bytes;
  }
  static uint64_t layer_bytes(const plan::Conversion& layers) {
    uint64_t bytes = 0;
    for (const plan::ConvertedComponent& component : layers.components) {
      if (component.role == kVisionEncoderRole) continue;
      for (const graph::Model& part : component.parts) bytes += bytes_of(part);
    }
    return bytes;
  }

  // Returns the recipe with which the bundle stores a weight; nullptr unless it makes codes of
  // values, for this weight alone. A matrix that the embedding shares keeps the nearest codes.
  const graph::Recipe* coded(const std::string& name) const {
    const auto found = planned_.find(name);
    if (found == planned_.end()) return nullptr;
    const graph::Recipe& recipe = found->second->recipe;
    if (!recipe.is_coded() || recipe.steps.back().kind != graph::Step::Kind::kQuantize) {
      return nullptr;
    }
    const bool shared = std::ranges::any_of(planned_, [&](const auto& other) {
      return other.first != name && other.second->recipe == recipe;
    });
    return shared ? nullptr : &recipe;
  }

  Status calibrate_part(const graph::Model& given, bool last) {
    graph::Model part = given;
    const LinearInputs inputs(part,
                              [&](const std::string& name) { return coded(name) != nullptr; });
    if (!inputs.weights().empty()) {
      std::vector<calibration::Moments> moments = FERRY_TRY(measure(part, inputs));
      for (size_t i = 0; i < moments.size(); ++i) {
        const calibration::Factor factor =
            calibration::factor_of(moments[i].matrix(pool_), moments[i].columns(), pool_);
        for (const std::string& name : inputs.weights()[i]) {
          FERRY_RETURN_IF_ERROR(choose(name, *part.weights.find(name), factor));
        }
      }
    }
    return last ? Status() : advance(part);
  }

  // Second moments have the square of a row's elements.
  static Status check_memory(const graph::Model& part, const LinearInputs& inputs) {
    constexpr double kCopies = 3;  // that the factor of one input takes
    double bytes = 0, largest = 0;
    for (const WeightNames& weights : inputs.weights()) {
      const auto columns =
          static_cast<double>(part.weights.find(weights.front())->recipe.output().shape.back());
      const double square = columns * columns * sizeof(float);
      bytes += square;
      largest = std::max(largest, square);
    }
    bytes += kCopies * largest;
    const auto available = static_cast<double>(runner::available_bytes());
    if (bytes <= available) return {};
    return fail_field(
        ErrorCode::kIo, "calibrate-weights",
        fmt::format(": the inputs of one layer take {} of memory, and {} are available",
                    human_bytes(static_cast<uint64_t>(std::min(bytes, 1e18))),
                    human_bytes(static_cast<uint64_t>(available))));
  }

  // Executes the part with the checkpoint's weights, and adds up the moments of the inputs.
  Result<std::vector<calibration::Moments>> measure(const graph::Model& part,
                                                    const LinearInputs& inputs) {
    FERRY_RETURN_IF_ERROR(check_memory(part, inputs));
    const auto loaded = FERRY_TRY(LoadedPart::load(part, weights_from(source()), pool_, name()));
    std::vector<calibration::Moments> moments;
    for (const WeightNames& weights : inputs.weights()) {
      moments.emplace_back(part.weights.find(weights.front())->recipe.output().shape.back());
    }
    FERRY_RETURN_IF_ERROR(observe(*loaded, [&](size_t i, std::vector<float>& values) {
      round_rows(values, moments[i].columns());
      moments[i].add(values, pool_);
      return false;
    }));
    for (size_t p = 0; p < prompts_.size(); ++p) {
      PassedTensors passed = passed_[p];
      loaded->method().reset();
      FERRY_RETURN_IF_ERROR(loaded->run(prompts_[p], 0, passed));
    }
    return moments;
  }

  // Executes the part with the bundle's weights and activations.
  Status advance(const graph::Model& given) {
    graph::Model part = given;
    const auto loaded = FERRY_TRY(LoadedPart::load(part, stored_weights(), pool_, name()));
    FERRY_RETURN_IF_ERROR(observe(*loaded, [&](size_t, std::vector<float>& values) {
      round_rows(values, columns_);
      return true;
    }));
    for (size_t p = 0; p < prompts_.size(); ++p) {
      loaded->method().reset();
      FERRY_RETURN_IF_ERROR(loaded->run(prompts_[p], 0, passed_[p]));
    }
    return replaced_;
  }

  // Calls use(index, values) for every input. If it returns true, the values replace the input.
  template <class Use>
  Status observe(LoadedPart& part, const Use& use) {
    for (const graph::LoweredProbe& probe : part.lowered().probes) {
      const std::optional<size_t> index = LinearInputs::index_of(probe.name);
      if (!index) continue;
      FERRY_RETURN_IF_ERROR(part.method().observe(
          probe.value, [this, &part, &probe, use, index](const runner::TensorView& view) {
            std::vector<float> values = runner::probe_floats(view);
            columns_ = view.shape.back();
            if (!use(*index, values)) return;
            const Status written =
                part.method().overwrite(probe.value, std::as_bytes(std::span(values)));
            if (!written && replaced_) replaced_ = written;
          }));
    }
    return {};
  }

  Status choose(const std::string& name, const graph::Weight& weight,
                const calibration::Factor& factor) {
    const graph::Recipe& recipe = *coded(name);
    std::vector<float> values(weight.recipe.output().bytes() / sizeof(float));
    FERRY_RETURN_IF_ERROR(
        graph::materialize(weight.recipe, source(), 0, std::as_writable_bytes(std::span(values))));
    if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) return {};
    calibration::ChosenRows rows =
        calibration::choose_codes(recipe.steps.back().scheme, values, factor, pool_);
    chosen_.codes[name] = std::make_shared<const graph::ChosenCodes>(
        graph::ChosenCodes{std::move(rows.codes), std::move(rows.scales)});
    return {};
  }

  // Reads weights in f32 as the bundle stores them.
  ReadWeight stored_weights() const {
    return
        [this](const graph::Weight& weight, uint64_t offset, std::span<std::byte> out) -> Status {
          const auto found = planned_.find(weight.name);
          if (found == planned_.end())
            return graph::materialize(weight.recipe, source(), offset, out);
          const graph::Recipe& recipe = found->second->recipe;
          if (recipe.is_coded()) return decode(weight.name, recipe, offset, out);
          const auto size = static_cast<uint64_t>(dtype_bytes(recipe.output().dtype));
          std::vector<std::byte> stored(out.size() / sizeof(float) * size);
          FERRY_RETURN_IF_ERROR(
              graph::materialize(recipe, source(), offset / sizeof(float) * size, stored));
          to_f32(recipe.output().dtype, stored.data(), reinterpret_cast<float*>(out.data()),
                 out.size() / sizeof(float));
          return {};
        };
  }

  Status decode(const std::string& name, const graph::Recipe& recipe, uint64_t offset,
                std::span<std::byte> out) const {
    const graph::QuantizationScheme scheme = coding_of(recipe);
    const int64_t columns = recipe.outputs[0].shape.back();
    const auto first = static_cast<int64_t>(offset / sizeof(float));
    const auto end = first + static_cast<int64_t>(out.size() / sizeof(float));
    const int64_t begin_row = first / columns, rows = (end + columns - 1) / columns - begin_row;
    graph::Recipe made = recipe;
    if (const auto own = chosen_.codes.find(name); own != chosen_.codes.end()) {
      made.steps.back().scheme.method = graph::ScaleMethod::kCalibrated;
      made.steps.back().chosen = own->second;
    }
    std::vector<std::byte> codes(static_cast<uint64_t>(rows) * row_bytes(made, 0));
    std::vector<std::byte> scales(static_cast<uint64_t>(rows) * row_bytes(made, 1));
    const std::span<std::byte> outs[] = {codes, scales};
    FERRY_RETURN_IF_ERROR(graph::materialize_rows(made, source(), begin_row, rows, outs));
    std::vector<float> values(static_cast<size_t>(rows * columns));
    graph::dequantize_rows(scheme, codes, scales, columns, values);
    std::memcpy(out.data(), values.data() + (first - begin_row * columns), out.size());
    return {};
  }

  const TensorSource& source() const { return *layers_.mapped.source; }
  const std::string& name() const { return source().path(); }

  const plan::Conversion& layers_;
  std::map<std::string, const graph::Weight*> planned_;  // the weights of the bundle
  const Prompts& prompts_;
  ThreadPool& pool_;
  std::vector<PassedTensors> passed_;  // for each prompt
  SharedProgress progress_;
  graph::CalibratedWeights chosen_;
  int64_t columns_ = 0;
  Status replaced_;  // the first error of an observer
};

}  // namespace

Result<std::shared_ptr<const graph::CalibratedWeights>> calibrate_weights(
    const plan::ConvertOptions& options, const Prompts& sequences, ThreadPool& pool,
    const Progress& progress) {
  if (!options.quantize.quantizes()) {
    return fail_field(ErrorCode::kUsage, "calibrate-weights", ": no weights are quantised");
  }
  if (options.single_head_attention) {
    return fail_field(ErrorCode::kUsage, "calibrate-weights",
                      ": single-head attention splits matrices, which are calibrated whole");
  }
  const kernels::CommonTarget target_of_kernels;
  plan::ConvertOptions without = options;
  without.reference.clear();
  without.quantize.calibrated = nullptr;
  const plan::Conversion target = FERRY_TRY(plan::plan_conversion(without, &pool));
  const plan::Conversion layers =
      FERRY_TRY(plan_calibration(options, sequences, target.mapped.config.is_encoder));
  return Calibrator(layers, target, sequences, pool, progress).run();
}

}  // namespace ferry::proof
