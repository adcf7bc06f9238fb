// All families against the key lists of checkpoints that the reference implementation saved. Every
// weight of a graph comes from exactly one rule and has the declared shape. Every deviation of a
// checkpoint is an error that names the key.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "converters/assemble.h"
#include "tests/converters/family_fixture.h"
#include "tests/converters/names_source.h"

namespace ferry::converters::families_test {
namespace {

struct Case {
  ModelConfig config;
  Names keys;
};

Case load(const std::string& name) {
  return {.config = family_config(name), .keys = Names(family_tensors(name))};
}

Result<std::vector<AssembledComponent>> assemble_case(const Case& c) {
  BuildOptions build{.context_length = 64, .prefill_length = 16, .all_logits = false};
  if (c.config.is_encoder) build.style = ProgramStyle::kEncoder;
  build.image_patches = 64;     // for towers that take images of any shape
  build.sound_samples = 16000;  // for audio encoders that take samples
  build.sound_frames = 200;     // and those that take frames of any number
  build.source_length = 24;     // for source encoders
  Assembled made = FERRY_TRY(assemble(c.keys, key_by_name(c.keys), c.config, build, {}));
  if (!made.problems.empty()) {
    return Failure(problems_error(made.problems, c.keys));
  }
  return std::move(made.components);
}

// Returns whether no feature of the tower depends on the key.
bool is_behind_features(const VisionConfig& vision, const std::string& name) {
  if (vision.feature_layers.empty()) return false;
  const std::string layers = "encoder.layers.";
  const size_t at = name.find(layers);
  return at == std::string::npos ? name.find("post_layernorm.") != std::string::npos
                                 : std::stoll(name.substr(at + layers.size())) >= vision.depth();
}

// Returns whether the key belongs to a part that Ferry leaves out.
bool is_unused(const Case& c, const std::string& name) {
  if (name.ends_with(".num_batches_tracked")) return true;  // a count of training
  if (c.config.hears_rows()) return false;
  if (c.config.vision) return is_behind_features(*c.config.vision, name);
  return name.find("visual.") != std::string::npos || name.starts_with("mtp.") ||
         name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.") ||
         name.starts_with("model.vision_") || name.starts_with("model.audio_") ||
         name.starts_with("model.embed_vision.") || name.starts_with("model.embed_audio.");
}

std::string all_text(const Error& error) {
  std::string text = error.message;
  for (const std::string& line : error.details) text += "\n" + line;
  return text;
}

class FamilyTest : public testing::TestWithParam<std::string> {};

TEST_P(FamilyTest, EveryWeightComesFromOneRuleAtItsShape) {
  const Case c = load(GetParam());
  const auto components = assemble_case(c);
  ASSERT_TRUE(components.has_value()) << all_text(components.error());
  const bool decodes = c.config.has_cross_attention();
  EXPECT_EQ(components->size(), c.config.takes_rows() ? 3u : decodes ? 2u : 1u);
  for (const auto& [role, model] : *components) {
    EXPECT_TRUE(graph::validate(model.methods[0].graph).has_value()) << role;
    for (const graph::Value& value : model.methods[0].graph.values) {
      if (value.origin == graph::Value::Origin::kWeight) {
        EXPECT_NE(model.weights.find(value.name), nullptr) << role << " " << value.name;
      }
    }
  }
}

// Keys have one form if they differ in numbers alone. Rules distinguish only the first and the last
// layer or expert, if any.
struct Ends {
  size_t first, last;
};
std::vector<Ends> ends_of_each_form(const std::vector<TensorEntry>& entries) {
  const std::regex number(R"(\.[0-9]+\.)");
  std::map<std::string, Ends> forms;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string form = std::regex_replace(entries[i].name, number, ".N.");
    forms.try_emplace(form, Ends{i, i}).first->second.last = i;
  }
  std::vector<Ends> ends;
  for (const auto& [form, of_form] : forms) ends.push_back(of_form);
  return ends;
}

std::set<size_t> first_and_last_of_each_form(const std::vector<TensorEntry>& entries) {
  std::set<size_t> chosen;
  for (const Ends& ends : ends_of_each_form(entries)) chosen.insert({ends.first, ends.last});
  return chosen;
}

TEST_P(FamilyTest, AnyMissingKeyIsNamed) {
  const Case whole = load(GetParam());
  for (const size_t i : first_and_last_of_each_form(whole.keys.entries())) {
    Case c = whole;
    const std::string name = c.keys.entries()[i].name;
    c.keys.edit().erase(c.keys.edit().begin() + static_cast<std::ptrdiff_t>(i));
    const auto model = assemble_case(c);
    EXPECT_EQ(model.has_value(), is_unused(c, name)) << name;
    if (!model) {
      EXPECT_EQ(model.error().code, ErrorCode::kBadInput);
      // A family may know several prefixes, so the message has to name only the part after the
      // prefix.
      const size_t at = name.find("layers.");
      const std::string base = at == std::string::npos
                                   ? name.substr(name.rfind('.', name.size() - 8) + 1)
                                   : name.substr(at);
      EXPECT_NE(all_text(model.error()).find(base), std::string::npos) << all_text(model.error());
    }
  }
}

TEST_P(FamilyTest, AnUnknownKeyIsNamedAsItIs) {
  Case c = load(GetParam());
  TensorEntry extra = c.keys.entries().front();
  extra.name = "model.layers.0.self_attn.q_proj.weight_scale_inv";
  c.keys.edit().push_back(extra);
  const auto model = assemble_case(c);
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::kBadInput);
  EXPECT_NE(all_text(model.error()).find(extra.name), std::string::npos) << all_text(model.error());
}

// One key of each form is enough: AnyMissingKeyIsNamed has looked up every key.
TEST_P(FamilyTest, AnyChangedShapeIsAnError) {
  const Case whole = load(GetParam());
  for (const Ends& ends : ends_of_each_form(whole.keys.entries())) {
    Case c = whole;
    TensorEntry& entry = c.keys.edit()[ends.last];
    if (is_unused(c, entry.name)) continue;
    if (entry.shape.empty()) {
      entry.shape = {2};
    } else {
      entry.shape.front() += 1;
    }
    EXPECT_FALSE(assemble_case(c).has_value()) << entry.name;
  }
}

TEST_P(FamilyTest, AllProblemsAreReportedAtOnce) {
  Case c = load(GetParam());
  // Three renamed keys of the first layer are three unknown and three missing keys.
  std::vector<std::string> renamed;
  for (TensorEntry& entry : c.keys.edit()) {
    if (renamed.size() < 3 && entry.name.find(".0.") != std::string::npos &&
        !is_unused(c, entry.name)) {
      entry.name += ".renamed";
      renamed.push_back(entry.name);
    }
  }
  ASSERT_EQ(renamed.size(), 3U);
  const auto model = assemble_case(c);
  ASSERT_FALSE(model.has_value());
  for (const std::string& name : renamed) {
    EXPECT_NE(all_text(model.error()).find(name), std::string::npos) << all_text(model.error());
  }
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(FERRY_TESTDATA) / "families")) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest, testing::ValuesIn(case_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ferry::converters::families_test
