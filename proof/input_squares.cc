#include "proof/input_squares.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "graph/graph.h"
#include "kernels/common_target.h"
#include "proof/calibration.h"
#include "proof/checkpoint_execution.h"
#include "proof/linear_inputs.h"

namespace ferry::proof {
namespace {

// Sums in f64, so that their order decides less.
struct Sums {
  int64_t columns = 0;
  std::vector<double> squares;
  std::vector<int64_t> counts;

  Sums(int64_t matrices, int64_t width)
      : columns(width),
        squares(static_cast<size_t>(matrices * width)),
        counts(static_cast<size_t>(matrices)) {}

  void add(std::span<const float> row, size_t matrix) {
    double* to = squares.data() + matrix * static_cast<size_t>(columns);
    for (size_t c = 0; c < row.size(); ++c) to[c] += static_cast<double>(row[c] * row[c]);
    ++counts[matrix];
  }
};

class SquareMeter {
 public:
  SquareMeter(const plan::Conversion& layers, const Prompts& prompts, ThreadPool& pool,
              const Progress& progress)
      : layers_(layers),
        prompts_(prompts),
        pool_(pool),
        passed_(prompts.size()),
        progress_(progress, prompts.size() * parts_of(layers)) {}

  Result<std::map<std::string, InputSquares>> run() {
    for (const plan::ConvertedComponent& component : layers_.components) {
      if (packer::row_encoder(layers_.plan->manifest(), component.role)) continue;
      readers_ = readers_of_weights(component);
      for (const auto& reader : readers_) weights_.insert(reader.first);
      for (const graph::Model& part : component.parts) FERRY_RETURN_IF_ERROR(measure(part));
    }
    std::map<std::string, InputSquares> out;
    for (const auto& [weight, sums] : sums_) {
      InputSquares& made = out[weight];
      for (const double square : sums.squares) made.sums.push_back(static_cast<float>(square));
      for (const int64_t count : sums.counts) made.counts.push_back(static_cast<float>(count));
      if (std::ranges::all_of(made.sums, [](float sum) { return std::isfinite(sum); })) continue;
      return bad_input(fmt::format("{}: the text gives values that are not finite (inputs of {})",
                                   printable(name()), quoted(weight)));
    }
    return out;
  }

 private:
  static size_t parts_of(const plan::Conversion& layers) {
    size_t parts = 0;
    for (const plan::ConvertedComponent& component : layers.components) {
      if (!packer::row_encoder(layers.plan->manifest(), component.role)) {
        parts += component.parts.size();
      }
    }
    return parts;
  }

  Status measure(const graph::Model& given) {
    graph::Model part = given;
    const std::vector<LinearInput> inputs = observed_inputs(part, weights_, {}, readers_);
    ExpertInputs experts =
        FERRY_TRY(ExpertInputs::add_to(part, source(), [](const std::string&) { return true; }));
    for (const LinearInput& input : inputs) {
      sums_of(input.weights.front(), 1, input.columns);
      for (const std::string& other : input.weights) shared_[other] = input.weights.front();
    }
    for (const ExpertMatrices& node : experts.nodes()) {
      sums_of(node.w1, node.experts, node.hidden);
      sums_of(node.w2, node.experts, node.inner);
      if (!node.w3.empty()) shared_[node.w3] = node.w1;
    }
    const auto loaded = FERRY_TRY(LoadedPart::load(part, weights_from(source()), pool_, name()));
    FERRY_RETURN_IF_ERROR(observe_probes(
        *loaded, [&](std::string_view probe, int32_t, const runner::TensorView& view) {
          experts.take(probe, view);
          const auto index = input_of(probe);
          if (index) add_rows(sums_.at(inputs[*index].weights.front()), runner::probe_floats(view));
        }));
    for (size_t p = 0; p < prompts_.size(); ++p) {
      loaded->method().reset();
      FERRY_RETURN_IF_ERROR(loaded->run(prompts_[p], 0, passed_[p]));
      experts.give(pool_, [&](size_t node, size_t expert, std::span<const float> x,
                              std::span<const float> inner) {
        add_rows(sums_.at(experts.nodes()[node].w1), x, expert);
        add_rows(sums_.at(experts.nodes()[node].w2), inner, expert);
      });
      progress_.advance(1);
    }
    return {};
  }

  static void add_rows(Sums& sums, std::span<const float> values, size_t matrix = 0) {
    const auto columns = static_cast<size_t>(sums.columns);
    for (size_t at = 0; at + columns <= values.size(); at += columns) {
      sums.add(values.subspan(at, columns), matrix);
    }
  }

  void sums_of(const std::string& weight, int64_t matrices, int64_t columns) {
    sums_.try_emplace(weight, matrices, columns);
  }

 public:
  // Maps weights to those with the same inputs, under whose names the sums are.
  const std::map<std::string, std::string>& shared() const { return shared_; }

 private:
  const TensorSource& source() const { return *layers_.mapped.source; }
  const std::string& name() const { return source().path(); }

  const plan::Conversion& layers_;
  const Prompts& prompts_;
  ThreadPool& pool_;
  std::vector<PassedTensors> passed_;  // for each prompt
  SharedProgress progress_;
  std::map<std::string, int> readers_;
  std::set<std::string> weights_;
  std::map<std::string, Sums> sums_;
  std::map<std::string, std::string> shared_;
};

}  // namespace

Result<std::map<std::string, InputSquares>> measure_input_squares(
    const plan::ConvertOptions& options, const Prompts& sequences, ThreadPool& pool,
    const Progress& progress) {
  const kernels::CommonTarget target_of_kernels;
  const plan::Conversion layers = FERRY_TRY(plan_calibration(options, sequences));
  SquareMeter meter(layers, sequences, pool, progress);
  auto squares = FERRY_TRY(meter.run());
  for (const auto& [weight, same] : meter.shared()) {
    if (weight != same) squares[weight] = squares.at(same);
  }
  return squares;
}

}  // namespace ferry::proof
