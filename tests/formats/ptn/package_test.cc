// Native packages that ExecuTorch's own code wrote (testdata/native), whole, damaged and edited.
#include "formats/ptn/package.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/text.h"
#include "tests/formats/program_files.h"
#include "tests/formats/temp_dir.h"
#include "tests/formats/zip_maker.h"

namespace ferry::ptn::package_test {
namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::string bytes_of(const std::string& name) { return text_of(read_test_file("native/" + name)); }

Result<Package> read(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  const Package package = FERRY_TRY(read_package(file, "m.ptn"));
  FERRY_RETURN_IF_ERROR(check_values(file, package, "m.ptn"));
  return package;
}

Result<Package> read_bytes(const std::string& bytes) {
  const TempDir folder;
  return read(folder.write("m.ptn", bytes));
}

// The entries of a package.
std::vector<ZipItem> items_of(const std::string& name) {
  const std::string path = FERRY_TESTDATA "/native/" + name;
  const InputFile file = InputFile::open(path).value();
  std::vector<ZipItem> items;
  const auto entries = formats::read_zip_directory(file, name);
  for (const formats::ZipEntry& entry : entries.value()) {
    const auto contents = formats::read_zip_entry(file, entry, 1 << 20, name);
    items.push_back(stored_item(entry.name, text_of(contents.value())));
  }
  return items;
}

std::string message_of(const std::vector<ZipItem>& items) {
  const auto package = read_bytes(make_zip(items));
  return package ? "read" : package.error().message;
}

TEST(NativePackage, ListsWhatTheOfficialCodeWrote) {
  const auto package = read(FERRY_TESTDATA "/native/lowered.ptn");
  ASSERT_TRUE(package.has_value()) << package.error().message;
  ASSERT_EQ(package->methods.size(), 1U);
  const Method& method = package->methods[0];
  EXPECT_EQ(method.name, "forward");
  ASSERT_EQ(method.inputs.size(), 1U);
  EXPECT_EQ(method.inputs[0].sizes, (Shape{9, 6}));
  EXPECT_TRUE(method.inputs[0].dynamic);
  ASSERT_EQ(method.outputs.size(), 1U);  // writes of buffers are no outputs
  ASSERT_EQ(method.buffers.size(), 1U);
  EXPECT_EQ(method.buffers[0].name, "cache");
  EXPECT_EQ(method.operators.at("torch.ops.aten.linear.default"), 3U);
  ASSERT_EQ(package->aliases.size(), 1U);
  const auto& [alias, owner] = *package->aliases.begin();
  EXPECT_EQ(package->find(alias), package->find(owner));
  EXPECT_EQ(package->find("nothing"), nullptr);
}

TEST(NativePackage, NamesQuantisedConstantsAndCountsInnerGraphs) {
  const auto package = read(FERRY_TESTDATA "/native/written.ptn");
  ASSERT_TRUE(package.has_value()) << package.error().message;
  ASSERT_EQ(package->methods.size(), 2U);
  const std::vector<Constant>& constants = package->methods[0].constants;
  ASSERT_EQ(constants.size(), 5U);
  EXPECT_EQ(constants[1].value.quantisation, "4 bits in groups of 4");
  ASSERT_EQ(constants[1].parameters.size(), 2U);
  EXPECT_EQ(constants[1].parameters[1].second, DType::kI8);
  EXPECT_EQ(constants[2].value.quantisation, "gguf:q4_0");
  EXPECT_EQ(package->methods[0].operators.at("torch.ops.aten.neg.default"), 1U);
  EXPECT_EQ(package->methods[0].inputs[0].sizes, (Shape{-1, 4}));
}

TEST(NativePackage, EveryTruncationIsRefused) {
  const std::string bytes = bytes_of("lowered.ptn");
  for (size_t size = 0; size < bytes.size(); size += size < 64 ? 1 : 37) {
    EXPECT_FALSE(read_bytes(bytes.substr(0, size)).has_value()) << size;
  }
}

// Both headers of an entry agree and contents have checksums, so only dates can change unseen.
TEST(NativePackage, EveryChangedByteIsRefusedOrMeansNothing) {
  const std::string bytes = bytes_of("written.ptn");
  const Package whole = read_bytes(bytes).value();
  size_t unseen = 0;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x21);
    const auto package = read_bytes(changed);
    if (!package) continue;
    ++unseen;
    EXPECT_EQ(package->aliases, whole.aliases) << at;
    EXPECT_EQ(package->tensors.size(), whole.tensors.size()) << at;
    EXPECT_EQ(package->methods.size(), whole.methods.size()) << at;
  }
  EXPECT_LT(unseen, 40U);
}

// Offsets inside of the graph lead anywhere.
TEST(NativePackage, AnyBytesMayStandInTheGraph) {
  const std::vector<ZipItem> items = items_of("written.ptn");
  for (size_t at = 0; at < items[0].stored.size(); ++at) {
    for (const char mask : {'\x01', '\x7f', '\x80'}) {
      std::string graph = items[0].stored;
      graph[at] = static_cast<char>(graph[at] ^ mask);
      const auto methods = read_graph(std::as_bytes(std::span(graph)), "graph");
      if (methods) continue;
      EXPECT_LT(methods.error().message.size(), 400U);
    }
  }
}

TEST(NativePackage, EntriesMustBeTheKnownOnes) {
  std::vector<ZipItem> items = items_of("lowered.ptn");
  EXPECT_EQ(message_of(items), "read");
  items.push_back(stored_item("more.bin", "x"));
  EXPECT_NE(message_of(items).find("the zip entry 'more.bin'"), std::string::npos);
  items = items_of("lowered.ptn");
  items.erase(items.begin());
  EXPECT_EQ(message_of(items), "m.ptn: no program.ptg");
  items = items_of("lowered.ptn");
  items[1] = deflated_item(items[1].name, items[1].stored);
  EXPECT_EQ(message_of(items), "m.ptn: program.safetensors is compressed");
  items = items_of("lowered.ptn");
  items[0] = deflated_item(items[0].name, items[0].stored);
  EXPECT_EQ(message_of(items), "m.ptn: program.ptg is compressed");
}

TEST(NativePackage, AliasesNameWhatIsStored) {
  const auto with_aliases = [](const std::string& json) {
    std::vector<ZipItem> items = items_of("written.ptn");
    items[2] = stored_item("aliases.json", json);
    return message_of(items);
  };
  EXPECT_EQ(with_aliases(R"({"too": "same"})"), "read");
  EXPECT_EQ(with_aliases(R"({"too": "other"})"),
            "m.ptn: aliases.json: 'too' is an alias of 'other', which is not stored");
  EXPECT_EQ(with_aliases(R"({"too": "same", "w": "same"})"),
            "m.ptn: aliases.json: 'w' is stored and an alias");
  EXPECT_EQ(with_aliases(R"({"too": 1})"),
            "m.ptn: aliases.json: the alias 'too' has no name of a tensor");
  EXPECT_EQ(with_aliases("[]"), "m.ptn: aliases.json: no JSON object");
  EXPECT_EQ(with_aliases("{}"), "m.ptn: program.ptg: the constant 'too' is not stored");
}

TEST(NativePackage, ConstantsAreWhatTheGraphStates) {
  std::vector<ZipItem> items = items_of("written.ptn");
  std::string data = items[1].stored;
  const size_t at = data.find(R"("w":{"dtype":"F32","shape":[4,8])");
  ASSERT_NE(at, std::string::npos);
  data.replace(data.find("[4,8]", at), 5, "[8,4]");
  items[1] = stored_item("program.safetensors", data);
  EXPECT_EQ(
      message_of(items),
      "m.ptn: program.ptg: the constant 'w' is stored as f32 [8, 4], the graph has f32 [4, 8]");
}

TEST(NativePackage, IsKnownByItsFirstBytes) {
  const std::string bytes = bytes_of("lowered.ptn");
  EXPECT_TRUE(is_package(std::as_bytes(std::span(bytes))));
  EXPECT_FALSE(is_package(std::as_bytes(std::span(bytes).first(40))));
  const std::string other = make_zip({stored_item("archive/data.pkl", std::string(100, 'x'))});
  EXPECT_FALSE(is_package(std::as_bytes(std::span(other))));
}

}  // namespace
}  // namespace ferry::ptn::package_test
