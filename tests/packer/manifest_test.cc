#include "packer/manifest.h"

#include <fmt/format.h>

#include "packer/manifest_json.h"
#include "tests/packer/tiny_bundle.h"

namespace ferry::packer::manifest_test {

// A document that has members of versions 2, 3 and 4.
struct Leaf {
  std::string name, colour = "none";
};
struct Growing {
  std::string title;
  std::vector<Leaf> leaves;
  int64_t age = -1;
};

template <class Archive>
static void describe(Archive& a, Leaf& leaf) {
  a.text("name", leaf.name);
  if (a.since(4)) a.text("colour", leaf.colour);
}

template <class Archive>
static void describe(Archive& a, Growing& document) {
  a.text("title", document.title);
  if (a.since(3)) a.count("age", document.age);
  a.objects("leaves", document.leaves);
  a.group("crown", [&](Archive& inner) {
    if (inner.since(4)) inner.count("height", document.age);
  });
}

namespace {

std::string written(Growing document, int64_t version) {
  ManifestWriter writer(version);
  return nlohmann::json::parse(writer.document([&] { describe(writer, document); })).dump();
}

// Reads `text` as a document of `version` into `document`. Returns the error; empty if there is
// none.
std::string read_into(Growing& document, const std::string& text, int64_t version) {
  std::string error;
  const nlohmann::json json = nlohmann::json::parse(text);
  ManifestReader reader(json, version, error);
  describe(reader, document);
  reader.finish();
  return error;
}

TEST(ManifestMember, IsAbsentBeforeTheVersionThatItCameWith) {
  const Growing oak{"oak", {{"a", "green"}}, 7};
  EXPECT_EQ(written(oak, 2), R"({"crown":{},"leaves":[{"name":"a"}],"title":"oak"})");
  EXPECT_EQ(written(oak, 3), R"({"age":7,"crown":{},"leaves":[{"name":"a"}],"title":"oak"})");
  EXPECT_EQ(written(oak, 4), R"({"age":7,"crown":{"height":7},)"
                             R"("leaves":[{"colour":"green","name":"a"}],"title":"oak"})");
}

TEST(ManifestMember, OfALaterVersionHasItsDefaultInAnOlderDocument) {
  Growing read;
  EXPECT_EQ(read_into(read, R"({"crown":{},"leaves":[{"name":"a"}],"title":"oak"})", 2), "");
  EXPECT_EQ(read.title, "oak");
  EXPECT_EQ(read.age, -1);
  ASSERT_EQ(read.leaves.size(), 1u);
  EXPECT_EQ(read.leaves[0].colour, "none");
}

TEST(ManifestMember, OfALaterVersionIsRefusedInAnOlderDocument) {
  Growing read;
  EXPECT_EQ(read_into(read, R"({"age":7,"crown":{},"leaves":[],"title":"oak"})", 2),
            "the document has an unknown member 'age'");
  EXPECT_EQ(read_into(read, R"({"age":7,"crown":{"height":7},"leaves":[],"title":"oak"})", 3),
            "crown has an unknown member 'height'");
  EXPECT_EQ(read_into(read,
                      R"({"age":7,"crown":{},"leaves":[{"colour":"red","name":"a"}],)"
                      R"("title":"oak"})",
                      3),
            "leaves[0] has an unknown member 'colour'");
}

TEST(ManifestMember, IsRequiredFromItsVersionOn) {
  Growing read;
  EXPECT_EQ(read_into(read, R"({"crown":{},"leaves":[],"title":"oak"})", 3), "age is missing");
}

Manifest full_manifest() {
  const std::string digest(64, 'a');
  Manifest m;
  m.tool = {"ferry", "0.2.0"};
  m.options = {{"dtype", "keep"}, {"allow-unmapped", "a\nb"}};
  m.model_type = "tiny";
  m.vocab_size = 6;
  m.program_style = "stateful";
  m.weight_dtype = "bf16";
  m.eos_ids = {2, 3};
  m.image_token_id = 5;
  m.source_files = {{"model.safetensors", 123, digest}};
  m.dropped = {{"a\n\"\xc3\xa9", "rule", "reason"}};
  m.allowed_unmapped = {"x.*"};
  ManifestMethod forward;
  forward.name = "forward";
  forward.inputs = {{"tokens", DType::kI64, {1, 4}}};
  forward.outputs = {{"logits", DType::kF32, {1, 6}}};
  forward.probes = {{"hidden_states.0", 7}};
  forward.buffers = {{"cache", 9, DType::kF16, {}, 2, "none"}};
  ManifestProgram program;
  program.file = "p.pte";
  program.data_files = {"p.ptd"};
  program.methods = {forward};
  program.backends = {"XnnpackBackend"};
  m.components = {{"text_decoder", {program}, "f16", "8da4w-g32"}};
  m.tensors = {{"w",
                "p.ptd",
                DType::kBF16,
                {2, 3},
                128,
                12,
                digest,
                true,
                "rule",
                {{"model.safetensors", "model.w", digest}},
                "#0 f32 [0, 6:1] | cast bf16"}};
  const std::string fast(kZeroFastDigest);
  m.files = {{"p.pte", 10, "sha256", digest, fast},
             {"p.ptd", 140, "sha256-segments", digest, fast}};
  m.default_tolerance = 0.00012;
  return m;
}

// Returns `text` with the first `from` replaced by `to`, and a self digest that fits the result.
std::string edited(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const size_t digest = text.rfind("\"manifest_sha256\": \"") + 20;
  text.replace(digest, 64, std::string(64, '0'));
  text.replace(digest, 64, hex_digest(text));
  return text;
}

TEST(Manifest, WhatIsWrittenIsRead) {
  const std::string text = write_manifest(full_manifest());
  const auto read = read_manifest(text, "manifest.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(write_manifest(*read), text);
  EXPECT_EQ(read->dropped[0].key, "a\n\"\xc3\xa9");
  EXPECT_EQ(read->tool.version, "0.2.0");
  EXPECT_EQ(read->options.at(1).value, "a\nb");
  EXPECT_EQ(read->default_tolerance, 0.00012);
  EXPECT_FALSE(read->bos_id);
  EXPECT_EQ(read->tensors[0].shape, (Shape{2, 3}));
  EXPECT_EQ(read->programs()[0]->methods[0].buffers[0].dtype, DType::kF16);
}

TEST(Manifest, IsLaidOutAsDocumented) {
  const std::string text = write_manifest(full_manifest());
  EXPECT_EQ(text.substr(0, 65),
            "{\n \"format\": \"ferry-bundle\",\n \"version\": 7,\n \"tool\": {\n  \"name\": ");
  EXPECT_EQ(text.substr(text.size() - 4), "\"\n}\n");
  EXPECT_NE(text.find("\n  \"bos_id\": null,\n"), std::string::npos);
}

TEST(Manifest, SelfDigestIsThatOfTheTextWithZeros) {
  std::string text = write_manifest(full_manifest());
  const size_t at = text.size() - 4 - 64;
  const std::string digest = text.substr(at, 64);
  text.replace(at, 64, std::string(64, '0'));
  EXPECT_EQ(hex_digest(text), digest);
}

TEST(Manifest, SizeDoesNotDependOnDigests) {
  Manifest m = full_manifest();
  const size_t size = write_manifest(m).size();
  m.files[0].digest = kZeroDigest;
  EXPECT_EQ(write_manifest(m).size(), size);
}

// One bit of each byte is flipped, each time another one.
TEST(Manifest, ABitFlipInAnyByteIsRefused) {
  const std::string text = write_manifest(full_manifest());
  for (size_t byte = 0; byte < text.size(); ++byte) {
    std::string flipped = text;
    flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << byte % 8));
    EXPECT_FALSE(read_manifest(flipped, "manifest.json")) << "byte " << byte;
  }
}

TEST(Manifest, EveryTruncationIsRefused) {
  const std::string text = write_manifest(full_manifest());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(read_manifest(text.substr(0, size), "manifest.json")) << size << " bytes";
  }
}

struct Edit {
  const char* from;
  const char* to;
  const char* message;  // a part of the message
};

// All edits have a right self digest, so that only the named rule can refuse them.
const Edit kEdits[] = {
    {"\"vocab_size\"", "\"vocab_siZe\"", "model.vocab_size is missing"},
    {"\"vocab_size\": 6", "\"vocab_size\": 6,\n  \"more\": 1", "unknown member 'more'"},
    {"\"vocab_size\": 6", "\"vocab_size\": -6", "model.vocab_size is not an integer"},
    {"\"vocab_size\": 6", "\"vocab_size\": 6.0", "model.vocab_size is not an integer"},
    {"\"vocab_size\": 6", "\"vocab_size\": \"6\"", "model.vocab_size is not an integer"},
    {"\"vocab_size\": 6", "\"vocab_size\": 4611686018427387905", "model.vocab_size"},
    {"\"vocab_size\": 6", "\"vocab_size\": 18446744073709551616", "model.vocab_size"},
    {"\"vocab_size\": 6", "\"vocab_size\":  6", "canonical form (offset"},
    {"\"vocab_size\": 6", "\"vocab_size\": 6,\n  \"vocab_size\": 6", "vocab_size"},
    {"\"all_logits\": false", "\"all_logits\": 0", "model.all_logits is not true or false"},
    {"\"model_type\": \"tiny\"", "\"model_type\": null", "model.model_type is not a string"},
    {"\"stateful\"", "\"stateless\"", "unknown value 'stateless'"},
    {"\"dtype\": \"i64\"", "\"dtype\": \"I64\"",
     "components[0].programs[0].methods[0].inputs[0].dtype is an unknown dtype"},
    {"\"init\": \"none\"", "\"init\": \"some\"",
     "components[0].programs[0].methods[0].buffers[0].init has the unknown value"},
    {"\"file\": \"p.pte\"", "\"file\": \"../p.pte\"",
     "components[0].programs[0].file is not a plain file name"},
    {"\"file\": \"p.pte\"", "\"file\": \"a/p.pte\"", "plain file name"},
    {"\"file\": \"p.pte\"", "\"file\": \"a\\\\p.pte\"", "plain file name"},
    {"\"file\": \"p.pte\"", "\"file\": \"p.pte\\u0000\"", "plain file name"},
    {"\"file\": \"p.pte\"", "\"file\": \"..\"", "plain file name"},
    {"\"file\": \"p.pte\"", "\"file\": \".\"", "plain file name"},
    {"\"file\": \"p.pte\"", "\"file\": \"\"", "plain file name"},
    {"\"path\": \"model.safetensors\"", "\"path\": \"/model\"", "source.files[0].path"},
    {"aaaaaaaa\"", "aaaaaaaA\"", "is not 64 lower-case hexadecimal digits"},
    {"aaaaaaaa\"", "aaaaaaa\"", "is not 64 lower-case hexadecimal digits"},
    {"\"value\": 7", "\"value\": 2147483648",
     "components[0].programs[0].methods[0].probes[0].value is not an integer"},
    {"0.00012", "-0.00012", "default_tolerance is not a finite"},
    {"0.00012", "1.2e-4", "canonical form"},
    {"0.00012", "0", "default_tolerance is not a finite"},
    {"\"eos_ids\": [", "\"eos_ids\": [[", "manifest.json"},
    {"\"tiny\"", "\"t\\u0069ny\"", "canonical form"},
    {"{\n \"format\"", "{ \"format\"", "canonical form (offset 1)"},
    {"\"recipe\": \"#0", "\"recipe\": \"#\\u007f0",
     "tensors[0].recipe is not 1 to 1048576 bytes of printable ASCII"},
    {"\"#0 f32 [0, 6:1] | cast bf16\"", "\"\"", "tensors[0].recipe is not 1 to 1048576 bytes"},
    {",\n   \"recipe\": \"#0 f32 [0, 6:1] | cast bf16\"", "", "tensors[0].recipe is missing"},
    {"\"version\": 7", "\"version\": 2", "model has an unknown member 'attention'"},
    {"\"version\": 7", "\"version\": 3", "model has an unknown member 'image_token_id'"},
    {"\"version\": 7", "\"version\": 4",
     "components[0].programs[0] has an unknown member 'backends'"},
    {"\"version\": 7", "\"version\": 6", "files[0] has an unknown member 'xxh3'"},
    {"  \"version\": \"0.2.0\"", "  \"version\": 2", "tool.version is not a string"},
    {"  \"name\": \"ferry\",\n", "", "tool.name is missing"},
    {"   \"name\": \"dtype\",\n", "", "options[0].name is missing"},
    {"\"value\": \"keep\"", "\"value\": null", "options[0].value is not a string"},
    {"\"output\": \"\"", "\"output\": \"zeros\"",
     "tensors[0].output has the unknown value 'zeros'"},
    {"   \"output\": \"\",\n", "", "tensors[0].output is missing"},
    {"\"quantization\": \"8da4w-g32\"", "\"quantization\": 4",
     "components[0].quantization is not a"},
    {"\"XnnpackBackend\"", "7", "components[0].programs[0].backends is not a string"},
    {"\"image_token_id\": 5", "\"image_token_id\": -5", "model.image_token_id is not"},
    {",\n  \"image_token_id\": 5", "", "model.image_token_id is missing"},
    {"   \"weight_dtype\": \"f16\",\n", "", "components[0].weight_dtype is missing"},
    {"ferry-bundle", "ferry-bungle", "not the manifest of a bundle"},
};

TEST(Manifest, BreaksOfEachRuleAreNamed) {
  const std::string text = write_manifest(full_manifest());
  for (const Edit& edit : kEdits) {
    const auto read = read_manifest(edited(text, edit.from, edit.to), "manifest.json");
    ASSERT_FALSE(read) << edit.to;
    EXPECT_EQ(read.error().code, ErrorCode::kBadInput) << edit.to;
    EXPECT_NE(read.error().message.find(edit.message), std::string::npos) << read.error().message;
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos) << read.error().message;
  }
}

TEST(Manifest, LongestFileNameIsAccepted) {
  Manifest m = full_manifest();
  m.files[0].path = std::string(255, 'x');
  EXPECT_TRUE(read_manifest(write_manifest(m), "manifest.json"));
  m.files[0].path += 'x';
  EXPECT_FALSE(read_manifest(write_manifest(m), "manifest.json"));
}

TEST(Manifest, LongestRecipeIsAccepted) {
  Manifest m = full_manifest();
  m.tensors[0].recipe = std::string(kMaxRecipeBytes, '#');
  EXPECT_TRUE(read_manifest(write_manifest(m), "manifest.json"));
  m.tensors[0].recipe += '#';
  EXPECT_FALSE(read_manifest(write_manifest(m), "manifest.json"));
}

Manifest read_version(int64_t version) {
  const std::string path = fmt::format(FERRY_TESTDATA "/manifest/version{}.json", version);
  const std::string text = read_text_file(path, kMaxManifestBytes).value();
  const auto read = read_manifest(text, "manifest.json");
  EXPECT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->version, version);
  EXPECT_FALSE(read->tensors.empty());
  EXPECT_EQ(write_manifest(*read), text);
  return *read;
}

// The last program of version N wrote testdata/manifest/versionN.json.
TEST(Manifest, OfEveryVersionIsReadAndWrittenBackAsItIs) {
  for (const ManifestTensor& tensor : read_version(2).tensors) EXPECT_EQ(tensor.recipe, "");
  const Manifest third = read_version(3);
  EXPECT_NE(third.tensors[0].recipe, "");
  EXPECT_EQ(third.components[0].weight_dtype, "");
  EXPECT_EQ(third.image_token_id, std::nullopt);
  const Manifest fourth = read_version(4);
  EXPECT_EQ(fourth.components[0].weight_dtype, "f32");
  EXPECT_EQ(fourth.components[0].quantization, "");
  EXPECT_TRUE(fourth.components[0].programs[0].backends.empty());
  EXPECT_EQ(fourth.tensors[0].output, "");
  const Manifest fifth = read_version(5);
  EXPECT_EQ(fifth.components[0].quantization, "");
  EXPECT_EQ(fifth.tool.name, "");
  EXPECT_TRUE(fifth.options.empty());
  EXPECT_EQ(read_version(6).tool.name, "ferry");
  EXPECT_EQ(read_version(6).options.size(), 1U);
  EXPECT_EQ(read_version(6).files[0].xxh3, "");
  EXPECT_EQ(read_version(7).files[0].xxh3.size(), 32U);
}

TEST(Manifest, TheFormsOfTheImageTokenAreANumberAndNull) {
  Manifest m = full_manifest();
  EXPECT_EQ(read_manifest(write_manifest(m), "manifest.json")->image_token_id, 5);
  m.image_token_id = std::nullopt;
  EXPECT_NE(write_manifest(m).find("\n  \"image_token_id\": null,\n"), std::string::npos);
  EXPECT_EQ(read_manifest(write_manifest(m), "manifest.json")->image_token_id, std::nullopt);
}

TEST(Manifest, VersionsThatAreNotReadAreUnsupportedRatherThanBad) {
  const std::string text = write_manifest(full_manifest());
  const auto refusal = [&](const std::string& version) {
    const auto read =
        read_manifest(edited(text, "\"version\": 7", "\"version\": " + version), "manifest.json");
    EXPECT_FALSE(read) << version;
    return read ? Error() : read.error();
  };
  const Error later = refusal(std::to_string(kManifestVersion + 1));
  EXPECT_EQ(later.code, ErrorCode::kUnsupported);
  EXPECT_EQ(later.message,
            fmt::format("manifest.json: bundle format version {}, this program reads "
                        "versions up to {}",
                        kManifestVersion + 1, kManifestVersion));
  const Error older = refusal("1");
  EXPECT_EQ(older.code, ErrorCode::kUnsupported);
  EXPECT_EQ(older.message,
            "manifest.json: written by an older Ferry (bundle format version 1); convert the "
            "checkpoint again");
  EXPECT_EQ(refusal("-1").code, ErrorCode::kBadInput);
  EXPECT_EQ(refusal("\"3\"").code, ErrorCode::kBadInput);
}

// Other writers of JSON may escape strings differently.
TEST(Manifest, StringsAreEscapedOnlyWhereJsonDemandsIt) {
  std::string all;
  for (int c = 1; c < 128; ++c) all += static_cast<char>(c);
  all += "\xc2\x85 \xe2\x80\xa8 \xf0\x9f\x90\x8d";
  Manifest m = full_manifest();
  m.dropped[0].key = all;
  const std::string text = write_manifest(m);
  EXPECT_NE(text.find("\"key\": " + nlohmann::json(all).dump() + ","), std::string::npos);
  EXPECT_EQ(nlohmann::ordered_json::parse(text).dump(1) + "\n", text);
  EXPECT_EQ(read_manifest(text, "manifest.json")->dropped[0].key, all);
}

TEST(Manifest, InvalidUtf8InNamesDoesNotStopWriting) {
  Manifest m = full_manifest();
  m.tensors[0].sources[0].key = "bad\xff";
  const auto read = read_manifest(write_manifest(m), "manifest.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->tensors[0].sources[0].key, "bad\xef\xbf\xbd");
}

}  // namespace
}  // namespace ferry::packer::manifest_test
