// ferry verify --perplexity, compared with the logits that the original implementation computed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::perplexity_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

std::string convert(const TempDir& dir, const std::string& source, const Line& options = {}) {
  Line line = {"convert", source, "-o", dir / "b"};
  line.insert(line.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return dir / "b";
}

template <class T>
std::vector<T> values(const TensorFile& file, const std::string& tensor) {
  const std::string bytes = file.bytes_of(tensor);
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// The prompts of a reference, and the NLL of each token, computed from its logits by the
// definition.
struct Golden {
  std::vector<std::vector<int64_t>> ids;
  std::vector<double> nll;

  explicit Golden(const std::string& checkpoint) {
    const TensorFile file(fixture(checkpoint + "/golden.safetensors"));
    for (const auto& [name, entry] : file.header.items()) {
      if (!name.ends_with(".input_ids")) continue;
      const std::string prompt = name.substr(0, name.size() - std::strlen("input_ids"));
      ids.push_back(values<int64_t>(file, name));
      const std::vector<float> logits = values<float>(file, prompt + "logits");
      const size_t vocab = logits.size() / ids.back().size();
      for (size_t t = 0; t + 1 < ids.back().size(); ++t) {
        double sum = 0;
        for (size_t v = 0; v < vocab; ++v) sum += std::exp(double{logits[t * vocab + v]});
        const auto next = static_cast<size_t>(ids.back()[t + 1]);
        nll.push_back(std::log(sum) - double{logits[t * vocab + next]});
      }
    }
  }
  double mean() const {
    double sum = 0;
    for (const double x : nll) sum += x;
    return sum / static_cast<double>(nll.size());
  }
  double error() const {
    double sum = 0;
    for (const double x : nll) sum += (x - mean()) * (x - mean());
    const auto n = static_cast<double>(nll.size());
    return std::sqrt(sum / n / (n - 1));
  }
  // Writes each prompt on a line of its own, `times` times.
  void write(const std::string& path, int times = 1) const {
    std::string text;
    for (const std::vector<int64_t>& prompt : ids) {
      for (int i = 0; i < times; ++i) {
        for (const int64_t id : prompt) text += std::to_string(id) + ' ';
      }
      text += '\n';
    }
    write_bytes(path, text);
  }
};

Json measure(const std::string& bundle, const std::string& file, const Line& more = {}) {
  Line line = {"verify", bundle, "--perplexity", file, "--json"};
  line.insert(line.end(), more.begin(), more.end());
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.json();
}

TEST(PerplexityOfBundles, IsThatOfTheReferencesLogits) {
  const std::vector<std::pair<std::string, Line>> variants = {
      {"golden/qwen3", {}},
      {"golden/qwen3", {"--logits", "all"}},
      {"golden/qwen3", {"--logits", "all", "--prefill-length", "5", "--shards", "2"}},
      {"golden/qwen3", {"--program", "static"}},
      {"golden/gemma3", {"--program", "static", "--prefill-length", "7"}},
      {"golden/qwen3_next_moe", {"--logits", "all"}},
      {"qwen3_5_text", {}}};
  for (const auto& [checkpoint, options] : variants) {
    SCOPED_TRACE(checkpoint + testing::PrintToString(options));
    const TempDir dir;
    const Golden golden(checkpoint);
    golden.write(dir / "ids");
    const Json report = measure(convert(dir, fixture(checkpoint), options), dir / "ids");
    EXPECT_EQ(report["predicted"], golden.nll.size());
    EXPECT_NEAR(report["nll_mean"], golden.mean(), 1e-5);
    EXPECT_NEAR(report["nll_error"], golden.error(), 1e-5);
    EXPECT_NEAR(report["perplexity"], std::exp(golden.mean()), 1e-5 * std::exp(golden.mean()));
    EXPECT_NEAR(report["perplexity_error"], std::exp(golden.mean()) * golden.error(), 1e-3);
    EXPECT_EQ(report["sequences"], golden.ids.size());
    EXPECT_EQ(report["token_by_token"],
              !std::ranges::count(options, "all") && !std::ranges::count(options, "static"));
  }
}

// The second window has the same prompt, and begins at position zero.
TEST(PerplexityOfBundles, WindowsBeginAtPositionZero) {
  for (const Line& options : {Line{}, Line{"--logits", "all"}, Line{"--program", "static"}}) {
    const TempDir dir;
    Golden golden("golden/qwen3");
    golden.ids.erase(golden.ids.begin() + 1, golden.ids.end());
    const size_t tokens = golden.ids[0].size();
    golden.nll.resize(tokens - 1);
    golden.write(dir / "ids", /*times=*/3);
    const std::string window = std::to_string(tokens);
    const Json report = measure(convert(dir, fixture("golden/qwen3"), options), dir / "ids",
                                {"--window", window, "--stride", window});
    EXPECT_EQ(report["windows"], 3);
    EXPECT_EQ(report["predicted"], 3 * (tokens - 1));
    EXPECT_NEAR(report["nll_mean"], golden.mean(), 1e-5);
  }
}

// The tokens that a window adds have the same NLL in a file of this window alone.
TEST(PerplexityOfBundles, StridesCountTheTokensThatAreNew) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("golden/qwen3"), {"--logits", "all"});
  const std::vector<int64_t> ids = Golden("golden/qwen3").ids[0];
  const auto sum_of = [&](size_t begin, size_t end) {
    std::string text;
    for (size_t i = begin; i < end; ++i) text += std::to_string(ids[i]) + ',';
    write_bytes(dir / "part", text);
    const Json report = measure(bundle, dir / "part");
    return report["nll_mean"].get<double>() * report["predicted"].get<double>();
  };
  ASSERT_GE(ids.size(), 16u);
  std::string text;
  for (size_t i = 0; i < 16; ++i) text += std::to_string(ids[i]) + ',';
  write_bytes(dir / "ids", text);
  const Json report = measure(bundle, dir / "ids", {"--window", "8", "--stride", "3"});
  double sum = sum_of(0, 8);
  for (const size_t begin : {3, 6}) sum += sum_of(begin, begin + 8) - sum_of(begin, begin + 5);
  sum += sum_of(9, 16) - sum_of(9, 14);
  EXPECT_EQ(report["windows"], 4);
  EXPECT_EQ(report["predicted"], 15);
  EXPECT_NEAR(report["nll_mean"].get<double>() * 15, sum, 1e-4);
}

TEST(PerplexityOfBundles, AnotherBundleAndTheCheckpointAreRunBeside) {
  const TempDir dir, half, still;
  const std::string checkpoint = fixture("golden/qwen3");
  const Golden golden("golden/qwen3");
  golden.write(dir / "ids");
  const std::string exact = convert(dir, checkpoint);
  const std::string rounded = convert(half, checkpoint, {"--dtype", "bf16", "--logits", "all"});
  const std::string fixed = convert(still, checkpoint, {"--program", "static"});
  const Line windows = {"--window", "12", "--stride", "5"};
  const auto with = [&](Line more) {
    more.insert(more.end(), windows.begin(), windows.end());
    return more;
  };
  const Json alone = measure(rounded, dir / "ids", windows);
  for (const Line& other :
       {Line{"--against", exact}, Line{"--against", fixed}, Line{"--checkpoint", checkpoint}}) {
    SCOPED_TRACE(testing::PrintToString(other));
    const Json report = measure(rounded, dir / "ids", with(other));
    EXPECT_EQ(report["nll_mean"], alone["nll_mean"]);
    EXPECT_NEAR(report["nll_difference"],
                report["nll_mean"].get<double>() - report["against"]["nll_mean"].get<double>(),
                1e-12);
    EXPECT_GT(report["kl_mean"], 1e-8);
    EXPECT_LT(report["kl_mean"], 1e-2);
    EXPECT_LE(report["kl_median"], report["kl_p99"]);
    EXPECT_LE(report["kl_p99"], report["kl_max"]);
    EXPECT_GT(report["top1_agreement"], 0.9);
    const Json itself = measure(exact, dir / "ids", with(other));
    EXPECT_LT(itself["kl_max"], 1e-9);
    EXPECT_EQ(itself["top1_agreement"], 1.0);
    EXPECT_NEAR(itself["nll_difference"], 0, 1e-6);
    EXPECT_NEAR(report["against"]["nll_mean"], itself["nll_mean"], 1e-6);
  }
}

TEST(PerplexityOfBundles, LimitsThatAreNotKeptEndWithCodeOne) {
  const TempDir dir, coarse;
  Golden("golden/qwen3").write(dir / "ids");
  const std::string exact = convert(dir, fixture("golden/qwen3"));
  const std::string rounded = convert(coarse, fixture("golden/qwen3"), {"--quantize", "8da4w"});
  const auto gate = [&](const Line& limits) {
    Line line = {"verify", rounded, "--perplexity", dir / "ids", "--against", exact, "--json"};
    line.insert(line.end(), limits.begin(), limits.end());
    return run_ferry(line);
  };
  const Json free = gate({}).json()["result"];
  EXPECT_FALSE(free.contains("limits"));
  EXPECT_LE(free["kl_p99"], free["kl_p999"]);
  EXPECT_LE(free["kl_p999"], free["kl_max"]);
  const double kl = free["kl_mean"], top1 = free["top1_agreement"];
  const Outcome kept = gate({"--max-kl", std::to_string(2 * kl), "--min-top1", "0", "--min-top5",
                             "0", "--max-flips", "1", "--max-kl-p999", "1000"});
  EXPECT_EQ(kept.code, 0) << kept.err;
  EXPECT_EQ(kept.json()["result"]["within_limits"], true);
  const Json result = kept.json()["result"];
  EXPECT_EQ(result["limits"].size(), 5u);
  // Each limit has the name and the value of a member.
  for (const Json& limit : result["limits"]) {
    EXPECT_EQ(limit["value"], result[limit["name"].get<std::string>()]) << limit;
  }
  const Outcome broken = gate({"--max-kl", std::to_string(kl / 2), "--min-top1", "0"});
  EXPECT_EQ(broken.code, 1);
  EXPECT_EQ(broken.json()["result"]["within_limits"], false);
  EXPECT_NE(broken.err.find("limit not kept: " + rounded + ": kl_mean is "), std::string::npos)
      << broken.err;
  EXPECT_EQ(broken.err.find("top1_agreement is"), std::string::npos) << broken.err;
  EXPECT_LT(top1, 1);
  EXPECT_EQ(gate({"--min-top1", "1"}).code, 1);
  EXPECT_EQ(gate({"--min-top1", "1.5"}).code, 2);
  EXPECT_EQ(gate({"--max-kl", "-1"}).code, 2);
  EXPECT_EQ(run_ferry({"verify", rounded, "--max-kl", "1"}).code, 2);
  EXPECT_EQ(run_ferry({"verify", rounded, "--perplexity", dir / "ids", "--max-kl", "1"}).code, 2);
}

TEST(PerplexityOfBundles, TextIsTokenizedAsAWhole) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  // The special tokens of this tokenizer are beyond the model's vocabulary.
  Json tokenizer = Json::parse(read_bytes(fixture("tokenizer/llama3/tokenizer.json")));
  tokenizer["post_processor"] = nullptr;
  write_bytes(source + "/tokenizer.json", tokenizer.dump());
  const std::string bundle = convert(dir, source, {"--logits", "all"});
  const std::string text = "He\nHe!";
  write_bytes(dir / "text", text);
  const Outcome ids = run_ferry_on(Json(text).dump() + "\n", {"tokenize", bundle});
  write_bytes(dir / "ids", ids.out);  // the ids are a list in brackets
  const Json report = measure(bundle, dir / "text", {"--text"});
  const Json same = measure(bundle, dir / "ids");
  EXPECT_EQ(report["nll_mean"], same["nll_mean"]);
  EXPECT_FALSE(same.contains("bytes"));
  EXPECT_FALSE(same.contains("bits_per_byte"));
  EXPECT_EQ(report["bytes"], text.size());
  EXPECT_NEAR(report["bits_per_byte"],
              report["nll_mean"].get<double>() * report["predicted"].get<double>() / std::log(2) /
                  static_cast<double>(text.size()),
              1e-9);
}

TEST(PerplexityOfBundles, WhatCannotBeMeasuredIsRefused) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("golden/qwen3"), {"--context-length", "16"});
  const auto refused = [&](const std::string& text, Line more, int code, const std::string& why) {
    write_bytes(dir / "ids", text);
    Line line = {"verify", bundle, "--perplexity", dir / "ids"};
    line.insert(line.end(), more.begin(), more.end());
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  };
  refused("1,2\nThe cat\n", {}, 3,
          "line 2: expected token ids such as 1,2,3; for a file of text, give --text");
  refused("1,2,99999999", {}, 2, "sequence 1: token 99999999 is outside of the vocabulary");
  refused("1\n2\n", {}, 2, "no sequence has two tokens");
  refused("", {}, 3, "there is no prompt");
  refused("1,2,3", {"--window", "1"}, 2, "--window 1: must be from 2 to 16");
  refused("1,2,3", {"--window", "17"}, 2, "--window 17: must be from 2 to 16");
  refused("1,2,3", {"--window", "4", "--stride", "5"}, 2, "--stride 5: must be from 1");
  refused("1,2,3", {"--stride", "0"}, 2, "--stride 0: must be from 1");
  refused("1,2,3", {"--text"}, 2, "this bundle has no tokenizer.json");
  refused("1,2,3", {"--tolerance", "1"}, 2, "--perplexity measures");
  refused("1,2,3", {"--mode", "kv"}, 2, "mode");
  EXPECT_EQ(run_ferry({"verify", bundle, "--window", "4"}).code, 2);
  EXPECT_EQ(run_ferry({"verify", bundle, "--perplexity", dir / "absent"}).code, 5);
  const TempDir other;
  const std::string another = convert(other, fixture("golden/llama"));
  refused("1,2,3", {"--against", another}, 3, "is another model than");
}

}  // namespace
}  // namespace ferry::perplexity_test
