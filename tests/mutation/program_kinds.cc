// Wrong programs, independent of the weights. wrong_programs.cc makes them.
#include "tests/mutation/kinds.h"

namespace ferry::mutation {
namespace {

std::string no_convolution(const Checkpoint&, const Facts& f) {
  return f.linear.empty() && f.convs.empty() ? "has no convolution" : "";
}

std::string no_table(const Checkpoint& c, const Facts& f) {
  if (f.turned.empty()) return "turns no layer";
  const bool chosen = c.config.contains("rope_parameters") &&
                      c.config["rope_parameters"].value("rope_type", "") == "longrope";
  return chosen ? "its table is chosen between two by every call" : "";
}

std::string no_later_key(const Checkpoint& c, const Facts& f) {
  // The last layer of Gemma 3n takes the keys of an earlier layer, cut to those of this call and
  // earlier calls.
  if (f.model_type.starts_with("gemma3n")) return "a later key ends the run with an error";
  return no_attention(c, f);
}

std::string no_operator(const Checkpoint& c, const Facts& f) {
  return f.model_type == "gemma2" ? "its scale is in the config (see attention_scale)"
                                  : no_attention(c, f);
}

std::string no_embedding_scale(const Checkpoint&, const Facts& f) {
  return f.model_type.starts_with("gemma") || f.model_type == "granite" ? "" : "has no such scale";
}

std::string no_keys(const Facts& f) {
  return f.reference_has_keys
             ? ""
             : "scores depend on differences of positions, and its reference holds no keys";
}

}  // namespace

std::vector<Kind> program_kinds() {
  return {
      {"program_conv_state_kept", no_convolution},
      {"program_recurrent_state_kept", no_linear},
      {"program_conv_inputs_one_older", no_convolution},
      {"program_cache_one_position_late", no_attention},
      {.name = "program_rope_one_position_late", .excluded = no_table, .invisible = no_keys},
      {"program_rope_of_queries_late", no_table},
      {"program_causal_mask_wide", no_later_key},
      {"program_causal_mask_narrow", no_attention},
      {"program_window_mask_wide", no_window},
      {"program_window_mask_narrow", no_window},
      {"program_attention_scale", no_operator},
      {"program_embedding_scale_dropped", no_embedding_scale},
      {"program_delta_scale_dropped", no_linear},
  };
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> all;
  for (const auto& part :
       {config_kinds(), weight_kinds(), block_kinds(), program_kinds(), coded_kinds()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace ferry::mutation
