// The corpora of malformed, hostile and tricky files, of every format. Each file gets its verdict
// in a message that names the faulty part. Where the format's own library gives another verdict, a
// rule of docs/security.md says why.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "checkpoint/checkpoint.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/reader.h"
#include "formats/xnnpack/reader.h"
#include "tests/formats/corpus.h"
#include "tests/formats/program_files.h"

namespace ferry::formats::hostile_files_test {
namespace {

const std::string kHostile = FERRY_TESTDATA "/hostile/";

// Returns why the file `path` is refused. An accepted file must have the contents that `item`
// states.
using Examine = std::function<Status(const std::string& path, const nlohmann::json& item)>;

Status examine_checkpoint(const std::string& path, const nlohmann::json& item) {
  const auto source = FERRY_TRY(checkpoint::open_tensors(path));
  if (item.contains("tensors")) expect_tensors(*source, item);
  return {};
}

// Examines the directory and the index in it.
Status examine_sharded(const std::string& path, const nlohmann::json& item) {
  const Status directory = examine_checkpoint(path, item);
  const Status index = examine_checkpoint(path + "/model.safetensors.index.json", item);
  EXPECT_EQ(directory.has_value(), index.has_value());
  return directory;
}

Status examine_program(const std::string& path, const nlohmann::json&) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const auto bytes = read_test_file("hostile/executorch/" + name);
  if (name.ends_with(".pte")) {
    FERRY_TRY(pte::read_program(bytes, name));
  } else {
    FERRY_TRY(ptd::read_data_file(bytes, name));
  }
  return {};
}

Status examine_blob(const std::string& path, const nlohmann::json& item) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const auto graph = xnnpack::read_blob(read_test_file("hostile/xnnpack/" + name), name);
  if (graph) return {};
  const std::string message = item.value("message", "");
  EXPECT_NE(graph.error().message.find(message), std::string::npos) << graph.error().message;
  return Failure(graph.error());
}

struct Corpus {
  std::string format;
  Examine examine;
  size_t files;
  size_t differences;  // verdicts that differ from the reference, each by a rule
};

const Corpus kCorpora[] = {
    {"safetensors", examine_checkpoint, 87, 7}, {"index", examine_sharded, 22, 0},
    {"pytorch", examine_checkpoint, 60, 10},    {"gguf", examine_checkpoint, 16, 2},
    {"hdf5", examine_checkpoint, 28, 9},        {"executorch", examine_program, 40, 0},
    {"xnnpack", examine_blob, 40, 0},
};

class HostileTest : public testing::TestWithParam<Corpus> {};

TEST_P(HostileTest, EveryFileGetsItsVerdict) {
  const auto& [format, examine, files, differences] = GetParam();
  const nlohmann::json items = corpus(format);
  EXPECT_EQ(items.size(), files);
  for (const auto& item : items) {
    SCOPED_TRACE(item.dump());
    const std::string file = item["file"];
    const Status status = examine(kHostile + format + "/" + file, item);
    EXPECT_EQ(status ? "accept" : "reject", item["verdict"]);
    if (status) continue;
    expect_good_message(status.error(), item);
    EXPECT_NE(status.error().message.find(file), std::string::npos);
  }
}

// Ferry's verdicts are checked by the test above. This test compares them with those of the
// reference.
TEST_P(HostileTest, DifferencesFromTheReferenceHaveARule) {
  const auto rules = read_text_file(FERRY_TESTDATA "/../docs/security.md", 1 << 20).value();
  size_t found = 0;
  for (const auto& item : corpus(GetParam().format)) {
    SCOPED_TRACE(item.dump());
    const bool differs = item.contains("reference") && item["reference"] != item["verdict"];
    EXPECT_EQ(differs, item.contains("rule"));
    if (!differs) continue;
    EXPECT_NE(rules.find("| " + item["rule"].get<std::string>() + " |"), std::string::npos);
    ++found;
  }
  EXPECT_EQ(found, GetParam().differences);
}

INSTANTIATE_TEST_SUITE_P(Formats, HostileTest, testing::ValuesIn(kCorpora),
                         [](const auto& corpus) { return corpus.param.format; });

}  // namespace
}  // namespace ferry::formats::hostile_files_test
