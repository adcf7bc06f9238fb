// Runs the built program, and makes variants of the checkpoints that it runs on.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/formats/temp_dir.h"

namespace ferry {

struct Outcome {
  int code = -1;  // the exit code; -1 if a signal ended the process
  std::string out, err;
  // Parses stdout as one JSON document. The test fails if it is none.
  nlohmann::json json() const;
  size_t error_lines() const;
};

// The words of a command line, written as {"convert", path, "-o", out} or as a vector.
class Words {
 public:
  Words(std::initializer_list<std::string_view> words) : words_(words.begin(), words.end()) {}
  Words(std::vector<std::string> words) : words_(std::move(words)) {}
  const std::vector<std::string>& all() const { return words_; }

 private:
  std::vector<std::string> words_;
};

// Runs `PROGRAM ARGS...` without a shell, with `environment` ("NAME=VALUE") added to ours. It may
// be called from several threads.
Outcome run_program(const std::string& program, const Words& args,
                    const std::vector<std::string>& environment = {});
// Runs `ferry ARGS...` without a shell. A refused line is run once more with --json. The test fails
// unless that gives the same exit code and one document that states what stderr states.
Outcome run_ferry(const Words& args);
// Runs `ferry ARGS...` once, for lines that change what the next run does.
Outcome run_ferry_once(const Words& args);
// Runs `ferry ARGS...` with `input` on stdin.
Outcome run_ferry_on(const std::string& input, const Words& args);
// Runs `ferry ARGS...` with stdout opened on `stdout_path`.
Outcome run_ferry_to(const std::string& stdout_path, const Words& args);

// A `ferry` process that runs beside the test.
class RunningFerry {
 public:
  // Both ends of its stdin and stdout are pipes. With `close_input` its stdin is empty.
  explicit RunningFerry(const Words& args, bool close_input = true);
  ~RunningFerry();  // kills the process if it still runs
  RunningFerry(const RunningFerry&) = delete;
  RunningFerry& operator=(const RunningFerry&) = delete;

  void write(const std::string& text);
  // Returns one line of stdout, or what has arrived after `seconds`.
  std::string read_line(int seconds);
  void signal(int number);
  // Returns whether the process has ended.
  bool ended();
  // Waits for the end and returns the rest of stdout, stderr and the exit code.
  Outcome wait();

 private:
  TempDir dir_;
  pid_t child_ = -1;
  int in_ = -1, out_ = -1, status_ = 0;
  bool reaped_ = false;
};

std::string fixture(const std::string& name);  // path of testdata/NAME
std::string read_bytes(const std::string& path);
void write_bytes(const std::string& path, const std::string& bytes);

// A safetensors file as its header and its data.
struct TensorFile {
  nlohmann::ordered_json header;
  std::string data;

  explicit TensorFile(const std::string& path);
  void write(const std::string& path) const;
  std::string bytes_of(const std::string& tensor) const;
  std::vector<float> floats_of(const std::string& tensor) const;  // of a tensor of f32
  void set_bytes(const std::string& tensor, const std::string& bytes);
  void append(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
              const std::string& bytes);
  void rename(const std::string& from, const std::string& to);
};

// Copies checkpoint `name` into `dir` and lets `change` edit its tensors.
std::string changed_checkpoint(const TempDir& dir, const std::string& name,
                               const std::function<void(TensorFile&)>& change);

// Copies checkpoint `name` into `dir` and merges `change` into its config; the tensors stay.
std::string changed_config(const TempDir& dir, const std::string& name,
                           const nlohmann::json& change);

// Returns all files below a directory: name and contents.
std::map<std::string, std::string> files_in(const std::string& directory);

}  // namespace ferry
