// add_sentence_modules() adds what a folder of sentence-transformers has beside its encoder: the
// way in which its states become one vector, and the weights of the modules that do it.
#pragma once

#include "checkpoint/checkpoint_input.h"
#include "converters/config/model_config.h"
#include "core/result.h"

namespace ferry::checkpoint {

// Sets config.sentence where the folder has modules.json, and adds the tensors of its modules to
// those of the input. Their files become files of the source, so that their digests are stated with
// those of the checkpoint. Errors are those of parse_sentence_config(), and those of reading the
// files.
Status add_sentence_modules(CheckpointInput& input, converters::ModelConfig& config);

// Whether the checkpoint is a folder of sentence-transformers.
bool has_sentence_modules(const CheckpointInput& input);

}  // namespace ferry::checkpoint
