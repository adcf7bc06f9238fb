// CheckpointCard has the fields of a checkpoint's model card, in the format of Hugging Face, that a
// card of the bundle takes over.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::card {

struct CheckpointCard {
  // Ids of licences as Hugging Face spells them, such as "apache-2.0" or "other".
  std::vector<std::string> licenses = {};
  std::string license_name = {}, license_link = {};  // of the licence "other"
  std::vector<std::string> base_models = {}, datasets = {}, languages = {}, tags = {};
  std::string pipeline_tag = {};
};

// kBadInput, with line and field, for a field of another form. Other errors are those of
// read_front_matter(). A text without front matter gives an empty card.
Result<CheckpointCard> read_checkpoint_card(std::string_view text, const std::string& name);

}  // namespace ferry::card
