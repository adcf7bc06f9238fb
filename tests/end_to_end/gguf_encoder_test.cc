// Encoders as GGUF files: what is written is read again, and what no file can say is refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/checkpoints.h"
#include "tests/end_to_end/verb_outcomes.h"

namespace ferry::gguf_encoder_test {
namespace {

using namespace verb_outcomes;

// Fixtures with tokenizers, and the pre-tokenizer that is stated where the converter knows none.
const std::vector<std::pair<std::string, Line>> kFixtures = {
    {"bert", {"--tokenizer-pre", "jina-v2-en"}},
    {"roberta", {"--tokenizer-pre", "roberta-bpe"}},
    {"modernbert", {"--tokenizer-pre", "modern-bert"}},
    {"xlm_roberta", {}},
    {"embedding_gemma", {"--tokenizer-pre", "roberta-bpe"}}};

std::string checkpoint(const std::string& name) { return fixture("gguf_written/" + name); }

// A copy of a checkpoint that a test may change.
std::string copy_of(const TempDir& dir, const std::string& name) {
  std::filesystem::copy(checkpoint(name), dir / "m", std::filesystem::copy_options::recursive);
  return dir / "m";
}

Json vector_of(const std::string& model, const std::string& text) {
  const Outcome outcome = run_ferry({"embed", model, "--text", text});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out);
}

Outcome write(const std::string& source, const std::string& out, const Line& more) {
  return run_ferry(
      Line{"convert", source, "--to", "gguf", "--outtype", "f32", "-o", out, "--overwrite"} + more);
}

TEST(GgufEncoder, FilesGiveTheVectorsOfTheCheckpoint) {
  for (const auto& [name, pre] : kFixtures) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const std::string file = dir / "m.gguf";
    const Outcome made = write(checkpoint(name), file, pre);
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(run_ferry({"verify", file, "--checkpoint", checkpoint(name)}).code, 0);
    const std::string bundle = converted(dir, checkpoint(name), {"--dtype", "f32"});
    for (const char* text : {"the cat sat on the mat", "a dog"}) {
      EXPECT_EQ(vector_of(file, text), vector_of(bundle, text));
    }
    const Line again = {"convert", file, "--to", "gguf", "--outtype", "q8_0", "-o", dir / "q.gguf"};
    EXPECT_EQ(run_ferry(again).code, 0);
  }
}

// llama.cpp computes the approximation of GELU for every BERT; Ferry computes what the model has.
TEST(GgufEncoder, FilesSayWhereGeluIsTheApproximation) {
  for (const char* name : {"bert", "roberta"}) {
    for (const char* activation : {"gelu", "gelu_new"}) {
      const TempDir dir;
      const std::string source = copy_of(dir, name), file = dir / "m.gguf";
      change_config(source, {{"hidden_act", activation}});
      const Outcome made = write(source, file, {"--tokenizer-pre", "roberta-bpe"});
      ASSERT_EQ(made.code, 0) << made.err;
      const bool approximates = std::string_view(activation) == "gelu_new";
      EXPECT_EQ(made.err.find("approximates GELU") == std::string::npos, approximates) << made.err;
      const bool says = read_bytes(file).find("bert.hidden_activation") != std::string::npos;
      EXPECT_EQ(says, approximates);
      const std::string bundle = converted(dir, source, {"--dtype", "f32"});
      EXPECT_EQ(vector_of(file, "a dog"), vector_of(bundle, "a dog")) << name << activation;
    }
  }
}

// Readers take a window of 0 tokens for none.
TEST(GgufEncoder, AWindowOfTheTokenAloneIsWrittenAsOne) {
  const TempDir dir;
  const std::string source = copy_of(dir, "modernbert"), file = dir / "m.gguf";
  change_config(source, {{"local_attention", 0}});
  const Outcome made = write(source, file, {"--tokenizer-pre", "modern-bert"});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string key = "modern-bert.attention.sliding_window", bytes = read_bytes(file);
  const size_t value = bytes.find(key) + key.size() + sizeof(uint32_t);
  EXPECT_EQ(bytes.substr(value, 4), std::string("\1\0\0\0", 4));
  const std::string bundle = converted(dir, source, {"--dtype", "f32"});
  EXPECT_EQ(vector_of(file, "a dog"), vector_of(bundle, "a dog"));
}

TEST(GgufEncoder, TheFirstBertsHaveAListOfWords) {
  const TempDir dir;
  const std::string source = copy_of(dir, "bert");
  const Json words = Json::parse(read_bytes(source + "/tokenizer.json"))["model"]["vocab"];
  Line lines(words.size());
  for (const auto& [word, id] : words.items()) lines[id.get<size_t>()] = word;
  std::string list;
  for (const std::string& word : lines) list += word + "\n";
  write_bytes(source + "/vocab.txt", list);
  std::filesystem::remove(source + "/tokenizer.json");
  const Outcome made = write(source, dir / "m.gguf", {"--tokenizer-pre", "jina-v2-en"});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string bundle = converted(dir, source, {"--dtype", "f32"});
  EXPECT_EQ(vector_of(dir / "m.gguf", "the cat sat"), vector_of(bundle, "the cat sat"));
}

TEST(GgufEncoder, WhatNoFileCanSayIsRefused) {
  const TempDir dir;
  const auto refused = [&](const std::string& source, const Line& more, const std::string& why) {
    expect_refused(Line{"convert", source, "--to", "gguf", "-o", dir / "x.gguf"} + more, 4, why);
  };
  const Line pre = {"--tokenizer-pre", "jina-v2-en"};
  refused(fixture("encoder/bert"), pre, "'modules.json' has another pooling");
  refused(fixture("classifier/bert_tokens"), pre, "'architectures' has a head of labels for each");
  refused(fixture("classifier/distilbert"), {}, "'architectures' has a head of labels");
  refused(fixture("classifier/modernbert"), {}, "'architectures' has a head with biases");
  refused(fixture("encoder/embedding_gemma"), {}, "'modules.json' has other projections");
  refused(fixture("encoder/modernbert"), {}, "'modern-bert' has no tensor for it");
  refused(fixture("encoder/mpnet"), {}, "Ferry writes no GGUF of it");
  refused(checkpoint("bert"), {}, "GGUF has no name for this pre-tokenizer");
  const std::string source = copy_of(dir, "xlm_roberta");
  const Json config = Json::parse(read_bytes(source + "/config.json"));
  const auto with = [&](const Json& more) {
    Json changed = config;
    changed.update(more);
    write_bytes(source + "/config.json", changed.dump());
  };
  with({{"hidden_act", "relu"}});
  refused(source, {}, "'hidden_act' is another activation");
  with(Json::object());
  std::filesystem::remove(source + "/sentencepiece.bpe.model");
  refused(source, {}, "is a Unigram; for architecture 'bert' GGUF needs sentencepiece.bpe.model");
  const TempDir other;
  const std::string gemma = copy_of(other, "embedding_gemma");
  Json windows = Json::parse(read_bytes(gemma + "/config.json"));
  windows["layer_types"] = Json::array_t(windows["layer_types"].size(), "sliding_attention");
  write_bytes(gemma + "/config.json", windows.dump());
  refused(gemma, {"--tokenizer-pre", "roberta-bpe"},
          "'layer_types' has no layer of full attention");
}

// Numbers of a config that would divide by zero, of which a table would have no rows, or with which
// llama.cpp ends.
TEST(GgufEncoder, NumbersThatNoModelHasAreRefused) {
  const char* const kStep = "global_attn_every_n_layers";
  const std::tuple<const char*, Json, int, const char*> cases[] = {
      {"modernbert", {{kStep, 0}}, 4, "is no number of layers"},
      {"modernbert", {{kStep, 1e30}}, 4, "is no number of layers"},
      {"modernbert", {{kStep, 1}, {"layer_types", nullptr}}, 4, "leaves no layer a window"},
      {"bert", {{"type_vocab_size", nullptr}}, 3, "'type_vocab_size' is missing"},
      {"bert", {{"type_vocab_size", 0}}, 3, "type_vocab_size"}};
  for (const auto& [name, changes, code, why] : cases) {
    SCOPED_TRACE(changes.dump());
    const TempDir dir;
    const std::string source = copy_of(dir, name);
    change_config(source, changes);
    expect_refused(
        {"convert", source, "--to", "gguf", "--tokenizer-pre", "gpt-2", "-o", dir / "x.gguf"}, code,
        why);
  }
}

// The outputs of the head are those of the reference, also where the file is that of another
// family.
TEST(GgufEncoder, HeadsOfLabelsAreReadAgain) {
  for (const auto& [name, pre] : std::vector<std::pair<std::string, Line>>{
           {"bert", {"--tokenizer-pre", "jina-v2-en"}}, {"roberta", {}}}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const std::string source = fixture("classifier/" + name), file = dir / "m.gguf";
    const Outcome made = write(source, file, pre);
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_NE(made.err.find("runtimes give the outputs"), std::string::npos) << made.err;
    EXPECT_EQ(run_ferry({"verify", file, "--checkpoint", source}).code, 0);
    const std::string golden = source + "/golden.safetensors";
    const Outcome verified = run_ferry({"verify", file, "--reference", golden});
    EXPECT_EQ(verified.code, 0) << verified.err;
    const Line ask = {"--tokens", "3,7,9,4", "--logits"};
    const std::string bundle = converted(dir, source, {"--dtype", "f32"});
    const Outcome of_file = run_ferry(Line{"classify", file} + ask);
    EXPECT_EQ(of_file.code, 0) << of_file.err;
    EXPECT_EQ(of_file.out, run_ferry(Line{"classify", bundle} + ask).out);
  }
}

// A vector that is not normalised is in the file, but not said by it.
TEST(GgufEncoder, LengthsOfVectorsAreNoted) {
  const TempDir dir;
  const std::string source = copy_of(dir, "xlm_roberta");
  Json modules = Json::parse(read_bytes(source + "/modules.json"));
  modules.erase(2);
  write_bytes(source + "/modules.json", modules.dump());
  const Outcome made = write(source, dir / "m.gguf", {});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.err.find("bring vectors to a length of 1"), std::string::npos) << made.err;
}

}  // namespace
}  // namespace ferry::gguf_encoder_test
