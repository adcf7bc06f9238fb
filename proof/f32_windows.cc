#include "proof/f32_windows.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/program_interface.h"
#include "proof/loaded_part.h"

namespace ferry::proof {
namespace {

struct WindowCall {
  size_t window = 0;
  int64_t position = 0, tokens = 0;
  int64_t input_pos = 0;
  bool counted = false;  // its logits are asked for
  PassedTensors passed = {};
};

// All that windows run, in order: the tokens before the counted ones, then for_each_part().
std::vector<WindowCall> window_calls(const WindowedTokens& tokens, int64_t vocab_size,
                                     std::optional<int64_t> rope_switch) {
  std::vector<WindowCall> calls;
  const auto add = [&](size_t window, int64_t position, int64_t count, bool counted) {
    // Programs with a switch take a position's complement for one of a long sequence.
    const bool is_long = rope_switch && tokens.windows[window].tokens() > *rope_switch;
    calls.push_back({window, position, count, is_long ? -1 - position : position, counted});
  };
  const int64_t most = rows_of_part(vocab_size);
  std::optional<size_t> current;
  (void)for_each_part(tokens, vocab_size, [&](size_t i, int64_t at, int64_t rows) -> Status {
    for (int64_t p = 0; std::exchange(current, i) != i && p < at; p += most) {
      add(i, p, std::min(most, at - p), /*counted=*/false);
    }
    add(i, at, rows, /*counted=*/true);
    return {};
  });
  return calls;
}

Status visit_logits(WindowCall& call, const WindowLogits& visit) {
  const auto found = call.passed.find(std::string(kLogitsPort));
  if (found == call.passed.end()) return {};
  const Passed logits = std::move(found->second);
  call.passed.erase(found);
  if (!call.counted) return {};
  return visit(call.window, call.position,
               runner::probe_floats({logits.dtype, logits.shape, logits.bytes}));
}

// The last of the parts that takes a tensor of each name.
std::map<std::string, const graph::Model*> last_users(const plan::Conversion& conversion) {
  std::map<std::string, const graph::Model*> users;
  for (const plan::ConvertedComponent& component : conversion.components) {
    for (const graph::Model& part : component.parts) {
      for (const graph::MethodGraph& method : part.methods) {
        const graph::Graph& graph = method.graph;
        for (const graph::ValueId input : graph.inputs) users[graph[input].name] = &part;
      }
    }
  }
  return users;
}

}  // namespace

Status run_f32_windows(const plan::Conversion& conversion, const WindowedTokens& tokens,
                       const std::string& name, ThreadPool& pool, const WindowLogits& visit) {
  std::vector<WindowCall> calls =
      window_calls(tokens, conversion.config.vocab_size, conversion.plan->manifest().rope_switch);
  const std::map<std::string, const graph::Model*> users = last_users(conversion);
  for (const plan::ConvertedComponent& component : conversion.components) {
    if (component.role == kVisionEncoderRole) continue;
    for (const graph::Model& model : component.parts) {
      const auto part =
          FERRY_TRY(LoadedPart::load(model, weights_from(*conversion.source), pool, name));
      for (WindowCall& call : calls) {
        const auto window = tokens.tokens_of(tokens.windows[call.window]);
        FERRY_RETURN_IF_ERROR(part->run(
            window.subspan(static_cast<size_t>(call.position), static_cast<size_t>(call.tokens)),
            call.input_pos, call.passed));
        FERRY_RETURN_IF_ERROR(visit_logits(call, visit));
        // Hidden states of all windows are kept, but of one layer.
        std::erase_if(call.passed, [&](const auto& tensor) {
          const auto user = users.find(tensor.first);
          return user == users.end() || user->second == &model;
        });
      }
    }
  }
  return {};
}

}  // namespace ferry::proof
