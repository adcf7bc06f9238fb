// generation_defaults() reads how the authors of a model want its tokens to be chosen: the
// generation_config.json of a bundle, or its config.json, by the rules of transformers 5.23.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/sampler.h"

namespace ferry::runner {

// A setting that changes which tokens are chosen in a way that the Sampler does not have.
struct UnsupportedSetting {
  std::string name, value;  // the value as JSON
  bool of_drawing = false;  // no effect where the likeliest token is taken
};

struct GenerationDefaults {
  std::string file;  // path of the file, for messages; empty if the bundle has neither
  // Without `do_sample` the temperature is 0, and of the others only the penalty has an effect.
  SamplingOptions sampling;
  std::vector<UnsupportedSetting> unsupported;
  std::optional<int64_t> max_new_tokens;  // tokens of an answer at most
  std::optional<int64_t> max_length;      // tokens of prompt and answer at most
};

// kBadInput if the file is no JSON object, or a value has the wrong type or is out of range.
Result<GenerationDefaults> generation_defaults(const packer::Bundle& bundle);
// Reads the text of a generation_config.json. `name` begins the messages. For an encoder-decoder
// with `source_vocab` tokens the sampling has the rules of the file, which are unsupported
// elsewhere; kBadInput then for ids outside of the vocabulary.
Result<GenerationDefaults> parse_generation_config(std::string_view text, const std::string& name,
                                                   std::optional<int64_t> source_vocab = {});
// Reads the same members of a config.json, where there is no generation_config.json. Its `decoder`,
// `generator` or `text_config` has those that it lacks. A max_length of 20 counts as absent.
Result<GenerationDefaults> parse_model_config(std::string_view text, const std::string& name,
                                              std::optional<int64_t> source_vocab = {});

// Returns kUnsupported, with the name of the setting, if a setting has an effect on `sampling` that
// the Sampler does not have.
Status check_supported(const GenerationDefaults& defaults, const SamplingOptions& sampling);

}  // namespace ferry::runner
