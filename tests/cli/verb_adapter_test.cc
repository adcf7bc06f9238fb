// ferry adapter: adds, removes and lists.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_adapter_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string adapter(const std::string& name) { return fixture("adapters/" + name); }

class VerbAdapter : public testing::Test {
 protected:
  void SetUp() override {
    const Outcome made = run_ferry({"convert", fixture("golden/llama"), "-o", bundle_, "--adapters",
                                    "formal=" + adapter("formal") + ",short=" + adapter("short") +
                                        ",table=" + adapter("table")});
    ASSERT_EQ(made.code, 0) << made.err;
  }

  static std::pair<ino_t, timespec> identity(const std::string& file) {
    struct stat info {};
    EXPECT_EQ(::stat(file.c_str(), &info), 0) << file;
    return {info.st_ino, info.st_mtim};
  }

  Outcome add(const std::string& path, const std::string& name,
              const std::vector<std::string>& more = {}) {
    std::vector<std::string> line = {"adapter", "add", bundle_, path, "--name", name};
    line.insert(line.end(), more.begin(), more.end());
    return run_ferry_once(line);
  }

  TempDir dir_;
  std::string bundle_ = dir_ / "b";
};

TEST_F(VerbAdapter, AddsWithoutTouchingTheBase) {
  const std::string base = bundle_ + "/decoder-00001-of-00001.ptd";
  const auto before = identity(base);
  const std::string bytes = read_bytes(base);
  const Outcome added = add(adapter("formal"), "again");
  ASSERT_EQ(added.code, 0) << added.err;
  EXPECT_EQ(identity(base).first, before.first);
  EXPECT_EQ(read_bytes(base), bytes);
  EXPECT_EQ(run_ferry({"check", bundle_}).code, 0);
  const Outcome verified =
      run_ferry({"verify", bundle_, "--adapter", "again", "--checkpoint", fixture("golden/llama"),
                 "--reference", fixture("adapters/formal.golden.safetensors")});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
}

// The bundle is that of one conversion with all adapters, byte for byte, whatever the order.
TEST_F(VerbAdapter, AddingAgainGivesTheSameBundle) {
  const auto whole = files_in(bundle_);
  ASSERT_EQ(run_ferry_once({"adapter", "remove", bundle_, "short"}).code, 0);
  EXPECT_FALSE(fs::exists(bundle_ + "/adapter-short.ptd"));
  EXPECT_EQ(run_ferry({"check", bundle_}).code, 0);
  ASSERT_EQ(add(adapter("short"), "short").code, 0);
  EXPECT_TRUE(files_in(bundle_) == whole);
  ASSERT_EQ(run_ferry_once({"adapter", "remove", bundle_, "table"}).code, 0);
  ASSERT_EQ(add(adapter("table"), "table").code, 0);
  EXPECT_TRUE(files_in(bundle_) == whole);
}

TEST_F(VerbAdapter, NamesAreTakenOnce) {
  const Outcome taken = add(adapter("formal"), "short");
  EXPECT_EQ(taken.code, 6) << taken.err;
  EXPECT_EQ(add(adapter("formal"), "short", {"--overwrite"}).code, 0);
  EXPECT_EQ(add(adapter("formal"), "a/b").code, 2);
  EXPECT_EQ(run_ferry({"adapter", "add", bundle_, adapter("formal")}).code, 2);
  const Outcome none = run_ferry({"adapter", "remove", bundle_, "nobody"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("there are formal, short, table"), std::string::npos) << none.err;
}

TEST_F(VerbAdapter, RefusesByNameWhatTheProgramsCannotHold) {
  const std::string small = dir_ / "small";
  ASSERT_EQ(run_ferry({"convert", fixture("golden/llama"), "-o", small, "--adapters",
                       "formal=" + adapter("formal")})
                .code,
            0);
  bundle_ = small;
  const auto whole = files_in(bundle_);
  const Outcome layers = add(adapter("short"), "short");
  EXPECT_EQ(layers.code, 4);
  EXPECT_NE(layers.err.find("the program has no factors for 'layers.0.feed_forward.w2.weight'"),
            std::string::npos)
      << layers.err;
  const std::string wide = dir_ / "wide";
  fs::create_directory(wide);
  for (const auto& [file, bytes] : files_in(adapter("short")))
    write_bytes(wide + "/" + file, bytes);
  Json config = Json::parse(read_bytes(wide + "/adapter_config.json"));
  TensorFile tensors(adapter("short") + "/adapter_model.safetensors");
  TensorFile kept(adapter("formal") + "/adapter_model.safetensors");
  const std::string prefix = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  TensorFile only = kept;
  only.header = Json::parse("{}");
  only.data.clear();
  only.append(prefix + "A.weight", "BF16", {8, 32}, tensors.bytes_of(prefix + "A.weight"));
  only.append(prefix + "B.weight", "BF16", {32, 8}, tensors.bytes_of(prefix + "B.weight"));
  only.write(wide + "/adapter_model.safetensors");
  const Outcome rank = add(wide, "wide");
  EXPECT_EQ(rank.code, 4);
  EXPECT_NE(rank.err.find("rank 8 of 'layers.0.attention.wq.weight': the program has factors of "
                          "rank 4"),
            std::string::npos)
      << rank.err;
  EXPECT_TRUE(files_in(bundle_) == whole);
  const std::string plain = dir_ / "plain";
  ASSERT_EQ(run_ferry({"convert", fixture("golden/llama"), "-o", plain}).code, 0);
  bundle_ = plain;
  const Outcome none = add(adapter("formal"), "formal");
  EXPECT_EQ(none.code, 4);
  EXPECT_NE(none.err.find("take no adapters"), std::string::npos) << none.err;
  EXPECT_EQ(run_ferry({"adapter", "list", plain}).code, 0);
}

// Factors of f32 are not rounded to those of a program that has bf16.
TEST_F(VerbAdapter, RefusesToRound) {
  bundle_ = dir_ / "half";
  ASSERT_EQ(run_ferry({"convert", fixture("golden/llama"), "-o", bundle_, "--adapters",
                       "short=" + adapter("short")})
                .code,
            0);
  const std::string attention = dir_ / "attention";
  fs::create_directory(attention);
  TensorFile formal(adapter("formal") + "/adapter_model.safetensors");
  TensorFile only = formal;
  only.header = Json::parse("{}");
  only.data.clear();
  const std::string prefix = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  only.append(prefix + "A.weight", "F32", {4, 32}, formal.bytes_of(prefix + "A.weight"));
  only.append(prefix + "B.weight", "F32", {32, 4}, formal.bytes_of(prefix + "B.weight"));
  only.write(attention + "/adapter_model.safetensors");
  write_bytes(attention + "/adapter_config.json",
              read_bytes(adapter("formal") + "/adapter_config.json"));
  const Outcome refused = add(attention, "attention");
  EXPECT_EQ(refused.code, 4);
  EXPECT_NE(refused.err.find("its factors are f32, those of the program bf16"), std::string::npos)
      << refused.err;
}

TEST_F(VerbAdapter, SignsAgainWhatWasSigned) {
  const std::string key = dir_ / "key.pem";
  write_bytes(key, read_bytes(fixture("signing_keys/p256.pem")));
  fs::permissions(key, fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_EQ(run_ferry({"sign", bundle_, "--key", key}).code, 0);
  const Outcome refused = add(adapter("formal"), "again");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("is signed"), std::string::npos) << refused.err;
  const Outcome added = add(adapter("formal"), "again", {"--key", key});
  ASSERT_EQ(added.code, 0) << added.err;
  const Outcome checked =
      run_ferry({"check", bundle_, "--public-key", fixture("signing_keys/p256.pub.pem")});
  EXPECT_EQ(checked.code, 0) << checked.err << checked.out;
}

TEST_F(VerbAdapter, PatchesBringAdapters) {
  const std::string old = dir_ / "old";
  fs::copy(bundle_, old);
  ASSERT_EQ(add(adapter("formal"), "again").code, 0);
  ASSERT_EQ(run_ferry({"diff", old, bundle_, "-o", dir_ / "p"}).code, 0);
  EXPECT_LT(fs::file_size(dir_ / "p"), fs::file_size(bundle_ + "/adapter-again.ptd") +
                                           fs::file_size(bundle_ + "/manifest.json"));
  ASSERT_EQ(run_ferry({"apply", old, dir_ / "p", "-o", dir_ / "new"}).code, 0);
  EXPECT_TRUE(files_in(dir_ / "new") == files_in(bundle_));
}

}  // namespace
}  // namespace ferry::verb_adapter_test
