#include "runner/prompt_queue.h"

#include <vector>

namespace ferry::runner {
namespace {

// An answer in the making: its prompt, and the chosen token that has not been run.
struct Active {
  size_t prompt;
  int64_t token;
};

}  // namespace

Status answer_all(DecoderGroup& group, size_t count, PromptAnswers& answers) {
  std::vector<std::optional<Active>> sequences(group.size());
  size_t next = 0;
  while (true) {
    std::vector<DecoderGroup::Turn> turns;
    for (size_t i = 0; i < sequences.size(); ++i) {
      while (!sequences[i] && next < count) {
        const size_t prompt = next++;
        const auto token = FERRY_TRY(answers.begin(prompt, group.sequence(i)));
        if (token) {
          sequences[i] = Active{prompt, *token};
        } else {
          FERRY_RETURN_IF_ERROR(answers.end(prompt));
        }
      }
      if (sequences[i]) turns.push_back({i, sequences[i]->token});
    }
    if (turns.empty()) return {};
    FERRY_RETURN_IF_ERROR(group.forward(turns));
    for (const DecoderGroup::Turn& turn : turns) {
      std::optional<Active>& active = sequences[turn.sequence];
      const auto token = FERRY_TRY(answers.choose(active->prompt, turn.logits));
      if (token) {
        active->token = *token;
        continue;
      }
      FERRY_RETURN_IF_ERROR(answers.end(active->prompt));
      active.reset();
    }
  }
}

}  // namespace ferry::runner
