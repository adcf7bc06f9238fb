// open_loose_programs() makes a Bundle of programs that come without a manifest, from any exporter.
// It derives a manifest from the programs: names of inputs and outputs by position
// (packer/loose_ports.cc), and sizes from shapes, which must agree with the metadata methods of the
// programs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"

namespace ferry::packer {

// Sizes of a model that its program need not state. Empty and 0 stand for unknown.
struct KnownModel {
  std::string model_type = {};
  int64_t num_layers = 0, hidden_size = 0;
};

struct LoosePrograms {
  std::string text_decoder;  // path of a .pte file
  // The path of a .pte file for each; empty if the text decoder takes tokens.
  std::string token_embedding = {};
  std::string vision_encoder = {};     // may be empty
  std::vector<std::string> data = {};  // .ptd files beside those named like the programs
  std::string tokenizer = {};  // directory with tokenizer.json and similar files; empty: none
  // Called for the end tokens if the text decoder has no method get_eos_ids. The function may be
  // empty, and may return no token.
  std::function<Result<std::vector<int64_t>>()> eos_ids = {};
  KnownModel model = {};  // kBadInput if the programs state something else
};

// Bundle::path() is the path of the text decoder. The manifest has the version 0 and no text.
// kUsage for components that do not fit together, kUnsupported for programs with another interface,
// kBadInput for programs that contradict themselves or each other. eos_ids of the manifest is empty
// if no source states them; hidden_size and num_layers are 0 if no program states them.
Result<Bundle> open_loose_programs(const LoosePrograms& files);

// Whether open_loose_programs() has made the bundle.
inline bool is_loose(const Bundle& bundle) { return bundle.manifest().version == 0; }

}  // namespace ferry::packer
