#include "proof/part_moments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/text.h"
#include "runner/memory.h"
#include "runner/method.h"

namespace ferry::proof {
namespace {

// Every expert gets each token of this number.
constexpr size_t kTokensOfAllExperts = 16;

}  // namespace

Status check_memory_of_moments(const std::vector<LinearInput>& inputs,
                               const std::vector<ExpertMatrices>& experts) {
  constexpr double kCopies = 3;  // that the factor of one input takes
  double bytes = 0, largest = 0;
  const auto add = [&](int64_t columns, int64_t matrices) {
    const double one = calibration::Moments::bytes_for(columns);
    bytes += static_cast<double>(matrices) * one;
    largest = std::max(largest, one);
  };
  for (const LinearInput& input : inputs) add(input.columns, 1);
  for (const ExpertMatrices& node : experts) {
    add(node.hidden, node.experts);
    add(node.inner, node.experts);
  }
  bytes += kCopies * largest;
  const auto available = static_cast<double>(runner::available_bytes());
  if (bytes <= available) return {};
  return fail_field(ErrorCode::kIo, "calibrate-weights",
                    fmt::format(": the inputs of one layer take {} of memory, and {} are available",
                                human_bytes(static_cast<uint64_t>(std::min(bytes, 1e18))),
                                human_bytes(static_cast<uint64_t>(available))));
}

Result<PartMoments> measure_moments(LoadedPart& part, std::string_view role,
                                    const std::vector<LinearInput>& inputs, ExpertInputs& experts,
                                    const Sequences& sequences,
                                    const std::vector<PassedTensors>& states,
                                    const PrepareInput& prepare, ThreadPool& pool) {
  PartMoments moments;
  for (const LinearInput& input : inputs) moments.inputs.emplace_back(input.columns);
  for (const ExpertMatrices& node : experts.nodes()) {
    ExpertMoments& of = moments.experts.emplace_back();
    for (int64_t e = 0; e < node.experts; ++e) {
      of.x.emplace_back(node.hidden);
      of.inner.emplace_back(node.inner);
    }
  }
  FERRY_RETURN_IF_ERROR(
      observe_probes(part, [&](std::string_view probe, int32_t, const runner::TensorView& view) {
        experts.take(probe, view);
        const auto index = input_of(probe);
        if (!index) return;
        std::vector<float> rows = runner::probe_floats(view);
        prepare(*index, rows);
        moments.inputs[*index].add(rows, pool);
      }));
  const auto add_expert = [&](size_t node, size_t expert, std::span<const float> x,
                              std::span<const float> inner) {
    moments.experts[node].x[expert].add(x, pool);
    moments.experts[node].inner[expert].add(inner, pool);
  };
  for (size_t i = 0; i < sequences.size(); ++i) {
    PassedTensors state = states[i];
    FERRY_RETURN_IF_ERROR(sequences.run(part, role, i, state));
    experts.give(pool, add_expert, kTokensOfAllExperts);
  }
  return moments;
}

}  // namespace ferry::proof
