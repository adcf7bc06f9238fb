// Sequences are tokens, with or without images, that a model is executed with part by part.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "proof/checkpoint_execution.h"
#include "proof/prompt_images.h"
#include "proof/prompts.h"

namespace ferry::proof {

struct Sequences {
  Prompts tokens = {};
  std::vector<PromptImages> images = {};  // of each sequence; empty if no sequence has any

  size_t size() const { return tokens.size(); }
  size_t token_count() const;
  // Adds the sequence at `index` of `from`.
  void add(const Sequences& from, size_t index);
  // Returns the first `length` tokens of at most `count` sequences that lie equally far apart.
  // Sequences with images stay whole.
  Sequences beginnings(size_t count, size_t length) const;

  // Executes a part of the component `role` for one sequence. A vision encoder takes the sequence's
  // images, and does nothing without any. Their features then replace the embeddings of their
  // placeholders. `state` is what earlier parts gave; outputs are added to it.
  Status run(LoadedPart& part, std::string_view role, size_t index, PassedTensors& state) const;
};

}  // namespace ferry::proof
