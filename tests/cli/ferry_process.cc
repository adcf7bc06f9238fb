#include "tests/cli/ferry_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace ferry {

nlohmann::json Outcome::json() const {
  nlohmann::json value = nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(value.is_discarded()) << "not one JSON document: " << out << err;
  return value;
}

size_t Outcome::error_lines() const {
  return static_cast<size_t>(std::count(err.begin(), err.end(), '\n'));
}

namespace {

struct Program {
  std::string path = FERRY_BINARY;
  std::vector<std::string> environment = {};
};

// stdin from `input`; stdout to `stdout_path`, or into the outcome where that is empty.
Outcome run(const std::string& input, const std::string& stdout_path,
            const std::vector<std::string>& args, Program program = {}) {
  const TempDir dir;
  write_bytes(dir / "in", input);
  const std::string in = dir / "in";
  const std::string out = stdout_path.empty() ? dir / "out" : stdout_path;
  std::vector<std::string> words = {program.path};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string err = dir / "err";
  const pid_t child = fork();
  if (child == 0) {
    const int out_fd = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
    const int err_fd = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(out_fd, STDOUT_FILENO);
    dup2(err_fd, STDERR_FILENO);
    for (std::string& variable : program.environment) putenv(variable.data());
    execv(argv[0], argv.data());
    _exit(126);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (stdout_path.empty()) outcome.out = read_bytes(out);
  outcome.err = read_bytes(err);
  return outcome;
}

}  // namespace

Outcome run_program(const std::string& program, const std::vector<std::string>& args,
                    const std::vector<std::string>& environment) {
  return run("", "", args, {program, environment});
}
Outcome run_ferry(const std::vector<std::string>& args) { return run("", "", args); }
Outcome run_ferry_on(const std::string& input, const std::vector<std::string>& args) {
  return run(input, "", args);
}
Outcome run_ferry_to(const std::string& stdout_path, const std::vector<std::string>& args) {
  return run("", stdout_path, args);
}

std::string fixture(const std::string& name) { return std::string(FERRY_TESTDATA) + "/" + name; }

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TensorFile::TensorFile(const std::string& path) {
  const std::string bytes = read_bytes(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  data = bytes.substr(8 + length);
}

void TensorFile::write(const std::string& path) const {
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  write_bytes(path, bytes + text + data);
}

std::string TensorFile::bytes_of(const std::string& tensor) const {
  const size_t begin = header.at(tensor).at("data_offsets")[0];
  const size_t end = header.at(tensor).at("data_offsets")[1];
  return data.substr(begin, end - begin);
}

void TensorFile::set_bytes(const std::string& tensor, const std::string& bytes) {
  data.replace(header.at(tensor).at("data_offsets")[0], bytes.size(), bytes);
}

void TensorFile::append(const std::string& name, const std::string& dtype,
                        const std::vector<int64_t>& shape, const std::string& bytes) {
  header[name] = {{"dtype", dtype},
                  {"shape", shape},
                  {"data_offsets", {data.size(), data.size() + bytes.size()}}};
  data += bytes;
}

void TensorFile::rename(const std::string& from, const std::string& to) {
  header[to] = header.at(from);
  header.erase(from);
}

std::string changed_checkpoint(const TempDir& dir, const std::string& name,
                               const std::function<void(TensorFile&)>& change) {
  const std::string copy = dir / "checkpoint";
  std::filesystem::copy(fixture(name), copy);
  TensorFile file(copy + "/model.safetensors");
  change(file);
  file.write(copy + "/model.safetensors");
  return copy;
}

std::map<std::string, std::string> files_in(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      files[entry.path().filename().string()] = read_bytes(entry.path().string());
    }
  }
  return files;
}

}  // namespace ferry
