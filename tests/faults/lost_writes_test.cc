// Power failures, in a model: a run is recorded, and the disk is in any state that the model allows
// after any prefix of its operations.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>

#include "tests/faults/fault.h"
#include "tests/faults/lost_writes.h"

namespace ferry::lost_writes_test {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;
using Luck = DiskModel::Luck;

struct Case {
  std::string name;
  bool old_bundle = false, stage = false;
  Args options = {};
};

const Case kCases[] = {
    {"convert"},
    {"overwrite", true, false, {"--overwrite"}},
    {"resume", false, false, {"--resume"}},
    {"resumed", false, true, {"--resume"}},
    {"resumed_over_a_bundle", true, true, {"--resume", "--overwrite"}},
};

class LostWritesTest : public testing::TestWithParam<Case> {
 protected:
  std::string out() const { return dir_ / "out"; }
  Args convert(const Args& options) const {
    Args args = {"convert",   fixture("llama3_tied"),
                 "-o",        out() + "/b",
                 "--dtype",   "bf16",
                 "--shards",  "2",
                 "--threads", "1"};
    args.insert(args.end(), options.begin(), options.end());
    return args;
  }

  // Makes both bundles, and the state in which the run begins.
  void SetUp() override {
    fs::create_directory(out());
    ASSERT_EQ(run_ferry_once(convert({})).code, 0);
    new_ = files_in(out() + "/b");
    fs::remove_all(out() + "/b");
    if (GetParam().old_bundle) {
      ASSERT_EQ(run_ferry_once({"convert", fixture("llama3_tied"), "-o", out() + "/b"}).code, 0);
      old_ = files_in(out() + "/b");
    }
    if (GetParam().stage) {
      ASSERT_TRUE(run_and_kill(convert({"--resume", "--overwrite"}), 50));
    }
  }

  // Returns the files of the bundle; none if the name is absent.
  static Files bundle_in(const DiskModel::Tree& tree) {
    Files files;
    for (const auto& [name, contents] : tree) {
      if (name.starts_with("b/") && name != "b/") files[name.substr(2)] = contents;
    }
    return files;
  }

  TempDir dir_;
  Files old_, new_;
};

TEST_P(LostWritesTest, LeaveAWholeBundleOrNone) {
  DiskModel model(out());
  ::setenv("FERRY_TRACE", (dir_ / "trace").c_str(), 1);
  const Outcome run = run_ferry_once(convert(GetParam().options));
  ::unsetenv("FERRY_TRACE");
  ASSERT_EQ(run.code, 0) << run.err;
  model.read_trace(dir_ / "trace");
  ASSERT_GT(model.operations(), 40u);

  std::mt19937 random(1);
  long states = 0, absent = 0, with_old = 0, with_new = 0, resumed = 0;
  const long random_states = std::min(tries(3), 20L);
  const std::vector<Luck> lucks = [&] {
    std::vector<Luck> all = {Luck::kNothing, Luck::kEntries, Luck::kEntriesSizes, Luck::kAll};
    all.insert(all.end(), static_cast<size_t>(random_states), Luck::kRandom);
    return all;
  }();
  for (size_t at = 0; at <= model.operations(); ++at) {
    for (const Luck luck : lucks) {
      SCOPED_TRACE("before operation " + std::to_string(at) + " of " +
                   std::to_string(model.operations()) + ", luck " +
                   std::to_string(static_cast<int>(luck)));
      const DiskModel::Tree tree = model.tree(at, luck, random);
      const Files found = bundle_in(tree);
      ++states;
      if (!tree.contains("b/")) {
        ASSERT_FALSE(GetParam().old_bundle) << "the previous bundle is lost";
        ASSERT_LT(at, model.operations()) << "what was said to be written is lost";
        ++absent;
      } else if (found == new_) {
        ++with_new;
      } else {
        ASSERT_TRUE(found == old_) << "a bundle that is not whole";
        ASSERT_LT(at, model.operations()) << "what was said to be written is lost";
        ++with_old;
      }
      // For some of the states the tree is written to disk, and the next run continues.
      if (random() % (tries(0) > 0 ? 20 : 400) != 0 || (found == new_ && old_.empty())) continue;
      lay_out(tree, out());
      const Outcome next = run_ferry_once(convert(GetParam().options));
      ASSERT_EQ(next.code, 0) << next.err;
      ASSERT_TRUE(files_in(out() + "/b") == new_);
      ASSERT_EQ(entries_of(out()), std::set<std::string>{"b"});
      ++resumed;
    }
  }
  std::printf(
      "crash: power failure, %s: %ld states: absent %ld, previous bundle %ld, new bundle %ld, "
      "corrupt 0, lost 0; gone on from %ld of them\n",
      GetParam().name.c_str(), states, absent, with_old, with_new, resumed);
}

INSTANTIATE_TEST_SUITE_P(Cases, LostWritesTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

// Tests the model itself: a rename without a sync of the contents is a well-known mistake.
TEST(DiskModel, FindsARenameWithoutASync) {
  const TempDir dir;
  fs::create_directory(dir / "root");
  const auto inode = [&dir] {
    struct stat info {};
    ::stat((dir / "root").c_str(), &info);
    return std::to_string(info.st_ino);
  }();
  const std::string root = dir / "root";
  const std::string begin = "make 7 f " + root + "/part\nwrite 7 0 4\ndata";
  const std::string end = "rename 0 " + root + "/part\n" + root + "/file\nsync " + inode + "\n";
  std::mt19937 random(1);
  for (const bool synced : {false, true}) {
    DiskModel model(root);
    write_bytes(dir / "trace", begin + (synced ? "sync 7\n" : "") + end);
    model.read_trace(dir / "trace");
    EXPECT_EQ(model.tree(model.operations(), Luck::kNothing, random),
              (DiskModel::Tree{{"file", synced ? "data" : ""}}));
    EXPECT_EQ(model.tree(model.operations(), Luck::kAll, random),
              (DiskModel::Tree{{"file", "data"}}));
    EXPECT_EQ(model.tree(model.operations() - 1, Luck::kNothing, random), DiskModel::Tree{});
  }
}

}  // namespace
}  // namespace ferry::lost_writes_test
