// The keys of RoPE.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dialects/gguf/model/written_key_writer.h"

namespace ferry::converters {
namespace {

using nlohmann::json;
using Type = RopeConfig::Type;

constexpr int64_t kPhi3Original = 4096;        // default of its configuration class
constexpr int64_t kHunyuanPositions = 262144;  // written for every config with an alpha

}  // namespace

// Returns a member of the RoPE object, or of full attention's where there are several; or
// nullptr.
const json* GgufKeyWriter::rope_member(const char* key) const {
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const json* rope = member(json_, name);
    const json* full = rope == nullptr ? nullptr : member(*rope, "full_attention");
    for (const json* object : {full, rope}) {
      const json* found = object == nullptr ? nullptr : member(*object, key);
      if (found != nullptr) return found;
    }
  }
  return nullptr;
}

void GgufKeyWriter::add_rope_dimension() { own("rope.dimension_count", whole(c_.rotary_dim())); }

void GgufKeyWriter::add_rope_base() { own("rope.freq_base", real(c_.rope.theta)); }

void GgufKeyWriter::add_sliding_rope_base() {
  own("rope.freq_base_swa", real(c_.sliding_rope.theta));
}

void GgufKeyWriter::add_rope() {
  if (c_.rope.type == Type::kLinear || c_.rope.type == Type::kYarn) {
    const bool yarn = c_.rope.type == Type::kYarn;
    own("rope.scaling.type", std::string(yarn ? "yarn" : "linear"));
    own("rope.scaling.factor", real(c_.rope.factor));
    if (yarn) add_yarn();
  }
  if (const std::vector<int32_t> sections = rope_sections(); !sections.empty()) {
    own("rope.dimension_sections", sections);
  }
  add_rope_base();
  if (in_.architecture->sliding_pattern) add_sliding_rope_base();
}

// Writes values that the config states, and values for which readers would assume others.
void GgufKeyWriter::add_yarn() {
  const RopeConfig usual;
  own("rope.scaling.original_context_length", whole(c_.rope.original_max_positions));
  if (rope_member("truncate") != nullptr || !c_.rope.truncate) {
    own("rope.scaling.yarn_truncate", c_.rope.truncate);
  }
  if (rope_member("attention_factor") != nullptr) {
    own("rope.scaling.yarn_attn_factor", real(c_.rope.attention_factor));
  }
  if (rope_member("beta_fast") != nullptr || c_.rope.beta_fast != usual.beta_fast) {
    own("rope.scaling.yarn_beta_fast", real(c_.rope.beta_fast));
  }
  if (rope_member("beta_slow") != nullptr || c_.rope.beta_slow != usual.beta_slow) {
    own("rope.scaling.yarn_beta_slow", real(c_.rope.beta_slow));
  }
}

void GgufKeyWriter::add_other_rope_base() {
  if (c_.rope.theta != RopeConfig().theta) add_rope_base();
}

void GgufKeyWriter::add_rope_scaling() {
  if (c_.rope.type == Type::kDefault) own("rope.scaling.type", std::string("none"));
}

void GgufKeyWriter::add_unscaled_rope() {
  if (c_.rope.type != Type::kDefault) return;
  own("rope.scaling.type", std::string("linear"));
  own("rope.scaling.factor", 1.0F);
}

// The base in the config has been scaled already. The length in the config is not that of the
// model.
void GgufKeyWriter::add_alpha_rope() {
  const json* type = rope_member("rope_type");
  if (type == nullptr || *type != "dynamic") return;
  own("rope.scaling.type", std::string("none"));
  own("rope.scaling.factor", 1.0F);
  own("rope.scaling.original_context_length", whole(kHunyuanPositions));
  own("context_length", whole(kHunyuanPositions));
}

// Readers divide their factor by one that follows from this key; the reference has both as one
// factor.
void GgufKeyWriter::add_yarn_multiplier() {
  if (c_.rope.type != Type::kYarn) return;
  own("rope.scaling.yarn_log_multiplier", real(gguf_yarn_multiplier(c_.rope)));
}

void GgufKeyWriter::add_query_growth() {
  if (c_.rope.query_growth != 0) {
    own("attention.temperature_scale", real(c_.rope.query_growth));
  }
}

// Returns the four sections for text and images. The positions of a text are equal in all of
// them.
std::vector<int32_t> GgufKeyWriter::rope_sections() const {
  const json* stated = rope_member("mrope_section");
  if (stated == nullptr) return {};
  std::vector<int32_t> sections;
  for (const json& part : *stated) {
    if (part.is_number_integer()) sections.push_back(part.get<int32_t>());
  }
  sections.resize(4);
  return sections;
}

void GgufKeyWriter::add_turned() {
  constexpr int64_t kNoLimit = int64_t{1} << 20;
  own("rope.scaling.finetuned", c_.has_rope());
  if (!c_.has_rope()) own("context_length", whole(kNoLimit));
}

// Writes the number of layers that features of images are added to. Text models have none.
void GgufKeyWriter::add_deepstack() {
  const json* vision = member(json_, "vision_config");
  const json* layers = vision == nullptr ? nullptr : member(*vision, "deepstack_visual_indexes");
  own("n_deepstack_layers",
      whole(layers != nullptr && layers->is_array() ? std::ssize(*layers) : 0));
}

void GgufKeyWriter::add_original_context() {
  own("rope.scaling.original_context_length", whole(original_positions()));
}

int64_t GgufKeyWriter::original_positions() const {
  if (c_.rope.original_max_positions > 0) return c_.rope.original_max_positions;
  const json* found = rope_member("original_max_position_embeddings");
  if (found != nullptr && found->is_number_integer()) return found->get<int64_t>();
  const auto stated = static_cast<int64_t>(number("original_max_position_embeddings"));
  return stated > 0 ? stated : kPhi3Original;
}

}  // namespace ferry::converters
