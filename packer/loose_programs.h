// open_loose_programs: a Bundle of programs that come without a manifest, by whatever exporter.
// Its manifest is derived from the programs: names of ports by position (packer/loose_ports.h),
// sizes from shapes, which must agree with what the programs state of themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"

namespace ferry::packer {

struct LoosePrograms {
  std::string text_decoder;  // path of a .pte
  // Both empty where the text decoder takes tokens.
  std::string token_embedding;
  std::string vision_encoder;     // may be empty
  std::vector<std::string> data;  // .ptd files besides those with the names of the programs
  std::string tokenizer;          // directory with tokenizer.json and the like; empty: none
  // Asked which tokens end an answer where the text decoder has no method get_eos_ids; may be
  // empty, and may return none.
  std::function<Result<std::vector<int64_t>>()> eos_ids;
};

// Bundle::path() is the text decoder's. The manifest's version is 0: it has no text.
// kUsage for a combination of components that does not fit,
// kUnsupported for programs with another interface, kBadInput for programs that contradict
// themselves or each other. eos_ids of the manifest is empty where nothing states them; hidden_size
// and num_layers are 0 where no program states them.
Result<Bundle> open_loose_programs(const LoosePrograms& files);

}  // namespace ferry::packer
