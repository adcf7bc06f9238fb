#include "converters/keys/key_rule.h"

#include <gtest/gtest.h>

#include "converters/keys/key_hints.h"
#include "converters/keys/row_layouts.h"
#include "converters/keys/standard_keys.h"
#include "tests/converters/names_source.h"

namespace ferry::converters::key_rule_test {
namespace {

TensorEntry entry(const std::string& name, Shape shape = {4, 2}, DType dtype = DType::kBF16) {
  return {.name = name, .dtype = dtype, .shape = std::move(shape)};
}

ModelConfig config_of(int64_t layers) {
  ModelConfig config;
  config.num_layers = layers;
  return config;
}

KeyRule map_rule(const std::string& source, const std::string& target) {
  KeyRule rule;
  rule.name = "map " + target;
  rule.source = source;
  rule.targets = {{target}};
  return rule;
}

KeyRule drop(const std::string& source) {
  KeyRule rule;
  rule.name = "drop " + source;
  rule.kind = KeyRule::Kind::kDrop;
  rule.source = source;
  rule.reason = "not used";
  return rule;
}

MappedKeys map(std::vector<TensorEntry> entries, const std::vector<KeyRule>& rules,
               const std::vector<TieRule>& ties = {}, const MappingOptions& options = {},
               const std::unordered_map<std::string, std::string>& names = {}) {
  const Names source(std::move(entries));
  KeyedTensors keyed = key_by_name(source);
  keyed.names = names;
  return map_keys(source, keyed, config_of(12), rules, ties, options).value();
}

std::vector<std::string> messages(const MappedKeys& mapped) {
  std::vector<std::string> lines;
  for (const KeyProblem& problem : mapped.problems) lines.push_back(problem.message);
  return lines;
}

TEST(KeyRule, LayerNumbersAreDecimalAndBelowTheNumberOfLayers) {
  const std::vector<KeyRule> rules = {map_rule("m.layers.{i}.w", "layers.{i}.v")};
  for (const std::string good : {"0", "7", "11"}) {
    const MappedKeys mapped = map({entry("m.layers." + good + ".w")}, rules);
    EXPECT_NE(mapped.weights.find("layers." + good + ".v"), nullptr) << good;
  }
  for (const std::string bad : {"12", "01", "-1", "+1", "", "1 ", "1.0", "99999999999999999999"}) {
    const MappedKeys mapped = map({entry("m.layers." + bad + ".w")}, rules);
    ASSERT_EQ(mapped.problems.size(), 1u) << bad;
    EXPECT_EQ(mapped.problems[0].kind, KeyProblem::Kind::kUnmapped);
    EXPECT_EQ(mapped.problems[0].key, "m.layers." + bad + ".w");
  }
}

TEST(KeyRule, LiteralKeysMatchAsAWhole) {
  const std::vector<KeyRule> rules = {map_rule("lm_head.weight", "output.weight")};
  for (const std::string key : {"lm_head.weight2", "xlm_head.weight", "lm_head", ""}) {
    EXPECT_EQ(map({entry(key)}, rules).problems.size(), 1u) << key;
  }
  EXPECT_TRUE(map({entry("lm_head.weight")}, rules).problems.empty());
}

std::vector<KeyRule> joined() {
  return join_rules({"m.layers.{i}.q", "m.layers.{i}.k"}, "layers.{i}.qk", [](const ModelConfig&) {
    return Shape{6, 2};
  });
}

// Where a part ends is of no account.
TEST(KeyRule, JoinsHaveTheRowsOfTheirPartsInOrder) {
  for (const int64_t first : {1, 3, 4}) {
    const MappedKeys mapped =
        map({entry("m.layers.2.k", {6 - first, 2}), entry("m.layers.2.q", {first, 2})}, joined());
    EXPECT_TRUE(mapped.problems.empty());
    const graph::Weight* weight = mapped.weights.find("layers.2.qk");
    ASSERT_NE(weight, nullptr);
    EXPECT_EQ(weight->recipe.output().shape, (Shape{6, 2}));
    ASSERT_EQ(weight->recipe.pieces.size(), 2U);
    EXPECT_EQ(weight->recipe.pieces[0].tensor, 1U);
    EXPECT_EQ(weight->recipe.pieces[0].count(), 2 * first);
    EXPECT_EQ(weight->recipe.pieces[1].tensor, 0U);
  }
}

TEST(KeyRule, JoinsNeedAllPartsOfOneKind) {
  const std::vector<KeyRule> rules = joined();
  const auto said = [&](std::vector<TensorEntry> entries) {
    return messages(map(std::move(entries), rules));
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(said({entry("m.layers.0.q", {3, 2})}),
            Lines{"missing: 'm.layers.0.k' (for layers.0.qk)"});
  EXPECT_EQ(
      said({entry("m.layers.0.q", {3, 2}), entry("m.layers.0.k", {4, 2})}),
      Lines{"shape: 'm.layers.0.q' [3, 2] and the parts behind it are not the [6, 2] that the "
            "config wants"});
  EXPECT_EQ(said({entry("m.layers.0.q", {3, 2}), entry("m.layers.0.k", {3})}).size(), 1U);
  EXPECT_EQ(said({entry("m.layers.0.q", {3, 2}), entry("m.layers.0.k", {3, 2}, DType::kF32)}),
            Lines{"dtype: 'm.layers.0.k' is f32, but 'm.layers.0.q' is bf16"});
  EXPECT_EQ(said({entry("m.layers.0.q", {3, 2}, DType::kI64), entry("m.layers.0.k", {3, 2})}),
            Lines{"dtype: 'm.layers.0.q' is i64, expected f32, f16 or bf16"});
}

TEST(KeyRule, DropsAreReportedWithTheirReason) {
  const MappedKeys mapped = map({entry("mtp.a"), entry("mtp.")}, {drop("mtp.*")});
  EXPECT_TRUE(mapped.problems.empty());
  EXPECT_TRUE(mapped.weights.weights().empty());
  ASSERT_EQ(mapped.report.entries.size(), 2u);
  EXPECT_EQ(mapped.report.entries[0].source, "mtp.a");
  EXPECT_EQ(mapped.report.entries[0].rule, "drop mtp.*");
  EXPECT_EQ(mapped.report.entries[0].reason, "not used");
}

TEST(KeyRule, TwoMatchingRulesAreOurDefect) {
  const Names source({entry("a.b")});
  const auto mapped = map_keys(source, key_by_name(source), config_of(1),
                               {map_rule("a.b", "x"), drop("a.*")}, {}, {});
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code, ErrorCode::kInternal);
}

TEST(KeyRule, AllProblemsAreReportedAtOnce) {
  const std::vector<KeyRule> rules = {map_rule("m.layers.{i}.mlp.up_proj.weight", "l.{i}.w3"),
                                      map_rule("a", "same"), map_rule("b", "same")};
  const MappedKeys mapped =
      map({entry("m.layers.3.mlp.up_prj.weight"), entry("a"), entry("b"),
           entry("m.layers.4.mlp.up_proj.weight", {4, 2}, DType::kF64), entry("nothing like it")},
          rules);
  EXPECT_EQ(messages(mapped),
            (std::vector<std::string>{
                "unmapped: 'm.layers.3.mlp.up_prj.weight' bf16 [4, 2] (nearest known key: "
                "'m.layers.3.mlp.up_proj.weight')",
                "duplicate: 'a' and 'b' both make same",
                "dtype: 'm.layers.4.mlp.up_proj.weight' is f64, expected f32, f16 or bf16",
                "unmapped: 'nothing like it' bf16 [4, 2]"}));
}

TEST(KeyRule, KeysOfABaseModelLackItsPrefix) {
  const std::vector<KeyRule> rules = {map_rule("model.layers.{i}.w", "layers.{i}.v"),
                                      map_rule("model.norm", "norm"), map_rule("head", "output")};
  MappingOptions options;
  options.base_prefix = "model.";
  const std::vector<TensorEntry> base = {entry("layers.3.w"), entry("norm")};
  const MappedKeys mapped = map(base, rules, {}, options);
  EXPECT_TRUE(mapped.problems.empty());
  EXPECT_EQ(mapped.report.without_base_prefix, 2U);
  EXPECT_EQ(mapped.report.entries[0].source, "layers.3.w");
  EXPECT_NE(mapped.weights.find("layers.3.v"), nullptr);
  EXPECT_EQ(map(base, rules).problems.size(), 2U);
  // The prefix is chosen for each key by itself. Here the other key has it.
  EXPECT_TRUE(map({entry("layers.3.w"), entry("model.norm")}, rules, {}, options).problems.empty());
  EXPECT_TRUE(map({entry("model.head")}, rules, {}, options).problems.empty());
  EXPECT_EQ(messages(map({entry("norm"), entry("model.norm")}, rules, {}, options)),
            (std::vector<std::string>{"duplicate: 'norm' and 'model.norm' both make norm"}));
  EXPECT_EQ(map({entry("layers.12.w"), entry("x.norm")}, rules, {}, options).problems.size(), 2U);
}

TEST(KeyRule, EitherNameOfATiedWeightMayBeStored) {
  const std::vector<KeyRule> rules = {map_rule("embed", "embedding"), map_rule("head", "output")};
  const std::vector<TieRule> ties = {
      {.name = "tied head", .target = "output", .same_as = "embedding"}};
  for (const std::string stored : {"embed", "head"}) {
    const MappedKeys mapped = map({entry(stored)}, rules, ties);
    ASSERT_NE(mapped.weights.find("output"), nullptr) << stored;
    ASSERT_NE(mapped.weights.find("embedding"), nullptr) << stored;
    EXPECT_EQ(mapped.weights.find("output")->recipe, mapped.weights.find("embedding")->recipe);
    const std::string made = stored == "embed" ? "output" : "embedding";
    EXPECT_EQ(mapped.report.entries.back().targets, std::vector<std::string>{made});
  }
  EXPECT_TRUE(map({entry("other")}, rules, ties).weights.weights().empty());
}

TEST(KeyRule, AllowedKeysPassWithoutARule) {
  const MappedKeys mapped =
      map({entry("extra.a"), entry("extra.b"), entry("other")}, {}, {}, {{"extra.*"}});
  EXPECT_EQ(mapped.report.allowed, (std::vector<std::string>{"extra.a", "extra.b"}));
  ASSERT_EQ(mapped.problems.size(), 1u);
  EXPECT_EQ(mapped.problems[0].key, "other");
}

TEST(KeyRule, ASplitTakesItsRowsFromTheEntry) {
  KeyRule rule = map_rule("packed", "first");
  rule.targets = {{"first", [](const ModelConfig&) { return RowOrder{run_piece(0, 0, 3)}; }},
                  {"second", [](const ModelConfig&) { return RowOrder{run_piece(0, 3, 1)}; }}};
  rule.expected_rows = [](const ModelConfig&) { return int64_t{4}; };
  const MappedKeys mapped = map({entry("other"), entry("packed")}, {drop("other"), rule});
  const graph::Weight* first = mapped.weights.find("first");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->recipe.output().shape, (Shape{3, 2}));
  EXPECT_EQ(first->recipe.pieces, (std::vector<StridedPiece>{run_piece(1, 0, 6)}));
  EXPECT_EQ(mapped.weights.find("second")->recipe.pieces,
            (std::vector<StridedPiece>{run_piece(1, 6, 2)}));

  for (const Shape& shape : {Shape{5, 2}, Shape{3, 2}, Shape{}}) {
    const MappedKeys wrong = map({entry("packed", shape)}, {rule});
    ASSERT_EQ(wrong.problems.size(), 1u);
    EXPECT_EQ(wrong.problems[0].kind, KeyProblem::Kind::kShape);
    EXPECT_TRUE(wrong.weights.weights().empty());
  }
}

TEST(KeyRule, AThirdDimensionOfASplitIsAProblemThatShowsTheStoredShape) {
  KeyRule rule = map_rule("packed", "first");
  rule.targets[0].rows = [](const ModelConfig&) { return RowOrder{run_piece(0, 0, 24)}; };
  rule.expected_rows = [](const ModelConfig&) { return int64_t{24}; };
  for (const Shape& shape : {Shape{24, 32, 1}, Shape{24, 1, 32}, Shape{24, 2, 16}}) {
    const MappedKeys wrong = map({entry("packed", shape)}, {rule});
    EXPECT_EQ(messages(wrong),
              std::vector<std::string>{"shape: 'packed' " + to_string(shape) +
                                       " has 3 dimensions, 'map first' takes rows of a matrix"});
    EXPECT_TRUE(wrong.weights.weights().empty());
  }
}

// Two layouts of one key: the parts are halves, or their rows alternate.
std::vector<KeyRule> layouts_of_packed(std::optional<PackedLayout> own) {
  KeyRule halves = map_rule("packed", "first");
  halves.name = "halves";
  halves.targets = {{"first", [](const ModelConfig&) { return RowOrder{run_piece(0, 0, 2)}; }},
                    {"second", [](const ModelConfig&) { return RowOrder{run_piece(0, 2, 2)}; }}};
  halves.layout = PackedLayout::kConcatenated;
  halves.own_layout = own == halves.layout;
  KeyRule turns = halves;
  turns.name = "turns";
  const RowOrder even = {{.offset = 0, .axes = {{2, 2}}}};
  const RowOrder odd = {{.offset = 1, .axes = {{2, 2}}}};
  turns.targets[0].rows = [even](const ModelConfig&) { return even; };
  turns.targets[1].rows = [odd](const ModelConfig&) { return odd; };
  turns.layout = PackedLayout::kInterleaved;
  turns.own_layout = own == turns.layout;
  return {halves, turns};
}

TEST(KeyRule, ALayoutIsTheOneAskedForElseTheFamilysOwnElseAProblem) {
  struct Case {
    std::optional<PackedLayout> own, asked;
    std::string rule;  // empty: the layout is ambiguous
  };
  const auto whole = PackedLayout::kConcatenated, turns = PackedLayout::kInterleaved;
  for (const Case& c : std::vector<Case>{{{}, {}, ""},
                                         {{}, whole, "halves"},
                                         {{}, turns, "turns"},
                                         {whole, {}, "halves"},
                                         {turns, {}, "turns"},
                                         {turns, whole, "halves"}}) {
    const MappedKeys mapped =
        map({entry("packed")}, layouts_of_packed(c.own), {}, {.packed_layout = c.asked});
    EXPECT_TRUE(mapped.report.packed_keys);
    if (c.rule.empty()) {
      EXPECT_EQ(messages(mapped),
                std::vector<std::string>{"ambiguous: 'packed' [4, 2] may be 'halves' "
                                         "(concatenated) or 'turns' (interleaved); "
                                         "packed_layout says which"});
      EXPECT_EQ(mapped.problems[0].kind, KeyProblem::Kind::kAmbiguous);
      EXPECT_EQ(mapped.rejected, (std::set<std::string>{"first", "second"}));
      continue;
    }
    ASSERT_TRUE(mapped.problems.empty());
    EXPECT_EQ(mapped.weights.find("second")->rule, c.rule);
    EXPECT_EQ(mapped.weights.find("second")->recipe.pieces[0].is_run(), c.rule == "halves");
  }
}

TEST(KeyRule, LayoutsThatAgreeAreNotAmbiguous) {
  std::vector<KeyRule> rules = layouts_of_packed({});
  rules[1].targets = rules[0].targets;
  EXPECT_TRUE(map({entry("packed")}, rules).problems.empty());
}

TEST(KeyRule, TiesFillInWhatIsMissing) {
  const std::vector<KeyRule> rules = {map_rule("embed", "tok"), map_rule("head", "out")};
  const std::vector<TieRule> ties = {{"tied head", "out", "tok"}};
  const MappedKeys tied = map({entry("embed")}, rules, ties);
  ASSERT_NE(tied.weights.find("out"), nullptr);
  EXPECT_EQ(tied.weights.find("out")->recipe, tied.weights.find("tok")->recipe);
  EXPECT_EQ(tied.report.entries.back().source, "");
  EXPECT_EQ(tied.report.entries.back().targets, std::vector<std::string>{"out"});

  const MappedKeys both = map({entry("embed"), entry("head")}, rules, ties);
  EXPECT_EQ(both.weights.find("out")->recipe.pieces[0].tensor, 1u);
  EXPECT_EQ(both.report.entries.size(), 2u);
}

TEST(KeyRule, TheKeyThatATargetWantsIsKnown) {
  const std::vector<KeyRule> rules = {map_rule("m.layers.{i}.up", "layers.{i}.w3"),
                                      map_rule("head", "out")};
  EXPECT_EQ(ExpectedKeys(rules, {}).of("layers.3.w3"), "m.layers.3.up");
  EXPECT_EQ(ExpectedKeys(rules, {}).of("out"), "head");
  EXPECT_EQ(ExpectedKeys(rules, {}).of("layers.x.w3"), "");
  EXPECT_EQ(ExpectedKeys(rules, {}).of("layers.3.w33"), "");
  // Where two rules make one weight, the key follows the rule that matched other keys.
  const std::vector<KeyRule> forms = {map_rule("a.{i}", "t.{i}"), map_rule("b.{i}", "t.{i}")};
  EXPECT_EQ(ExpectedKeys(forms, {}).of("t.3"), "a.3");
  EXPECT_EQ(ExpectedKeys(forms, map({entry("b.2")}, forms).matched).of("t.3"), "b.3");
  // A key without matches of its own form gets the prefix of the other keys.
  const std::vector<KeyRule> prefixes = {
      map_rule("model.up.{i}", "up.{i}"), map_rule("model.norm", "norm"),
      map_rule("model.text.up.{i}", "up.{i}"), map_rule("model.text.norm", "norm")};
  EXPECT_EQ(ExpectedKeys(prefixes, map({entry("model.text.up.0")}, prefixes).matched).of("norm"),
            "model.text.norm");
  EXPECT_EQ(ExpectedKeys(prefixes, map({entry("model.up.0")}, prefixes).matched).of("norm"),
            "model.norm");
}

TEST(KeyRule, APrefixOfAWrapperIsTakenOffAllKeysOrOfNone) {
  const std::vector<KeyRule> rules = {map_rule("embed", "tok"), map_rule("head", "out")};
  using Names = std::vector<std::string>;
  const auto prefixes = [&](const Names& names) {
    std::vector<TensorEntry> entries;
    for (const std::string& name : names) entries.push_back(entry(name));
    const MappedKeys mapped = map(std::move(entries), rules);
    std::string text;
    for (const TakenPrefix& taken : mapped.report.prefixes) {
      text += taken.prefix + "=" + taken.rule + " ";
    }
    return text + std::to_string(mapped.weights.weights().size());
  };
  EXPECT_EQ(prefixes({"embed", "head"}), "2");
  EXPECT_EQ(prefixes({"_orig_mod.embed", "_orig_mod.head"}), "_orig_mod.=torch.compile 2");
  EXPECT_EQ(prefixes({"module.embed", "module.head"}), "module.=DataParallel 2");
  EXPECT_EQ(prefixes({"_orig_mod.module.embed", "_orig_mod.module.head"}),
            "_orig_mod.=torch.compile module.=DataParallel 2");
  EXPECT_EQ(prefixes({"module.embed", "head"}), "1");
  EXPECT_EQ(prefixes({"module.embed", "_orig_mod.head"}), "0");
  EXPECT_EQ(prefixes({"module.", "module.module."}), "module.=DataParallel 0");
  EXPECT_EQ(prefixes({"modules.embed"}), "0");
  EXPECT_EQ(prefixes({}), "0");
}

TEST(KeyRule, AKeyWithAndWithoutAPrefixIsRefused) {
  const MappedKeys mapped =
      map({entry("embed"), entry("module.embed")}, {map_rule("embed", "tok")});
  EXPECT_EQ(messages(mapped), std::vector<std::string>{"unmapped: 'module.embed' bf16 [4, 2]"});
}

TEST(KeyRule, TheNearestKeyIsNamedAsTheFormatNamesIt) {
  const std::vector<KeyRule> rules = {map_rule("m.layers.{i}.up", "layers.{i}.w3")};
  EXPECT_EQ(
      messages(map({entry("decoder_3/upp"), entry("decoder/upp"), entry("decoder_9/up")}, rules, {},
                   {}, {{"m.layers.0.up", "decoder/up"}, {"m.layers.3.up", "decoder_3/up"}})),
      (std::vector<std::string>{
          "unmapped: 'decoder_3/upp' bf16 [4, 2] (nearest known key: 'decoder_3/up')",
          "unmapped: 'decoder/upp' bf16 [4, 2] (nearest known key: 'decoder/up')",
          "unmapped: 'decoder_9/up' bf16 [4, 2] (nearest known key: 'decoder/up')"}));
}

TEST(KeyRule, ARowThatTheSourceDoesNotHaveIsAProblem) {
  KeyRule rule = map_rule("packed", "first");
  rule.targets[0].rows = [](const ModelConfig&) { return RowOrder{run_piece(0, 2, 3)}; };
  EXPECT_EQ(
      messages(map({entry("packed")}, {rule})),
      std::vector<std::string>{"shape: 'packed' [4, 2] has fewer rows than 'map first' needs"});
}

TEST(KeyRule, ATensorThatItsFormatLeavesOutIsDroppedWithTheReason) {
  const Names source({entry("factors"), entry("a")});
  KeyedTensors keyed = key_by_name(source);
  keyed.tensors[0].key = "format:factors";
  keyed.tensors[0].unused = "checked";
  const MappedKeys mapped =
      map_keys(source, keyed, config_of(1), {map_rule("a", "x")}, {}, {}).value();
  EXPECT_TRUE(mapped.problems.empty());
  EXPECT_EQ(mapped.report.entries[0].source, "factors");
  EXPECT_EQ(mapped.report.entries[0].rule, "drop factors");
  EXPECT_EQ(mapped.report.entries[0].reason, "checked");
}

TEST(KeyRule, HostileNamesAreShownSafely) {
  const MappedKeys mapped =
      map({entry(std::string("a\n\0b", 4)), entry(std::string(70000, 'x'))}, {});
  EXPECT_EQ(mapped.problems[0].message, "unmapped: 'a\\n\\x00b' bf16 [4, 2]");
  EXPECT_LT(mapped.problems[1].message.size(), 300u);
}

}  // namespace
}  // namespace ferry::converters::key_rule_test
