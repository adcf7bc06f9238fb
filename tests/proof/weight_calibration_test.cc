// Codes that are calibrated, through the program: what they gain, how they are proved, and what is
// refused.
#include "proof/weight_calibration.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "tests/cli/checkpoints.h"
#include "tests/cli/ferry_process.h"
#include "tests/cli/schema_check.h"

namespace ferry::proof {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

class CalibratedWeights : public testing::Test {
 protected:
  CalibratedWeights() {
    // The first half of the text calibrates, the second half measures.
    const std::string text = read_bytes(fixture("trained/held_out.txt"));
    write_bytes(text_, text.substr(0, text.size() / 2));
    write_bytes(rest_, text.substr(text.size() / 2));
  }

  std::string convert(const std::string& name, const std::string& source, const Line& options) {
    Line line = {"convert", source, "-o", dir_ / name};
    line.insert(line.end(), options.begin(), options.end());
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return dir_ / name;
  }
  Line calibrated(Line line = {"--quantize", "8da4w", "--quantize-embedding", "8"}) const {
    line.insert(line.end(), {"--calibrate-weights", text_});
    return line;
  }
  double divergence(const std::string& bundle, const std::string& exact) const {
    const Outcome outcome = run_ferry(
        {"verify", bundle, "--perplexity", rest_, "--text", "--against", exact, "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json()["result"]["kl_mean"];
  }

  const TempDir dir_;
  const std::string text_ = dir_ / "text", rest_ = dir_ / "rest";
  const std::string sample_ = fixture("trained");
};

TEST_F(CalibratedWeights, KeepMoreOfATrainedModel) {
  const std::string exact = convert("f32", sample_, {"--dtype", "f32"});
  const std::string nearest =
      convert("nearest", sample_, {"--quantize", "8da4w", "--quantize-embedding", "8"});
  const std::string chosen = convert("chosen", sample_, calibrated());
  EXPECT_LT(divergence(chosen, exact), 0.85 * divergence(nearest, exact));
  const auto bytes = [](const std::string& bundle) {
    return read_bytes(bundle + "/decoder-00001-of-00001.ptd").size();
  };
  EXPECT_EQ(bytes(chosen), bytes(nearest));
}

TEST_F(CalibratedWeights, AreProvedWithTheirTextAndNoOther) {
  const std::string bundle = convert("b", sample_, calibrated());
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_NE(manifest.dump().find("calibrate-weights"), std::string::npos);
  EXPECT_EQ(manifest.dump().find(text_), std::string::npos);
  const Line verify = {"verify", bundle, "--checkpoint", sample_, "--quiet"};
  const auto with = [&](const Line& more) {
    Line line = verify;
    line.insert(line.end(), more.begin(), more.end());
    return run_ferry(line);
  };
  EXPECT_EQ(with({"--calibrate-weights", text_}).code, 0);
  const Outcome without = with({});
  EXPECT_EQ(without.code, 2);
  EXPECT_NE(without.err.find("a text that the proof needs"), std::string::npos) << without.err;
  const Outcome other = with({"--calibrate-weights", rest_});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("another text"), std::string::npos) << other.err;
}

TEST_F(CalibratedWeights, ByTheDefaultTextAreProvedWithoutAFile) {
  const Line quantized = {"--quantize", "8da4w", "--quantize-embedding", "8"};
  Line options = quantized;
  options.insert(options.end(), {"--calibrate-weights", "default"});
  const std::string bundle = convert("b", sample_, options);
  EXPECT_EQ(run_ferry({"verify", bundle, "--checkpoint", sample_, "--quiet"}).code, 0);
  const std::string exact = convert("f32", sample_, {"--dtype", "f32"});
  const std::string nearest = convert("nearest", sample_, quantized);
  EXPECT_LT(divergence(bundle, exact), divergence(nearest, exact));
}

TEST_F(CalibratedWeights, ThreadsDoNotDecideThem) {
  const std::string one = convert("one", sample_, [&] {
    Line line = calibrated();
    line.insert(line.end(), {"--threads", "1"});
    return line;
  }());
  const std::string three = convert("three", sample_, [&] {
    Line line = calibrated();
    line.insert(line.end(), {"--threads", "3"});
    return line;
  }());
  for (const char* file : {"/decoder-00001-of-00001.ptd", "/manifest.json"}) {
    EXPECT_EQ(read_bytes(one + file), read_bytes(three + file)) << file;
  }
}

// Norms of both kinds, with and without a bias, give factors to the matrices that read them. The
// outputs stay near those of the model. Without the factors of one vector they would not.
TEST_F(CalibratedWeights, SmoothedInputsLeaveTheModelAsItIs) {
  std::string ids;
  for (int i = 0; i < 192; ++i) ids += std::to_string(3 + i * 7 % 50) + (i % 24 == 23 ? "\n" : ",");
  write_bytes(text_, ids);
  for (const char* model : {"gpt2", "qwen3", "phi", "gemma2", "granitemoehybrid"}) {
    SCOPED_TRACE(model);
    const std::string source = fixture(std::string("golden/") + model), name = model;
    const auto smoothed_in = [&](const std::string& bundle) {
      const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
      int norms = 0, matrices = 0;
      for (const Json& tensor : manifest["tensors"]) {
        const std::string recipe = tensor["recipe"];
        if (recipe.find("| smooth") == std::string::npos) continue;
        (tensor["shape"].size() == 1 && tensor["output"] == "" ? norms : matrices) += 1;
      }
      return std::pair(norms, matrices);
    };
    const auto distance = [&](const std::string& bundle, const std::string& exact) -> double {
      const Outcome outcome =
          run_ferry({"verify", bundle, "--perplexity", text_, "--against", exact, "--json"});
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return outcome.json()["result"]["kl_mean"];
    };
    const std::string exact = convert(name + "_f32", source, {"--dtype", "f32"});
    const std::string nearest = convert(name + "_8", source, {"--quantize", "8da8w"});
    const std::string smooth = convert(name + "_s", source, calibrated({"--quantize", "8da8w"}));
    EXPECT_GT(smoothed_in(smooth).first, 0);
    EXPECT_GT(smoothed_in(smooth).second, smoothed_in(smooth).first);
    EXPECT_LT(distance(smooth, exact), distance(nearest, exact));
    // An activation that is not rounded has nothing to gain.
    const std::string int8 = convert(name + "_i", source, calibrated({"--quantize", "int8"}));
    EXPECT_EQ(smoothed_in(int8), std::pair(0, 0));
  }
}

// In random models with experts, smaller errors of the routers' inputs may still move a token to
// other experts.
TEST_F(CalibratedWeights, GiveWayToNearestCodesThatAreBetter) {
  std::string ids;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 24; ++j) ids += std::to_string(3 + (i * 31 + j * 7) % 50) + ",";
    ids.back() = '\n';
  }
  write_bytes(text_, ids);
  const std::string source = fixture("golden/mixtral");
  const std::string nearest = convert("nearest", source, {"--quantize", "8da4w"});
  const Outcome outcome = run_ferry({"convert", source, "-o", dir_ / "chosen", "--quantize",
                                     "8da4w", "--calibrate-weights", text_, "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("on 72 tokens: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("the bundle has the nearest ones"), std::string::npos) << outcome.err;
  EXPECT_EQ(schema_problems("convert.json", outcome.json()), std::vector<std::string>());
  const Json calibration = outcome.json()["result"]["calibration"];
  EXPECT_EQ(calibration["codes"], "nearest");
  EXPECT_LT(calibration["kl_nearest"], calibration["kl_calibrated"]);
  const std::string file = "/decoder-00001-of-00001.ptd";
  EXPECT_EQ(read_bytes(nearest + file), read_bytes(dir_ / "chosen" + file));
  EXPECT_EQ(run_ferry({"verify", dir_ / "chosen", "--checkpoint", source, "--calibrate-weights",
                       text_, "--quiet"})
                .code,
            0);
}

// Each expert has codes for the tokens that it gets. Nothing else has codes here.
TEST_F(CalibratedWeights, ExpertsGetCodesForTheirTokens) {
  std::string ids;
  std::mt19937 random(1);
  for (int i = 0; i < 1440; ++i) {
    ids += std::to_string(3 + random() % 48) + (i % 24 == 23 ? "\n" : ",");
  }
  write_bytes(text_, ids);
  for (const char* model : {"qwen3_moe", "gpt_oss", "deepseek_v3"}) {
    SCOPED_TRACE(model);
    const std::string source = fixture(std::string("golden/") + model), bundle = dir_ / model;
    const Outcome outcome =
        run_ferry({"convert", source, "-o", bundle, "--quantize-rule", "*experts.w*=8da4w",
                   "--calibrate-weights", text_, "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json calibration = outcome.json()["result"]["calibration"];
    EXPECT_LT(calibration["kl_calibrated"], 0.95 * calibration["kl_nearest"].get<double>());
    int coded = 0;
    const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
    for (const Json& tensor : manifest["tensors"]) {
      const std::string recipe = tensor["recipe"], name = tensor["name"];
      if (recipe.find("calibrated") == std::string::npos) continue;
      EXPECT_NE(name.find("experts.w"), std::string::npos) << name;
      ++coded;
    }
    EXPECT_GE(coded, 3);
    const Outcome proof = run_ferry(
        {"verify", bundle, "--checkpoint", source, "--calibrate-weights", text_, "--quiet"});
    EXPECT_EQ(proof.code, 0) << proof.err;
  }
}

// The inputs of down projections have factors, which the rows of up projections give.
TEST_F(CalibratedWeights, SmoothProductsToo) {
  const std::string bundle = convert("b", sample_, calibrated());
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  int rows = 0;
  for (const Json& tensor : manifest["tensors"]) {
    const std::string recipe = tensor["recipe"], name = tensor["name"];
    if (recipe.find("| smooth_rows") == std::string::npos) continue;
    EXPECT_NE(name.find(".w3.weight"), std::string::npos) << name;
    ++rows;
  }
  EXPECT_GT(rows, 0);
}

// Whole codes of one text serve every kind of program.
TEST_F(CalibratedWeights, ServeStaticProgramsAndShards) {
  for (const Line& style : {Line{"--program", "static"}, Line{"--shards", "2"}}) {
    Line options = calibrated();
    options.insert(options.end(), style.begin(), style.end());
    const std::string bundle = convert(style[0] + style[1], sample_, options);
    const Outcome outcome = run_ferry(
        {"verify", bundle, "--checkpoint", sample_, "--calibrate-weights", text_, "--quiet"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

// Token ids calibrate models that have no tokenizer. Models of random weights show that codes of
// every kind of layer are derived again, those of experts, recurrent layers and encoders too.
TEST_F(CalibratedWeights, TakeTokenIdsOfEveryKindOfModel) {
  std::string ids;
  for (int i = 0; i < 96; ++i) ids += std::to_string(3 + i * 7 % 50) + (i % 24 == 23 ? "\n" : ",");
  write_bytes(text_, ids);
  for (const char* model :
       {"golden/qwen3", "golden/qwen3_5_moe", "golden/granitemoehybrid", "golden/gemma3n",
        "golden/gpt2", "vision/smolvlm", "encoder/embedding_gemma"}) {
    SCOPED_TRACE(model);
    const std::string source = fixture(model);
    std::string name = model;
    name.replace(name.find('/'), 1, "_");
    for (const char* scheme : {"8da8w", "int8"}) {
      const std::string bundle = convert(name + scheme, source, calibrated({"--quantize", scheme}));
      const Outcome outcome = run_ferry(
          {"verify", bundle, "--checkpoint", source, "--calibrate-weights", text_, "--quiet"});
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
  }
}

TEST_F(CalibratedWeights, TakeChatsThroughTheTemplate) {
  const TempDir source;
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    write_bytes(source / name, read_bytes(sample_ + "/" + name));
  }
  const std::string chats = dir_ / "chats.jsonl";
  const std::string said = read_bytes(text_).substr(0, 400);
  const Json chat = Json::array(
      {{{"role", "user"}, {"content", said}}, {{"role", "assistant"}, {"content", "Yes."}}});
  const Line options = {"--quantize", "8da4w", "--calibrate-weights", chats};
  const auto refused = [&](const std::string& lines, const std::string& why) {
    write_bytes(chats, lines);
    Line line = {"convert", source.path(), "-o", dir_ / "no"};
    line.insert(line.end(), options.begin(), options.end());
    const Outcome outcome = run_ferry(line);
    EXPECT_NE(outcome.code, 0);
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  };
  refused(chat.dump(), "template");
  Json config = Json::parse(read_bytes(sample_ + "/tokenizer_config.json"));
  config["chat_template"] =
      "{{ strftime_now('%d %b %Y %H:%M') }}\n"
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  write_bytes(source / "tokenizer_config.json", config.dump());
  refused(chat.dump() + "\n{\"messages\": 7}\n", "chats.jsonl: line 2");
  refused("[{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]",
          "line 1: message 1 has content other than text");
  write_bytes(chats, chat.dump() + "\n\n" + Json{{"messages", chat}}.dump() + "\n");
  const std::string bundle = convert("chats", source.path(), options);
  // The tokens are those of the rendered text.
  const std::string turn = "26 Jul 2024 00:00\nuser: " + said + "\nassistant: Yes.\n";
  const Outcome ids = run_ferry_on(Json(turn).dump() + "\n", {"tokenize", source.path()});
  ASSERT_EQ(ids.code, 0) << ids.err;
  write_bytes(text_, ids.out + ids.out);
  const std::string same =
      convert("ids", source.path(), {"--quantize", "8da4w", "--calibrate-weights", text_});
  EXPECT_EQ(read_bytes(bundle + "/decoder-00001-of-00001.ptd"),
            read_bytes(same + "/decoder-00001-of-00001.ptd"));
  EXPECT_EQ(
      run_ferry({"verify", bundle, "--checkpoint", source.path(), "--calibrate-weights", chats})
          .code,
      0);
}

// Chats show images to vision encoders, whose codes are then chosen too. Nothing else has codes
// here.
TEST_F(CalibratedWeights, OfVisionEncodersTakeChatsWithImages) {
  const std::string chats = dir_ / "chats.jsonl";
  write_bytes(dir_ / "photo.jpg", read_bytes(fixture("vision/prompts/photo_444.jpg")));
  const Json image = {{"type", "image"}, {"path", "photo.jpg"}};
  const auto chat_of = [](const Json& items) {
    return Json{{"messages", Json::array({Json{{"role", "user"}, {"content", items}}})}}.dump() +
           "\n";
  };
  const Json question = {{"type", "text"}, {"text", "What is this?"}};
  for (const char* model : {"smolvlm", "internvl3_hf"}) {
    SCOPED_TRACE(model);
    const TempDir folder;
    const std::string source = vision_checkpoint(folder, model);
    write_bytes(chats, chat_of(Json::array({image, question})) + chat_of(Json::array({question})) +
                           chat_of(Json::array({question, image, image})));
    const Line options = {"--quantize-rule", "vision.*=8da4w", "--calibrate-weights", chats};
    Line line = {"convert", source, "-o", dir_ / (std::string(model) + "_b"), "--json"};
    line.insert(line.end(), options.begin(), options.end());
    const Outcome outcome = run_ferry(line);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json calibration = outcome.json()["result"]["calibration"];
    EXPECT_LT(calibration["kl_calibrated"], 0.95 * calibration["kl_nearest"].get<double>());
    const Line verify = {"verify", line[3],  "--checkpoint", source, "--calibrate-weights",
                         chats,    "--quiet"};
    EXPECT_EQ(run_ferry(verify).code, 0);
    // Another picture is another calibration.
    write_bytes(chats, chat_of(Json::array({image, question})) + chat_of(Json::array({question})) +
                           chat_of(Json::array({question})));
    const Outcome other = run_ferry(verify);
    EXPECT_EQ(other.code, 2);
    EXPECT_NE(other.err.find("another text"), std::string::npos) << other.err;
    // Budgets count the tower's matrices.
    Line budget = {"convert",
                   source,
                   "-o",
                   dir_ / (std::string(model) + "_bits"),
                   "--quantize-budget",
                   "700KB",
                   "--calibrate-weights",
                   chats};
    EXPECT_EQ(run_ferry(budget).code, 0);

    const auto refused = [&](const std::string& lines, const std::string& why) {
      write_bytes(chats, lines);
      Line refused_line = {"convert", source, "-o", dir_ / "no"};
      refused_line.insert(refused_line.end(), options.begin(), options.end());
      const Outcome said = run_ferry(refused_line);
      EXPECT_NE(said.code, 0);
      EXPECT_NE(said.err.find(why), std::string::npos) << said.err;
      EXPECT_EQ(said.error_lines(), 1u) << said.err;
    };
    refused(chat_of(Json::array({Json{{"type", "image"}, {"path", "absent.png"}}, question})),
            "line 1: " + (dir_ / "absent.png"));
    refused(chat_of(Json::array({Json{{"type", "image"}}, question})),
            "line 1: message 1: an image has no path");
    refused(chat_of(Json::array({Json{{"type", "video"}}, question})), "'video'");
    Json many = Json::array();
    for (int i = 0; i < 64; ++i) many.push_back(image);
    refused(chat_of(many), "tokens or more, and a chat with images at most");
  }
}

TEST_F(CalibratedWeights, InputsThatAreNotFiniteAreRefused) {
  const std::string source = changed_checkpoint(dir_, "llama3_tied", [](TensorFile& file) {
    file.set_bytes("model.layers.1.input_layernorm.weight", std::string("\x00\x00\xc0\x7f", 4));
  });
  std::string ids;
  for (int i = 0; i < 96; ++i) ids += std::to_string(3 + i % 40) + (i % 24 == 23 ? "\n" : ",");
  write_bytes(text_, ids);
  const Outcome outcome = run_ferry(
      {"convert", source, "-o", dir_ / "no", "--quantize", "8da8w", "--calibrate-weights", text_});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("not finite (inputs of 'layers.1."), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
}

TEST_F(CalibratedWeights, AnExistingBundleIsRefusedBeforeTheCalibration) {
  const std::string bundle = convert("b", sample_, {});
  const std::string before = read_bytes(bundle + "/manifest.json");
  Line line = calibrated();
  line.insert(line.begin(), {"convert", sample_, "-o", bundle});
  line.back() = dir_ / "absent";  // a calibration would name this file
  const Outcome outcome = run_ferry(line);
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("exists already"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("absent"), std::string::npos) << outcome.err;
  EXPECT_EQ(read_bytes(bundle + "/manifest.json"), before);
}

TEST_F(CalibratedWeights, RefusedLinesSayWhy) {
  const auto refused = [&](const Line& options, const std::string& why) {
    Line line = {"convert", sample_, "-o", dir_ / "no"};
    line.insert(line.end(), options.begin(), options.end());
    const Outcome outcome = run_ferry(line);
    EXPECT_NE(outcome.code, 0);
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  };
  refused(calibrated({}), "no weights are quantised");
  refused(calibrated({"--quantize", "8da4w", "--program", "static", "--attention", "sha"}),
          "single-head attention");
  refused({"--quantize", "8da4w", "--calibrate-weights", dir_ / "absent"}, "absent");
  write_bytes(text_, "Too short.");
  refused(calibrated(), "a calibration takes at least 64");
  write_bytes(text_, "1,2,3\n99999999\n");
  refused(calibrated(), "outside of the vocabulary");
  const std::string broken = dir_ / "broken";
  std::filesystem::copy(sample_, broken);
  write_bytes(broken + "/tokenizer.json", "{\"model\": 7}");
  write_bytes(text_, "A text of words, and a tokenizer that cannot be read.");
  const Outcome unread = run_ferry(
      {"convert", broken, "-o", dir_ / "no", "--quantize", "8da8w", "--calibrate-weights", text_});
  EXPECT_EQ(unread.code, 3) << unread.err;
  EXPECT_NE(unread.err.find("tokenizer.json"), std::string::npos) << unread.err;
  EXPECT_EQ(unread.error_lines(), 1u) << unread.err;
  write_bytes(text_, "A text of words, and a model without a tokenizer.");
  const Outcome none = run_ferry({"convert", fixture("golden/qwen3"), "-o", dir_ / "no",
                                  "--quantize", "8da8w", "--calibrate-weights", text_});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("the checkpoint has no tokenizer"), std::string::npos) << none.err;
  write_bytes(text_, std::string("\xff\xfe not UTF-8 ") + std::string(400, 'a'));
  refused(calibrated(), "UTF-8");
}

}  // namespace
}  // namespace ferry::proof
