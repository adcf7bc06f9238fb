// run --save-state and --load-state: a run continues the sequence of another one.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "formats/safetensors/writer.h"
#include "tests/cli/checkpoints.h"

namespace ferry::saved_state_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

std::vector<int64_t> ids_in(const std::string& name, const std::string& tensor) {
  const std::string bytes = TensorFile(fixture(name + "/golden.safetensors")).bytes_of(tensor);
  std::vector<int64_t> values(bytes.size() / sizeof(int64_t));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::string joined(const std::vector<int64_t>& ids, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + std::to_string(ids[i]);
  return text;
}

Json run(const std::string& bundle, const std::string& tokens, const Line& more) {
  const Outcome outcome = run_ferry(Line{"run", bundle, "--tokens", tokens, "--json"} + more);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.json()["result"];
}

struct Case {
  const char* checkpoint;
  Line options;
  bool takes_back = true;  // whether the state serves a prompt that has only its beginning
};

// The prompt of the golden, of which a state has the first 20 tokens.
TEST(SavedState, IsContinuedWithTheTokensOfTheOriginalModel) {
  const Case cases[] = {
      {"llama3_tied", {"--dtype", "f32"}},
      {"llama3_tied", {"--dtype", "f32", "--shards", "2"}},
      {"llama3_tied", {"--dtype", "f32", "--kv-dtype", "f16"}},
      {"golden/deepseek_v3", {"--dtype", "f32"}},
      {"golden/mistral", {"--dtype", "f32"}},
      {"qwen3_5_text", {"--dtype", "f32"}, false},
      {"golden/mamba2", {"--dtype", "f32"}, false},
      {"golden/phi4_mini", {"--dtype", "f32"}, false},
  };
  for (const auto& [checkpoint, options, takes_back] : cases) {
    SCOPED_TRACE(checkpoint + testing::PrintToString(options));
    const TempDir dir;
    const std::string bundle = dir / "b", state = dir / "state";
    ASSERT_EQ(run_ferry(Line{"convert", fixture(checkpoint), "-o", bundle} + options).code, 0);
    const std::vector<int64_t> ids = ids_in(checkpoint, "short.input_ids"),
                               greedy = ids_in(checkpoint, "short.greedy_ids");
    const size_t first = ids.size() - 4;
    run(bundle, joined(ids, first), {"--max-new", "1", "--save-state", state});
    const Json all = run(
        bundle, joined(ids, ids.size()),
        {"--max-new", std::to_string(greedy.size()), "--load-state", state, "--save-state", state});
    EXPECT_EQ(all["tokens"], Json(greedy));
    EXPECT_EQ(all["kept_tokens"], first);
    EXPECT_EQ(all["stats"]["evaluated_tokens"], 4);

    // The state has the answer now.
    const Outcome again = run_ferry({"run", bundle, "--tokens", joined(ids, ids.size()),
                                     "--max-new", "4", "--load-state", state, "--json"});
    EXPECT_EQ(again.code, takes_back ? 0 : 2) << again.err;
    if (takes_back) {
      EXPECT_EQ(again.json()["result"]["tokens"][0], greedy[0]);
      EXPECT_EQ(again.json()["result"]["kept_tokens"], ids.size() - 1);
    } else {
      EXPECT_NE(again.err.find("of this state: "), std::string::npos) << again.err;
    }
  }
}

TEST(SavedState, OfGgufFiles) {
  const TempDir dir;
  const std::string file = dir / "m.gguf", state = dir / "state", other = dir / "o.gguf";
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "--to", "gguf", "-o", file}).code, 0);
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "--to", "gguf", "--outtype", "q8_0", "-o",
                       other})
                .code,
            0);
  run(file, "1,2,3", {"--max-new", "3", "--save-state", state});
  const Json plain = run(file, "1,2,3,9", {"--max-new", "4"});
  const Json loaded = run(file, "1,2,3,9", {"--max-new", "4", "--load-state", state});
  EXPECT_EQ(loaded["tokens"], plain["tokens"]);
  EXPECT_EQ(loaded["kept_tokens"], 3);
  const Outcome refused = run_ferry({"run", other, "--tokens", "1,2,3,9", "--load-state", state});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("is the state of another bundle"), std::string::npos) << refused.err;
}

TEST(SavedState, WhatDoesNotFitIsRefused) {
  const TempDir dir;
  const std::string bundle = dir / "b", state = dir / "state";
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", bundle}).code, 0);
  run(bundle, "1,2,3", {"--max-new", "2", "--save-state", state});
  const auto refuses = [](const Line& line, int code, const std::string& says) {
    const Outcome outcome = run_ferry(Line{"run"} + line);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  };
  refuses({bundle, "--tokens", "2,3", "--load-state", state}, 2, "does not begin with a token");
  refuses({bundle, "--tokens", "1", "--load-state", state}, 2, "or has no other");
  refuses({bundle, "--tokens", "1,2", "--save-state", bundle + "/state"}, 2, "no files but those");
  refuses({bundle, "--tokens", "1,2", "--load-state", dir / "none"}, 5, "none");
  refuses({bundle, "--interactive", "--load-state", state}, 2, "does not take --load-state");
  write_bytes(dir / "other", "no state");
  refuses({bundle, "--tokens", "1,2", "--save-state", dir / "other"}, 6, "exists and is no state");
  EXPECT_EQ(read_bytes(dir / "other"), "no state");
  refuses({bundle, "--tokens", "1,2", "--save-state", dir / "x", "--dump-logits", dir / "x"}, 2,
          "another output has this path");
  const std::string fixed = dir / "static";
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", fixed, "--program", "static"}).code,
            0);
  refuses({fixed, "--tokens", "1,2", "--save-state", state}, 4, "static programs");
}

// The file is untrusted: every tensor is checked before it is used.
TEST(SavedState, MalformedFilesAreRefused) {
  const TempDir dir;
  const std::string bundle = dir / "b", state = dir / "state";
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", bundle}).code, 0);
  run(bundle, "1,2,3", {"--max-new", "2", "--save-state", state});
  const TensorFile file(state);
  const std::string programs = file.bytes_of("programs");
  const auto refuses = [&](const std::vector<formats::TensorData>& tensors,
                           const std::string& says) {
    const std::string path = dir / "wrong";
    std::filesystem::remove(path);
    ASSERT_TRUE(formats::write_safetensors(path, tensors));
    const Outcome outcome = run_ferry({"run", bundle, "--tokens", "1,2,3,4", "--load-state", path});
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
  };
  const std::vector<int64_t> tokens(4, 1), many(200000, 1);
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  refuses({}, "there is no tensor 'programs'");
  refuses({{{"programs", DType::kU8, {31}}, bytes(programs).first(31)}}, "expected u8[32]");
  refuses({{{"programs", DType::kU8, {32}}, bytes(programs)}}, "there is no tensor 'tokens'");
  refuses({{{"programs", DType::kU8, {32}}, bytes(programs)},
           {{"tokens", DType::kI64, {std::ssize(many)}}, bytes(many)}},
          "tensor 'tokens' is [200000]");
  refuses({{{"programs", DType::kU8, {32}}, bytes(programs)},
           {{"tokens", DType::kI64, {4}}, bytes(tokens)}},
          "has 2 tensors, the state of these programs has");
  // A cache with the sizes of heads and head_dim exchanged.
  std::string turned = read_bytes(state);
  const size_t begin = turned.find("\"shape\":[1,4,") + 13, end = turned.find(']', begin);
  const std::string sizes = turned.substr(begin, end - begin);
  const size_t comma = sizes.find(',');
  ASSERT_NE(comma, std::string::npos);
  turned.replace(begin, end - begin, sizes.substr(comma + 1) + "," + sizes.substr(0, comma));
  write_bytes(dir / "turned", turned);
  const Outcome other =
      run_ferry({"run", bundle, "--tokens", "1,2,3,4", "--load-state", dir / "turned"});
  EXPECT_EQ(other.code, 3) << other.err;
  EXPECT_NE(other.err.find("expected f32[1, 4, "), std::string::npos) << other.err;

  std::string cut = read_bytes(state);
  cut.pop_back();
  write_bytes(dir / "cut", cut);
  const Outcome outcome =
      run_ferry({"run", bundle, "--tokens", "1,2,3,4", "--load-state", dir / "cut"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
}

}  // namespace
}  // namespace ferry::saved_state_test
