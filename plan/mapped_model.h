// map_checkpoint() is the part of a conversion that all outputs share. It opens the checkpoint,
// reads its config, and makes a recipe for each weight of the model.
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
  // Graphs, and recipes under runtime names, before any cast; in the order of components_of().
  // Empty if there are problems.
  std::vector<converters::AssembledComponent> components;
  // The tensors before the key rules were applied: recipes under Hugging Face keys.
  converters::KeyedTensors tensors;
  std::string config_text;                 // the text of config.json
  std::string config_name;                 // messages about the config begin with this name
  std::string generation_text;             // the text of generation_config.json, or empty
  std::vector<packer::CopiedFile> copied;  // see CheckpointInput
};

// Keys that do not fit the model are returned as problems of the checkpoint, not as an error.
Result<MappedModel> map_checkpoint(const ConvertOptions& options);
// Maps a checkpoint that has been opened already.
Result<MappedModel> map_checkpoint(const ConvertOptions& options,
                                   checkpoint::CheckpointInput opened);

// Whether two recipes give equal bytes. The bytes are compared in tiles.
Result<bool> same_bytes(const graph::Recipe& a, const graph::Recipe& b, const TensorSource& source);

}  // namespace ferry::plan
