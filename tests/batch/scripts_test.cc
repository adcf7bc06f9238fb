// Scripts for schedulers are executed or parsed by programs like their real readers: bash, a
// stand-in for sbatch, a YAML parser.
#include "batch/scripts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "batch/shell.h"
#include "tests/batch/batch_testing.h"

namespace ferry::batch::scripts_test {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

SlurmOptions slurm_options(const TempDir& dir) {
  SlurmOptions options{.script = {.plan = "it's a \"plan\" $x 5%.jsonl",
                                  .program = dir / "fake ferry",
                                  .folder = dir / "a folder",
                                  .tasks = 7},
                       .report = "re port.html"};
  return options;
}

// Submits with a stand-in for sbatch, which prints its arguments and runs the job's script for task
// 1.
std::string submit(const TempDir& dir, const std::string& script, const std::string& words) {
  fs::create_directories(dir / "a folder");
  fs::create_directories(dir / "bin");
  const auto executable = [&](const std::string& name, const std::string& text) {
    write_bytes(dir / name, "#!/bin/bash\n" + text);
    ::chmod((dir / name).c_str(), 0755);
  };
  executable("bin/sbatch", R"(
printf 'sbatch:' >> "$SAID"; printf ' [%s]' "$@" >> "$SAID"; echo >> "$SAID"
SLURM_ARRAY_TASK_ID=1 bash >> "$SAID"
echo "exit $?" >> "$SAID"
echo 42)");
  executable("fake ferry", R"(printf 'ferry:'; printf ' [%s]' "$@"; echo; exit 75)");
  write_bytes(dir / "submit.sh", script);
  const std::string line =
      fmt::format("cd / && SAID={} PATH={}:$PATH bash {} {}", shell_word(dir / "said"),
                  shell_word(dir / "bin"), shell_word(dir / "submit.sh"), words);
  EXPECT_EQ(std::system(line.c_str()), 0) << script;
  return read_bytes(dir / "said");
}

TEST(SlurmScript, PathsWithQuotesBlanksAndPercentsArriveWhole) {
  const TempDir dir;
  SlurmOptions options = slurm_options(dir);
  options.script.at_once = 3;
  options.script.words = {"--retries", "2"};
  const Result<std::string> script = slurm_script(options);
  ASSERT_TRUE(script) << script.error().message;
  const std::string said = submit(dir, *script, "--time=5 '--comment=a b'");
  EXPECT_TRUE(has(said, "sbatch: [--parsable] [--array=0-6%3]")) << said;
  EXPECT_TRUE(has(said, "[--requeue] [--open-mode=append] [--signal=B:TERM@60]")) << said;
  EXPECT_TRUE(has(said,
                  "[--output=it's a \"plan\" $x 5%%.jsonl.slurm/%A_%a.out] [--time=5] "
                  "[--comment=a b]"))
      << said;
  EXPECT_TRUE(has(said,
                  "ferry: [batch] [run] [it's a \"plan\" $x 5%.jsonl] [--retries] [2] "
                  "[--task] [1]\nexit 75"))
      << said;
  EXPECT_TRUE(has(said, "[--dependency=afterany:42]")) << said;
  EXPECT_TRUE(has(said,
                  "ferry: [batch] [report] [it's a \"plan\" $x 5%.jsonl] [-o] "
                  "[re port.html]"))
      << said;
  EXPECT_TRUE(fs::is_directory(dir / "a folder/it's a \"plan\" $x 5%.jsonl.slurm"));
}

TEST(SlurmScript, LargerPlansBecomeSeveralArrays) {
  const TempDir dir;
  SlurmOptions options = slurm_options(dir);
  options.script.tasks_per_index = 2;  // gives 4 indices
  options.max_array = 4;               // an array holds 3 of the 4 indices
  const Result<std::string> script = slurm_script(options);
  ASSERT_TRUE(script) << script.error().message;
  const std::string said = submit(dir, *script, "");
  EXPECT_TRUE(has(said, "[--array=0-2]")) << said;
  EXPECT_TRUE(has(said, "[--array=0-0]")) << said;
  EXPECT_TRUE(has(said, "[--tasks-per-index] [2] [--task] [1]\n")) << said;
  EXPECT_TRUE(has(said, "[--tasks-per-index] [2] [--task] [4]\n")) << said;
  EXPECT_TRUE(has(said, "[--dependency=afterany:42:42]")) << said;
}

TEST(SlurmScript, TasksQueueThemselvesAgainWhereTheSiteDoesNot) {
  const TempDir dir;
  SlurmOptions options = slurm_options(dir);
  options.requeue_self = true;
  const Result<std::string> script = slurm_script(options);
  ASSERT_TRUE(script) << script.error().message;
  fs::create_directories(dir / "bin");
  write_bytes(dir / "bin/scontrol",
              "#!/bin/bash\nprintf 'scontrol:'; printf ' [%s]' \"$@\"; echo\n");
  ::chmod((dir / "bin/scontrol").c_str(), 0755);
  ::setenv("SLURM_ARRAY_JOB_ID", "9", 1);
  const std::string said = submit(dir, *script, "");
  EXPECT_TRUE(has(said, "scontrol: [requeue] [9_1]")) << said;
  ::setenv("SLURM_RESTART_COUNT", "5", 1);
  const TempDir other;
  const std::string enough = submit(other, *slurm_script([&] {
                                      SlurmOptions again = slurm_options(other);
                                      again.requeue_self = true;
                                      return again;
                                    }()),
                                    "");
  ::unsetenv("SLURM_RESTART_COUNT");
  ::unsetenv("SLURM_ARRAY_JOB_ID");
  EXPECT_FALSE(has(enough, "scontrol")) << enough;
  EXPECT_TRUE(has(enough, "exit 75")) << enough;
}

TEST(SlurmScript, WhatSbatchCannotBeToldIsRefused) {
  const TempDir dir;
  for (const char* plan : {"a\nb", "a\\b"}) {
    SlurmOptions options = slurm_options(dir);
    options.script.plan = plan;
    EXPECT_FALSE(slurm_script(options)) << plan;
  }
}

TEST(KubernetesManifest, IsYamlWithTheWordsWhole) {
  KubernetesOptions options{.script = {.plan = "it's: a \"plan\" # {x}.jsonl",
                                       .program = "/opt/ferry",
                                       .folder = "/data/yes",
                                       .tasks = 7,
                                       .tasks_per_index = 2,
                                       .at_once = 3},
                            .name = job_name("dir/My plan.v2.jsonl"),
                            .image = "registry/ferry:1",
                            .claim = "models",
                            .mount = "/data",
                            .retries = 4};
  EXPECT_EQ(options.name, "ferry-my-plan");
  const Result<std::string> manifest = kubernetes_manifest(options);
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_TRUE(has(*manifest, "completions: 4\n  parallelism: 3\n  backoffLimitPerIndex: 4\n"));
  EXPECT_TRUE(has(*manifest, "            - \"it's: a \\\"plan\\\" # {x}.jsonl\"\n")) << *manifest;
  EXPECT_TRUE(has(*manifest, "values: [1, 2, 3, 4, 6, 70]"));
  if (std::system("python3 -c 'import yaml' 2>/dev/null") != 0) GTEST_SKIP() << "no YAML parser";
  const TempDir dir;
  write_bytes(dir / "job.yaml", *manifest);
  write_bytes(dir / "check.py", R"(
import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))
spec = job["spec"]
container = spec["template"]["spec"]["containers"][0]
assert job["kind"] == "Job" and job["metadata"]["name"] == "ferry-my-plan"
assert spec["completionMode"] == "Indexed" and spec["completions"] == 4
assert container["command"] == ["/opt/ferry", "batch", "run", 'it\'s: a "plan" # {x}.jsonl',
                                "--lease", "--tasks-per-index", "2"], container["command"]
assert container["workingDir"] == "/data/yes"
rules = spec["podFailurePolicy"]["rules"]
assert rules[0]["action"] == "FailIndex" and 75 not in rules[0]["onExitCodes"]["values"]
assert rules[0]["onExitCodes"]["containerName"] == container["name"]
assert rules[1] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
assert spec["template"]["spec"]["restartPolicy"] == "Never"
)");
  const std::string line =
      fmt::format("python3 {} {}", shell_word(dir / "check.py"), shell_word(dir / "job.yaml"));
  EXPECT_EQ(std::system(line.c_str()), 0) << *manifest;
}

TEST(KubernetesManifest, NamesAndNumbersThatItDoesNotTakeAreRefused) {
  KubernetesOptions options{.script = {.plan = "p", .folder = "/d", .tasks = 1},
                            .name = "Upper",
                            .image = "i",
                            .claim = "c",
                            .mount = "/d"};
  EXPECT_FALSE(kubernetes_manifest(options));
  options.name = "fine";
  EXPECT_TRUE(kubernetes_manifest(options));
  options.script.tasks = 100'001;
  EXPECT_FALSE(kubernetes_manifest(options));
}

TEST(ShellWords, AreReadAsAShellReadsThem) {
  const auto words = shell_words(R"( a 'b c'"d" e\ f "" )");
  ASSERT_TRUE(words);
  EXPECT_EQ(*words, (std::vector<std::string>{"a", "b cd", "e f", ""}));
  EXPECT_FALSE(shell_words("'a"));
  EXPECT_EQ(shell_line({"a b", "it's", "", "x=1"}), R"('a b' 'it'\''s' '' x=1)");
}

}  // namespace
}  // namespace ferry::batch::scripts_test
