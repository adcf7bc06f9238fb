// SIGKILL of `ferry apply` and `ferry diff` at every call that changes a disk. Afterwards the name
// belongs to the old bundle or to the whole new one, and the same command goes on.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <tuple>

#include "tests/faults/fault.h"

namespace ferry::update_crash_test {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;

class CrashedUpdate : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_ferry_once({"convert", fixture("llama3_tied"), "-o", dir_ / "old"}).code, 0);
    ASSERT_EQ(run_ferry_once({"convert", fixture("llama3_tied"), "-o", dir_ / "new", "--dtype",
                              "bf16", "--shards", "2"})
                  .code,
              0);
    ASSERT_EQ(run_ferry_once(diff(dir_ / "patch")).code, 0);
    old_ = files_in(dir_ / "old");
    new_ = files_in(dir_ / "new");
  }

  Args diff(const std::string& patch) const {
    return {"diff", dir_ / "old", dir_ / "new", "-o", patch, "--threads", "1"};
  }
  std::string target() const { return dir_ / "out/b"; }
  void lay_out(bool in_place) {
    fs::remove_all(dir_ / "out");
    fs::create_directory(dir_ / "out");
    if (in_place) fs::copy(dir_ / "old", target(), fs::copy_options::recursive);
  }
  Args apply(bool in_place) const {
    if (in_place) return {"apply", target(), dir_ / "patch", "--in-place", "--threads", "1"};
    return {"apply", dir_ / "old", dir_ / "patch", "-o", target(), "--threads", "1"};
  }

  // Checks what a killed run has left, and then the next run.
  void examine(bool in_place) {
    ++points_;
    const bool there = fs::exists(target());
    const Files found = there ? files_in(target()) : Files();
    const bool is_new = there && found == new_;
    ASSERT_TRUE(is_new || (in_place ? found == old_ : !there)) << "a bundle that is not whole";
    new_bundles_ += is_new ? 1 : 0;
    ASSERT_TRUE(files_in(dir_ / "old") == old_);
    const Outcome next = run_ferry_once(apply(in_place));
    ASSERT_EQ(next.code, is_new && !in_place ? 6 : 0) << next.err;
    ASSERT_TRUE(files_in(target()) == new_);
    ASSERT_EQ(entries_of(dir_ / "out"), std::set<std::string>{"b"});
  }

  void kill_everywhere(bool in_place) {
    for (const auto& [call, kind, few] :
         {std::tuple("change", "kill", 6), std::tuple("pwrite", "tear", 2)}) {
      lay_out(in_place);
      const long count = count_calls(call, apply(in_place));
      ASSERT_GT(count, 5);
      for (const long at : points(count, few)) {
        const std::string fault = std::string(call) + ' ' + kind + ' ' + std::to_string(at);
        SCOPED_TRACE(fault + " of " + std::to_string(count));
        lay_out(in_place);
        ASSERT_TRUE(run_and_die(apply(in_place), fault));
        ASSERT_NO_FATAL_FAILURE(examine(in_place));
      }
    }
    std::printf(
        "crash: apply%s, at calls: %ld points: new bundle %ld, corrupt 0, lost 0; leaked after the "
        "next run 0\n",
        in_place ? " in place" : "", points_, new_bundles_);
  }

  TempDir dir_;
  Files old_, new_;
  long points_ = 0, new_bundles_ = 0;
};

TEST_F(CrashedUpdate, OfANewBundleLeavesAllOrNothing) { kill_everywhere(/*in_place=*/false); }

TEST_F(CrashedUpdate, InPlaceLeavesTheOldOrTheNewBundle) { kill_everywhere(/*in_place=*/true); }

TEST_F(CrashedUpdate, APatchIsWholeOrAbsent) {
  const std::string whole = read_bytes(dir_ / "patch");
  fs::create_directory(dir_ / "out");
  const long count = count_calls("change", diff(dir_ / "out/p"));
  long tried = 0;
  for (const long at : points(count, 5)) {
    SCOPED_TRACE(at);
    fs::remove_all(dir_ / "out");
    fs::create_directory(dir_ / "out");
    ASSERT_TRUE(run_and_die(diff(dir_ / "out/p"), "change tear " + std::to_string(at)));
    ++tried;
    for (const std::string& name : entries_of(dir_ / "out")) {
      ASSERT_EQ(name, "p");
      ASSERT_TRUE(read_bytes(dir_ / "out/p") == whole);
    }
  }
  std::printf("crash: files of diff: %ld points: torn 0, leaked 0\n", tried);
}

// A call that fails is an error of one line and leaves what was there.
TEST_F(CrashedUpdate, CallsThatFailLeaveTheOldBundle) {
  for (const char* call : {"pread", "pwrite", "fsync", "ftruncate", "renameat2"}) {
    lay_out(/*in_place=*/true);
    const long count = count_calls(call, apply(/*in_place=*/true));
    for (const long at : points(count, 3)) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(at));
      lay_out(/*in_place=*/true);
      const Fault fault(std::string(call) + " errno " + std::to_string(at) + " 5");
      const Outcome failed = run_ferry_once(apply(/*in_place=*/true));
      if (failed.code == 0) continue;  // the call was not needed
      ASSERT_EQ(failed.code, 5) << failed.err;
      ASSERT_EQ(failed.error_lines(), 1U);
      const Files found = files_in(target());
      // The last sync can fail after the bundle has its name.
      ASSERT_TRUE(found == old_ || found == new_);
    }
  }
}

}  // namespace
}  // namespace ferry::update_crash_test
