// Keys about RoPE that transformers 5.23.0 reads in a config, and keys that it ignores, type by
// type.
#include <gtest/gtest.h>

#include <string>

#include "tests/converters/reference_config_testing.h"

namespace ferry::converters::reference_config_test {
namespace {

TEST(ReferenceRope, PlainRopeTakesThePartialFactorInsideTheObject) {
  for (const std::string type : {"glm", "phi3", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}) {
    const json both = with_rope(type, {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}},
                                {{"partial_rotary_factor", 0.25}});
    EXPECT_EQ(parse(both).rotary_dim(), 8) << type;
    const json outer =
        with_rope(type, {{"rope_type", "default"}}, {{"partial_rotary_factor", 0.25}});
    EXPECT_EQ(parse(outer).rotary_dim(), 4) << type;
  }
  EXPECT_EQ(parse(sizes("glm")).rotary_dim(), 8);
  EXPECT_EQ(parse(sizes("qwen3_next")).rotary_dim(), 4);
  EXPECT_EQ(parse(sizes("phi3")).rotary_dim(), 16);
  EXPECT_EQ(parse(with(sizes("glm"), {{"partial_rotary_factor", nullptr}})).rotary_dim(), 16);
}

TEST(ReferenceRope, ScaledRopeTakesThePartialFactorInsideTheObjectToo) {
  const json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  const json inside = with(linear, {{"partial_rotary_factor", 0.75}});
  for (const std::string type :
       {"glm", "glm4", "nemotron", "phi", "stablelm", "qwen3_next", "qwen3_5_text"}) {
    EXPECT_EQ(parse(with_rope(type, inside)).rotary_dim(), 12) << type;
    EXPECT_EQ(parse(with_rope(type, inside, {{"partial_rotary_factor", 1.0}})).rotary_dim(), 12);
    EXPECT_EQ(parse(with_rope(type, linear, {{"partial_rotary_factor", 1.0}})).rotary_dim(), 16);
  }
  EXPECT_EQ(parse(with_rope("glm", linear)).rotary_dim(), 8);         // the default of the class
  EXPECT_EQ(parse(with_rope("qwen3_next", linear)).rotary_dim(), 4);  // another class default
  // gpt_neox calls the key beside the object rotary_pct.
  const json neox = with_rope("gpt_neox", linear, {{"partial_rotary_factor", 1.0}});
  EXPECT_EQ(parse(neox).rotary_dim(), 4);
  EXPECT_EQ(parse(with(neox, {{"rotary_pct", 0.5}})).rotary_dim(), 8);
}

TEST(ReferenceRope, AnOddPartOfAHeadIsNotSupported) {
  const std::string said =
      ": RoPE would rotate 5 dimensions of it, which is not a positive even number";
  EXPECT_EQ(refusal(with(sizes("glm"), {{"head_dim", 10}})),
            "4 config.json: 'head_dim' is 10" + said);
  EXPECT_EQ(refusal(with(sizes("llama"), {{"head_dim", 5}})),
            "3 config.json: 'head_dim' is 5" + said);
}

TEST(ReferenceRope, OtherTypesTurnWholeHeads) {
  for (const std::string type : {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "granite",
                                 "olmo2", "smollm3", "gemma", "gemma2", "gemma3_text", "lfm2"}) {
    EXPECT_EQ(parse(with(sizes(type), {{"partial_rotary_factor", 0.5}})).rotary_dim(), 16) << type;
  }
  const json inside = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(parse(with_rope("llama", inside)).rotary_dim(), 16);
  // The reference raises an error for this config.
  const json scaled = {{"rope_type", "linear"}, {"factor", 2.0}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(refusal(with_rope("llama", scaled)),
            "4 config.json: 'partial_rotary_factor' is 0.5, but 'llama' rotates whole heads");
}

TEST(ReferenceRope, Llama3FactorsMayBeEqual) {
  json rope = {{"rope_type", "llama3"},
               {"factor", 16.0},
               {"low_freq_factor", 1.0},
               {"high_freq_factor", 1.0},
               {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(parse(with_rope("llama", rope)).rope.high_freq_factor, 1.0);
  rope["high_freq_factor"] = 0.5;
  EXPECT_EQ(refusal(with_rope("llama", rope)),
            "3 config.json: 'rope_parameters.high_freq_factor' is below low_freq_factor");
}

TEST(ReferenceRope, TheOriginalLengthBesideTheObjectWins) {
  json rope = {{"rope_type", "llama3"},
               {"factor", 8.0},
               {"low_freq_factor", 1.0},
               {"high_freq_factor", 4.0}};
  const json outside = {{"original_max_position_embeddings", 64}};
  EXPECT_EQ(parse(with_rope("llama", rope)).rope.original_max_positions, 512);
  EXPECT_EQ(parse(with_rope("llama", rope, outside)).rope.original_max_positions, 64);
  rope["original_max_position_embeddings"] = 32;
  EXPECT_EQ(parse(with_rope("llama", rope)).rope.original_max_positions, 32);
  EXPECT_EQ(parse(with_rope("llama", rope, outside)).rope.original_max_positions, 64);

  const json factors = {1, 1, 1, 1, 1, 1, 1, 1};
  const json lengths = {{"rope_type", "longrope"},
                        {"short_factor", factors},
                        {"long_factor", factors},
                        {"original_max_position_embeddings", 33}};
  EXPECT_EQ(parse(with_rope("phi3", lengths)).rope.original_max_positions, 4096);
  EXPECT_EQ(parse(with_rope("phi3", lengths, outside)).rope.original_max_positions, 64);
  EXPECT_EQ(parse(with_rope("llama", lengths)).rope.original_max_positions, 33);
}

TEST(ReferenceRope, PhiThreeHasTwoRopeTypes) {
  const json factors = {1, 1, 1, 1, 1, 1, 1, 1};
  for (const std::string name : {"longrope", "su", "yarn"}) {
    const json rope = {{"type", name}, {"short_factor", factors}, {"long_factor", factors}};
    EXPECT_EQ(parse(with_rope("phi3", rope)).rope.type, RopeConfig::Type::kLongRope) << name;
  }
  for (const std::string name : {"linear", "dynamic", "llama3"}) {
    EXPECT_EQ(refusal(with_rope("phi3", {{"type", name}, {"factor", 2.0}})),
              "4 config.json: 'rope_parameters.type' is '" + name +
                  "'; default and longrope are supported");
  }
  EXPECT_NE(refusal(with_rope("llama", {{"type", "su"}, {"short_factor", factors}}))
                .find("4 config.json: 'rope_parameters.type' is 'su'"),
            std::string::npos);
}

TEST(ReferenceRope, AnEmptyRopeScalingGivesWayToRopeParameters) {
  json config = with_rope("llama", {{"rope_type", "linear"}, {"factor", 2.0}});
  config["rope_scaling"] = json::object();
  EXPECT_EQ(parse(config).rope.factor, 2.0);
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(parse(config).rope.factor, 4.0);
}

TEST(ReferenceRope, BasesOfRopeThatTheReferenceIgnores) {
  EXPECT_EQ(parse(with(sizes("lfm2"), {{"theta", 500.0}})).rope.theta, 1e6);
  EXPECT_EQ(parse(with(sizes("lfm2"), {{"theta", 500.0}, {"rope_theta", 7.0}})).rope.theta, 7.0);
  const json scaled = {{"rope_theta", 7.0}, {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}};
  const ModelConfig codegen = parse(with(sizes("codegen"), scaled));
  EXPECT_EQ(codegen.rope.theta, 10000.0);
  EXPECT_EQ(codegen.rope.type, RopeConfig::Type::kDefault);
}

TEST(ReferenceRope, DynamicRopeIsPlainWithinTheContext) {
  for (const std::string type : {"llama", "qwen3", "qwen3_next", "gemma3_text"}) {
    const json config =
        with(sizes(type), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}});
    const RopeConfig rope = parse(config).rope;
    EXPECT_EQ(rope.type, RopeConfig::Type::kDefault);
    EXPECT_EQ(rope.theta, parse(sizes(type)).rope.theta);
  }
  EXPECT_EQ(refusal(with(sizes("llama"), {{"rope_scaling", {{"type", "dynamic"}}}})),
            "3 config.json: 'rope_scaling.factor' is missing");
  const json narrow = with(
      sizes("llama"), {{"head_dim", 2}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}});
  EXPECT_EQ(refusal(narrow),
            "4 config.json: 'rope_scaling.factor' of dynamic RoPE: it is not "
            "defined for 2 rotary dimensions");
}

TEST(ReferenceRope, ObjectsByLayerMayBeAbsentOrAlone) {
  const json flat = {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}}}};
  const RopeConfig rope = parse(with(sizes("gemma3_text"), flat)).rope;
  EXPECT_EQ(rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(rope.theta, 1e6);
  const json both = with(flat, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
  EXPECT_EQ(refusal(with(sizes("gemma3_text"), both)),
            "3 config.json: 'rope_parameters.full_attention' is missing");
  // The factor beside the objects applies to each of them.
  const json config =
      with(sizes("gemma3_text"), {{"partial_rotary_factor", 0.5},
                                  {"sliding_window_pattern", 2},
                                  {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}});
  const std::string partial =
      "4 config.json: 'partial_rotary_factor' is 0.5, but 'gemma3_text' rotates whole heads";
  EXPECT_EQ(refusal(config), partial);
  EXPECT_EQ(refusal(with(config, {{"sliding_window_pattern", 1}})), partial);
  const json further = {
      {"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}, {"note", 1}}}};
  EXPECT_EQ(refusal(with(config, further)), partial);
}

TEST(ReferenceRope, OldScalingByLayerIsNamedByRopeTypeAlone) {
  for (const std::string type : {"gemma3_text", "olmo3"}) {
    const json old = {{"type", "linear"}, {"factor", 2.0}};
    EXPECT_EQ(parse(with(sizes(type), {{"rope_scaling", old}})).rope.type,
              RopeConfig::Type::kDefault)
        << type;
    const json both = with(old, {{"rope_type", "linear"}});
    EXPECT_EQ(parse(with(sizes(type), {{"rope_scaling", both}})).rope.type,
              RopeConfig::Type::kLinear)
        << type;
  }
}

TEST(ReferenceRope, Olmo3ScalesFullAttentionAlone) {
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"rope_theta", 20000.0},
                     {"original_max_position_embeddings", 128}};
  const json by_layer = {{"full_attention", yarn}, {"sliding_attention", {{"rope_theta", 300.0}}}};
  const ModelConfig config = parse(with_rope("olmo3", by_layer));
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kYarn);
  EXPECT_EQ(config.rope.theta, 20000.0);
  EXPECT_EQ(config.sliding_rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(config.sliding_rope.theta, 300.0);
  // In configs of transformers 4, rope_theta belongs to full attention.
  const ModelConfig old =
      parse(with(sizes("olmo3"), {{"rope_theta", 10000.0}, {"rope_scaling", yarn}}));
  EXPECT_EQ(old.rope.type, RopeConfig::Type::kYarn);
  EXPECT_EQ(old.sliding_rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(old.sliding_rope.theta, 500000.0);
  // One object for all layers is ignored.
  const ModelConfig flat = parse(with_rope("olmo3", yarn));
  EXPECT_EQ(flat.rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(flat.rope.theta, 500000.0);
}

TEST(ReferenceRope, ARopeThatNoLayerUsesMayBeAnything) {
  json config =
      with(sizes("gemma3_text"),
           {{"rope_scaling",
             {{"rope_type", "linear"}, {"factor", 2.0}, {"partial_rotary_factor", 0.5}}}});
  EXPECT_EQ(refusal(with(config, {{"layer_types", json(4, "sliding_attention")}})), "accepted");
  EXPECT_NE(refusal(with(config, {{"layer_types", json(4, "full_attention")}})), "accepted");
  const json partial = {{"type", "linear"}, {"factor", 2.0}, {"partial_rotary_factor", 0.5}};
  config = with(sizes("smollm3"), {{"rope_scaling", partial}});
  EXPECT_NE(refusal(config), "accepted");
  EXPECT_EQ(refusal(with(config, {{"no_rope_layers", {0, 0, 0, 0}}})), "accepted");
  config = with(sizes("lfm2"), {{"rope_scaling", partial}});
  EXPECT_EQ(refusal(with(config, {{"layer_types", json(4, "conv")}})), "accepted");
}

}  // namespace
}  // namespace ferry::converters::reference_config_test
