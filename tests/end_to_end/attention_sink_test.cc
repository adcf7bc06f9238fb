// Programs with an attention sink: the logits are those of the official program with the same sink
// and window, before the window is full and far behind it, and sequences have no end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "runner/decoder.h"
#include "tests/cli/checkpoints.h"
#include "tests/end_to_end/verb_outcomes.h"

namespace ferry::attention_sink_test {
namespace {

using namespace verb_outcomes;

std::string llama() { return fixture("golden/llama"); }
const Line kSink = {"--dtype", "f32", "--attention-sink", "4,8"};
constexpr size_t kVocab = 64;

template <class T>
std::vector<T> golden(const std::string& name) {
  const std::string bytes =
      TensorFile(fixture("official_llm/attention_sink.safetensors")).bytes_of(name);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// A bundle and its decoder.
struct Loaded {
  ThreadPool pool{2};
  packer::Bundle bundle;
  std::unique_ptr<runner::Decoder> decoder;

  explicit Loaded(const std::string& path, const runner::MethodOptions& options = {})
      : bundle(packer::Bundle::open(path, /*check_digests=*/false, pool).value()),
        decoder(runner::load_decoder(bundle, pool, options).value()) {}

  // Returns the logits behind every call of `length` tokens.
  std::vector<float> logits(const std::vector<int64_t>& tokens, size_t length) const {
    std::vector<float> all;
    for (size_t begin = 0; begin < tokens.size(); begin += length) {
      const size_t count = std::min(length, tokens.size() - begin);
      const auto result = decoder->forward(std::span(tokens).subspan(begin, count));
      if (!result) {
        ADD_FAILURE() << result.error().message;
        return all;
      }
      all.insert(all.end(), result->end() - kVocab, result->end());
    }
    return all;
  }
};

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

// 64 tokens are three turns of a ring of 16 slots.
TEST(AttentionSink, LogitsAreThoseOfTheOfficialProgram) {
  struct Case {
    Line options;
    float bound;
  };
  const Case cases[] = {{{}, 1e-5F},
                        {{"--prefill-length", "3"}, 1e-5F},
                        {{"--shards", "3"}, 1e-5F},
                        {{"--logits", "all", "--prefill-length", "5"}, 1e-5F},
                        {{"--layout", "one-program"}, 1e-5F},
                        {{"--init-buffers", "all"}, 1e-5F},
                        {{"--kv-dtype", "f16"}, 0.01F},
                        {{"--kv-dtype", "i8"}, 0.2F}};
  for (const auto& [options, bound] : cases) {
    SCOPED_TRACE(testing::PrintToString(options));
    const TempDir dir;
    const std::string bundle = converted(dir, llama(), kSink + options);
    for (const bool poison : {false, true}) {
      const runner::MethodOptions method = {.poison = poison};
      const std::vector<int64_t> tokens = golden<int64_t>("tokens");
      EXPECT_LT(
          largest_difference(Loaded(bundle, method).logits(tokens, 1), golden<float>("logits")),
          bound);
      EXPECT_LT(largest_difference(Loaded(bundle, method).logits(tokens, 8),
                                   golden<float>("logits_of_calls")),
                bound);
    }
  }
}

TEST(AttentionSink, QuantisedProgramsStayNearIt) {
  for (const Line& options : {Line{"--quantize", "8da8w"}, Line{"--dtype", "f16"},
                              Line{"--dtype", "bf16", "--kv-dtype", "i8"}}) {
    SCOPED_TRACE(options.back());
    const TempDir dir;
    const std::string bundle = converted(dir, llama(), Line{"--attention-sink", "4,8"} + options);
    EXPECT_LT(largest_difference(Loaded(bundle).logits(golden<int64_t>("tokens"), 1),
                                 golden<float>("logits")),
              0.7F);
  }
}

// 160 tokens are more than the model's 128 positions, which begin anew behind the sink.
TEST(AttentionSink, PositionsInTheTextAreThoseOfTheModelUnderAMask) {
  const TensorFile expected(fixture("attention_sink/text_positions.safetensors"));
  std::vector<int64_t> tokens(160);
  std::vector<float> logits(160 * kVocab);
  const std::string ids = expected.bytes_of("tokens"), rows = expected.bytes_of("logits");
  ASSERT_EQ(ids.size(), tokens.size() * sizeof(int64_t));
  ASSERT_EQ(rows.size(), logits.size() * sizeof(float));
  std::memcpy(tokens.data(), ids.data(), ids.size());
  std::memcpy(logits.data(), rows.data(), rows.size());
  for (const Line& options : {Line{}, Line{"--shards", "2"}, Line{"--prefill-length", "5"}}) {
    const TempDir dir;
    const std::string bundle =
        converted(dir, llama(), kSink + Line{"--sink-positions", "text"} + options);
    EXPECT_LT(largest_difference(Loaded(bundle).logits(tokens, 1), logits), 1e-5F);
    std::vector<float> of_calls;
    for (size_t end = 5; end <= 160; end += 5) {
      of_calls.insert(of_calls.end(), logits.begin() + static_cast<ptrdiff_t>((end - 1) * kVocab),
                      logits.begin() + static_cast<ptrdiff_t>(end * kVocab));
    }
    EXPECT_LT(largest_difference(Loaded(bundle).logits(tokens, 5), of_calls), 1e-5F);
    EXPECT_EQ(run_ferry({"verify", bundle, "--checkpoint", llama()}).code, 0);
  }
}

TEST(AttentionSink, PositionsOfTheSinkNeedASink) {
  const TempDir dir;
  for (const char* positions : {"text", "caches"}) {
    const Outcome run =
        run_ferry({"convert", llama(), "-o", dir / "none", "--sink-positions", positions});
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_NE(run.err.find("only with"), std::string::npos) << run.err;
  }
  // The default is not recorded.
  const std::string bundle = converted(dir, llama(), kSink + Line{"--sink-positions", "caches"});
  EXPECT_EQ(read_bytes(bundle + "/manifest.json").find("sink-positions"), std::string::npos);
}

// Caches of an earlier sequence have no effect on the next one.
TEST(AttentionSink, ASequenceBeginsAnew) {
  const TempDir dir;
  const Loaded loaded(converted(dir, llama(), kSink));
  std::vector<int64_t> tokens = golden<int64_t>("tokens");
  const std::vector<float> first = loaded.logits(tokens, 1);
  std::ranges::reverse(tokens);
  loaded.decoder->restart();
  loaded.logits(tokens, 7);
  std::ranges::reverse(tokens);
  loaded.decoder->restart();
  EXPECT_EQ(loaded.logits(tokens, 1), first);
}

TEST(AttentionSink, AsStatedAndInF64) {
  const TempDir dir;
  for (const char* caches : {"f32", "f16", "i8"}) {
    const std::string bundle = converted(dir, llama(), kSink + Line{"--kv-dtype", caches});
    const std::vector<int64_t> tokens = golden<int64_t>("tokens");
    const std::vector<float> logits = Loaded(bundle).logits(tokens, 1);
    EXPECT_LT(largest_difference(Loaded(bundle, {.literal = true}).logits(tokens, 1), logits),
              1e-5F)
        << caches;
    if (std::string(caches) == "f32") {
      EXPECT_LT(largest_difference(Loaded(bundle, {.f64 = true}).logits(tokens, 1), logits), 1e-5F);
    }
    std::filesystem::remove_all(bundle);
  }
}

// Multiplies the bf16 head by 32, so that tokens are likely enough for a draft to guess them.
void raise_logits(TensorFile& file) {
  std::string head = file.bytes_of("lm_head.weight");
  for (size_t i = 0; i < head.size(); i += 2) {
    uint16_t value = 0;
    std::memcpy(&value, head.data() + i, 2);
    if ((value & 0x7f80) != 0) value = static_cast<uint16_t>(value + (5 << 7));
    std::memcpy(head.data() + i, &value, 2);
  }
  file.set_bytes("lm_head.weight", head);
}

// Guesses that were wrong are taken back, also over places of the ring that were written again.
TEST(AttentionSink, GuessesChangeNoToken) {
  const TempDir dir, other;
  const std::string sure = changed_checkpoint(dir, "golden/llama", raise_logits);
  const std::string bundle = converted(dir, sure, kSink + Line{"--logits", "all"});
  const std::string draft =
      converted(other, sure, {"--attention-sink", "4,6", "--quantize", "8da8w"});
  const Line run = {"run", bundle,         "--tokens", "1,5,9", "--max-new",
                    "200", "--ignore-eos", "--greedy", "--json"};
  const Json plain = run_ferry(run).json()["result"];
  EXPECT_EQ(plain["tokens"].size(), 200U);
  EXPECT_EQ(plain["stop"], "max_new");
  const Json lookup = run_ferry(run + Line{"--lookup", "7"}).json()["result"];
  EXPECT_EQ(lookup["tokens"], plain["tokens"]);
  EXPECT_GT(lookup["stats"]["lookahead_accepted"], 0);
  const Json drafted = run_ferry(run + Line{"--draft", draft}).json()["result"];
  EXPECT_EQ(drafted["tokens"], plain["tokens"]);
  EXPECT_GT(drafted["stats"]["lookahead_accepted"], 20);
  EXPECT_LT(drafted["stats"]["lookahead_accepted"], 180);
}

std::string joined(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

TEST(AttentionSink, AStateIsContinuedBehindTheWindow) {
  for (const char* caches : {"f32", "i8"}) {
    const TempDir dir;
    const std::string bundle = converted(dir, llama(), kSink + Line{"--kv-dtype", caches});
    std::vector<int64_t> tokens = golden<int64_t>("tokens");
    const Line more = {"--ignore-eos", "--greedy", "--json"};
    const auto run = [&](const std::vector<int64_t>& ids, const Line& options) {
      return run_ferry_once(Line{"run", bundle, "--tokens", joined(ids)} + options + more);
    };
    const Json plain = run(tokens, {"--max-new", "30"}).json()["result"];
    for (const size_t first : {size_t{6}, size_t{40}}) {
      const std::string state = dir / ("state" + std::to_string(first));
      const std::vector<int64_t> beginning(tokens.begin(),
                                           tokens.begin() + static_cast<std::ptrdiff_t>(first));
      run(beginning, {"--max-new", "1", "--save-state", state});
      const Json loaded = run(tokens, {"--max-new", "30", "--load-state", state}).json()["result"];
      EXPECT_EQ(loaded["tokens"], plain["tokens"]);
      EXPECT_EQ(loaded["kept_tokens"], first);
      // The last token alone may be taken back where the ring has turned.
      EXPECT_EQ(run(beginning, {"--load-state", state, "--max-new", "1"}).code, 0);
      const std::vector<int64_t> less(beginning.begin(), beginning.end() - 2);
      const Outcome shorter = run(less, {"--load-state", state, "--max-new", "1"});
      EXPECT_EQ(shorter.code, first < 12 ? 0 : 2) << shorter.err;
    }
  }
}

TEST(AttentionSink, SequencesSideBySideHaveTheAnswersOfEach) {
  const TempDir dir;
  const std::string bundle = converted(dir, text_checkpoint(dir), kSink);
  write_bytes(dir / "p", "Once upon a time\nThe sea\nA\n");
  const Line run = {"run", bundle,         "--prompts", dir / "p", "--max-new",
                    "60",  "--ignore-eos", "--greedy",  "--json"};
  const Json alone = run_ferry(run).json()["result"]["answers"];
  EXPECT_EQ(run_ferry(run + Line{"--parallel", "3"}).json()["result"]["answers"].size(), 3U);
  const Json together = run_ferry(run + Line{"--parallel", "3"}).json()["result"]["answers"];
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(together[i]["tokens"], alone[i]["tokens"]);
}

TEST(AttentionSink, AdaptersGoWithIt) {
  const TempDir dir;
  const std::string bundle = converted(dir, llama(),
                                       {"--dtype", "f32", "--attention-sink", "4,61", "--adapters",
                                        "formal=" + fixture("adapters/formal")});
  verified({bundle, "--adapter", "formal", "--reference",
            fixture("adapters/formal.golden.safetensors")});
}

// Every turn has more tokens than the caches have slots.
TEST(AttentionSink, AChatDoesNotEnd) {
  const TempDir dir;
  const std::string bundle = converted(dir, text_checkpoint(dir), kSink);
  const Outcome chat =
      run_ferry_on("Hello, who are you?\nWhy?\nAnd what do you do at sea?\n",
                   {"run", bundle, "--interactive", "--ignore-eos", "--max-new", "40", "--json"});
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_EQ(std::ranges::count(chat.out, '\n'), 3) << chat.out;
  EXPECT_EQ(chat.out.find("\"context\""), std::string::npos) << chat.out;
}

TEST(AttentionSink, TheManifestStatesIt) {
  const TempDir dir;
  const std::string bundle = converted(dir, llama(), kSink);
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_EQ(manifest["version"], 20);
  EXPECT_EQ(manifest["model"]["attention_sink"], Json({{"sink", 4}, {"window", 8}}));
  EXPECT_EQ(manifest["model"]["context_length"], 20);
  EXPECT_EQ(manifest["model"]["prefill_length"], 8);
  EXPECT_EQ(Loaded(bundle).decoder->capacity(), 2147483647);
  ASSERT_EQ(run_ferry({"card", bundle, "-o", dir / "card"}).code, 0);
  EXPECT_NE(read_bytes(dir / "card/README.md")
                .find("the first 4 and the last 8 tokens, at most 8 in one call"),
            std::string::npos);
}

// Before the window is full the model is that of the checkpoint; no reference is longer.
TEST(AttentionSink, IsProvedUpToTheEndOfTheWindow) {
  for (const Line& options :
       {Line{"--dtype", "f32"}, Line{"--kv-dtype", "f16"}, Line{"--kv-dtype", "i8"},
        Line{"--dtype", "f16"}, Line{"--quantize", "8da8w"}, Line{"--shards", "2"}}) {
    SCOPED_TRACE(options.back());
    const TempDir dir;
    const std::string bundle = converted(dir, llama(), Line{"--attention-sink", "4,61"} + options);
    const Json report =
        verified({bundle, "--checkpoint", llama(), "--reference", llama() + "/golden.safetensors"});
    EXPECT_EQ(report["result"]["parity"], true);
    EXPECT_NE(report["result"]["does_not_prove"].dump().find("more than 65 tokens"),
              std::string::npos);
  }
  const TempDir dir;
  const std::string small = converted(dir, llama(), kSink);
  EXPECT_EQ(verified({small, "--checkpoint", llama()})["result"]["parity"], true);
  expect_refused(
      {"verify", small, "--reference", llama() + "/golden.safetensors"}, 3,
      "prompt 'long' has 50 tokens, the bundle's attention sink equals the model up to a "
      "window that ends at 12");
}

// A bundled program holds what its first call gives, and no reference is embedded that is longer.
TEST(AttentionSink, ReferencesInBundles) {
  const TempDir dir;
  const Line reference = {"--reference", llama() + "/golden.safetensors"};
  expect_refused(Line{"convert", llama(), "-o", dir / "b"} + kSink + reference, 3,
                 "a window that ends at 12");
  const Outcome bundled =
      run_ferry(Line{"convert", llama(), "--to", "bpte", "-o", dir / "m.bpte"} + kSink + reference);
  EXPECT_EQ(bundled.code, 0) << bundled.err;
}

TEST(AttentionSink, OtherValuesAreRefused) {
  const TempDir dir;
  const auto refuse = [&](const Line& options, const std::string& message) {
    expect_refused(Line{"convert", llama(), "-o", dir / "b"} + options, 2, message);
  };
  for (const char* value : {"4", "0,8", "4,0", "-4,8", "4,-8", "4,8,9", "4,", ",8", "a,b", " 4,8",
                            "4,99999999999", "99999999999999999999,8"}) {
    refuse({"--attention-sink", value}, "expected SINK,WINDOW, 1 to 1073741824 tokens each");
  }
  refuse({"--attention-sink", "4,63"}, "makes 130 positions (SINK + 2 WINDOW), the model has 128");
  refuse({"--attention-sink", "1073741824,1073741824"}, "the model has 128");
  refuse(kSink + Line{"--context-length", "64"},
         "--context-length 64: the caches have 20 positions with attention-sink 4,8");
  refuse(kSink + Line{"--prefill-length", "9"}, "must be from 1 to 8 with attention-sink 4,8");
  refuse(kSink + Line{"--program", "static"}, "the caller keeps the caches of a static program");
}

TEST(AttentionSink, OtherModelsAreRefusedByName) {
  const std::pair<const char*, const char*> models[] = {
      {"golden/phi4_mini", "its RoPE (longrope) depends on the length"},
      {"golden/mistral", "it has layers with a window of their own"},
      {"golden/gpt2", "it has layers without RoPE"},
      {"golden/falcon_alibi", "it has layers without RoPE"},
      {"golden/lfm2", "it has layers without attention, or with a state"},
      {"golden/mamba2", "it has layers without attention, or with a state"},
      {"golden/qwen2_5_vl", "images and sounds would leave the window"},
      {"source/t5", "its tokens attend to the output of an encoder"},
      {"speech/whisper", "its tokens attend to the output of an encoder"},
      {"encoder/bert", "an encoder takes a whole text"}};
  for (const auto& [model, why] : models) {
    SCOPED_TRACE(model);
    const TempDir dir;
    expect_refused({"convert", fixture(model), "-o", dir / "b", "--attention-sink", "4,8"}, 4, why);
  }
}

// A family either computes with a sink what it computes without one, or is refused by name.
TEST(AttentionSink, EveryFamilyIsProvedOrRefused) {
  size_t proved = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixture("golden"))) {
    const std::string model = entry.path();
    SCOPED_TRACE(model);
    const TempDir dir;
    const Outcome outcome =
        run_ferry({"convert", model, "-o", dir / "b", "--attention-sink", "2,14"});
    if (outcome.code != 0) {
      EXPECT_EQ(outcome.code, 4) << outcome.err;
      EXPECT_NE(outcome.err.find("attention-sink: is not supported for"), std::string::npos)
          << outcome.err;
      continue;
    }
    const Outcome verified = run_ferry({"verify", dir / "b", "--checkpoint", model});
    EXPECT_EQ(verified.code, 0) << (verified.err + verified.out).substr(0, 400);
    proved += verified.code == 0 ? 1 : 0;
  }
  EXPECT_GT(proved, 20U);
}

}  // namespace
}  // namespace ferry::attention_sink_test
