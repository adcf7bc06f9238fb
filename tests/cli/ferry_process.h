// Runs the built program, and makes variants of the checkpoints it is run on.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/formats/temp_dir.h"

namespace ferry {

struct Outcome {
  int code = -1;  // exit code; -1 if a signal ended it
  std::string out, err;
  // stdout as one JSON document; a failure of the test if it is none.
  nlohmann::json json() const;
  size_t error_lines() const;
};

// Runs `PROGRAM ARGS...` without a shell, with `environment` ("NAME=VALUE") added to ours. Safe to
// call from several threads.
Outcome run_program(const std::string& program, const std::vector<std::string>& args,
                    const std::vector<std::string>& environment = {});
// Runs `ferry ARGS...`.
Outcome run_ferry(const std::vector<std::string>& args);
// The same with `input` on stdin.
Outcome run_ferry_on(const std::string& input, const std::vector<std::string>& args);
// The same with stdout opened on `stdout_path`.
Outcome run_ferry_to(const std::string& stdout_path, const std::vector<std::string>& args);

std::string fixture(const std::string& name);  // path of testdata/NAME
std::string read_bytes(const std::string& path);
void write_bytes(const std::string& path, const std::string& bytes);

// A safetensors file taken apart.
struct TensorFile {
  nlohmann::ordered_json header;
  std::string data;

  explicit TensorFile(const std::string& path);
  void write(const std::string& path) const;
  std::string bytes_of(const std::string& tensor) const;
  void set_bytes(const std::string& tensor, const std::string& bytes);
  void append(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
              const std::string& bytes);
  void rename(const std::string& from, const std::string& to);
};

// Copies checkpoint `name` into `dir` and lets `change` edit its tensors.
std::string changed_checkpoint(const TempDir& dir, const std::string& name,
                               const std::function<void(TensorFile&)>& change);

// All files below a directory: name and contents.
std::map<std::string, std::string> files_in(const std::string& directory);

}  // namespace ferry
