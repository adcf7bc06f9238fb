// map_checkpoint(): the part of a conversion that all of its outputs share. It opens the
// checkpoint, reads its config, and makes a recipe for each weight of the model.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint_input.h"
#include "converters/assemble.h"
#include "converters/build_options.h"
#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "packer/bundle_plan.h"
#include "plan/conversion.h"

namespace ferry::plan {

struct MappedModel {
  MappedCheckpoint checkpoint;
  converters::BuildOptions build;
  // Graphs and recipes under runtime names, not cast; none if there are problems. The order of
  // components_of().
  std::vector<converters::AssembledComponent> components;
  // The tensors that the rules were applied to: recipes under Hugging Face keys.
  converters::KeyedTensors tensors;
  std::string config_text;                 // of the config.json
  std::string config_name;                 // what messages about it begin with
  std::string generation_text;             // of the generation_config.json, or empty
  std::vector<packer::CopiedFile> copied;  // see CheckpointInput
};

// Keys that do not fit the model come back as problems of the checkpoint, not as an error.
Result<MappedModel> map_checkpoint(const ConvertOptions& options);
// Likewise, for a checkpoint that has been opened.
Result<MappedModel> map_checkpoint(const ConvertOptions& options,
                                   checkpoint::CheckpointInput opened);

}  // namespace ferry::plan
