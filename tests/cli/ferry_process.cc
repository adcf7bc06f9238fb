#include "tests/cli/ferry_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>

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

// The standard streams of a process that will be started. posix_spawn copies no page tables, as
// fork would.
class Streams {
 public:
  Streams() { posix_spawn_file_actions_init(&actions_); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() { posix_spawn_file_actions_destroy(&actions_); }

  void open(int stream, const std::string& path, int flags) {
    posix_spawn_file_actions_addopen(&actions_, stream, path.c_str(), flags, 0600);
  }
  void be(int stream, int descriptor) {
    posix_spawn_file_actions_adddup2(&actions_, descriptor, stream);
  }
  pid_t start(char* const* argv, char* const* environment) const {
    pid_t child = -1;
    EXPECT_EQ(posix_spawn(&child, argv[0], &actions_, nullptr, argv, environment), 0) << argv[0];
    return child;
  }

 private:
  posix_spawn_file_actions_t actions_;
};

// Returns the variables of this process, except those that `changed` states as NAME=VALUE.
std::vector<char*> environment_with(std::vector<std::string>& changed) {
  std::vector<char*> variables;
  for (std::string& variable : changed) variables.push_back(variable.data());
  for (char** own = environ; *own != nullptr; ++own) {
    const std::string_view text(*own);
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const auto replaces = [&](const std::string& other) { return other.starts_with(name); };
    if (std::ranges::none_of(changed, replaces)) variables.push_back(*own);
  }
  variables.push_back(nullptr);
  return variables;
}

// Takes stdin from `input`. Writes stdout to `stdout_path`, or into the outcome where that is
// empty.
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
  std::vector<char*> variables = environment_with(program.environment);
  Streams streams;
  streams.open(STDIN_FILENO, in, O_RDONLY);
  streams.open(STDOUT_FILENO, out, O_WRONLY | O_CREAT);
  streams.open(STDERR_FILENO, err, O_WRONLY | O_CREAT);
  const pid_t child = streams.start(argv.data(), variables.data());
  int status = 0;
  waitpid(child, &status, 0);
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (stdout_path.empty()) outcome.out = read_bytes(out);
  outcome.err = read_bytes(err);
  return outcome;
}

constexpr std::string_view kErrorLine = "ferry: error: ";

// Returns the error that stderr shows, in the form that it has in the document of --json.
nlohmann::json told_error(const std::string& err) {
  nlohmann::json told = {{"message", ""}, {"details", nlohmann::json::array()}};
  std::istringstream lines(err.substr(std::min(err.find(kErrorLine), err.size())));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kErrorLine)) {
      told["message"] = line.substr(kErrorLine.size());
    } else if (line.starts_with("  ")) {
      told["details"].push_back(line.substr(2));
    }
  }
  return told;
}

const char* code_name(int code) {
  switch (code) {
    case 2:
      return "usage";
    case 3:
      return "bad_input";
    case 4:
      return "unsupported";
    case 5:
      return "io";
    case 6:
      return "exists";
    default:
      return "internal";
  }
}

// Checks docs/command_line.md, "Errors": `with` is the outcome of the same line with --json. A verb
// that gives a document per line ends with the document of its error. With `quiet`, details are not
// on stderr.
void expect_error_document(const Outcome& plain, const Outcome& with, bool quiet) {
  EXPECT_EQ(with.code, plain.code) << "with --json: " << with.err;
  ASSERT_TRUE(with.out.ends_with("\n")) << "no document: " << with.out << with.err;
  const size_t before = with.out.rfind('\n', with.out.size() - 2);
  const size_t start = before == std::string::npos ? 0 : before + 1;
  EXPECT_EQ(with.out.substr(0, start), plain.out) << "not one document";
  const nlohmann::json document = Outcome{0, with.out.substr(start), with.err}.json();
  EXPECT_EQ(document.value("ok", true), false) << document;
  EXPECT_EQ(document.value("schema", 0), document["verb"] == "run" ? 2 : 1) << document;
  EXPECT_TRUE(document.contains("ferry") && document.contains("verb")) << document;
  EXPECT_TRUE(document.contains("result")) << document;
  EXPECT_EQ(document.value("exit", -1), plain.code);
  nlohmann::json error = document.value("error", nlohmann::json::object());
  EXPECT_EQ(error.value("code", ""), code_name(plain.code));
  nlohmann::json told = told_error(with.err);
  EXPECT_EQ(error["message"], told["message"]);
  if (quiet) return;
  // stderr shows only the first details.
  constexpr size_t kShown = 20;
  nlohmann::json& details = error["details"];
  const size_t shown = details.size();
  if (shown > kShown) {
    details.erase(details.begin() + kShown, details.end());
    details.push_back(std::to_string(shown - kShown) + " more, which --json lists");
    const std::string last = told["details"].back();
    ASSERT_TRUE(last.starts_with("and ")) << last;
    told["details"].back() = last.substr(4);
  }
  EXPECT_EQ(details, told["details"]);
}

// Returns whether the exit code is that of a refusal. 0 and 1 are answers.
bool is_refusal(const Outcome& outcome) { return outcome.code > 1; }

Outcome run_checked(const std::string& input, const std::vector<std::string>& args) {
  Outcome outcome = run(input, "", args);
  const bool json = std::ranges::count(args, "--json") > 0;
  if (json || !is_refusal(outcome)) return outcome;
  std::vector<std::string> again = {"--json"};
  again.insert(again.end(), args.begin(), args.end());
  SCOPED_TRACE(testing::PrintToString(again));
  const bool quiet = std::ranges::count(args, "--quiet") > 0;
  expect_error_document(outcome, run(input, "", again), quiet);
  return outcome;
}

}  // namespace

Outcome run_program(const std::string& program, const Words& args,
                    const std::vector<std::string>& environment) {
  return run("", "", args.all(), {program, environment});
}
Outcome run_ferry(const Words& args) { return run_checked("", args.all()); }
Outcome run_ferry_once(const Words& args) { return run("", "", args.all()); }
Outcome run_ferry_on(const std::string& input, const Words& args) {
  return run_checked(input, args.all());
}
Outcome run_ferry_to(const std::string& stdout_path, const Words& args) {
  return run("", stdout_path, args.all());
}

RunningFerry::RunningFerry(const Words& args, bool close_input) {
  std::vector<std::string> words = {FERRY_BINARY};
  words.insert(words.end(), args.all().begin(), args.all().end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int in[2] = {-1, -1}, out[2] = {-1, -1};
  EXPECT_EQ(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
  const std::string err = dir_ / "err";
  Streams streams;
  streams.be(STDIN_FILENO, in[0]);
  streams.be(STDOUT_FILENO, out[1]);
  streams.open(STDERR_FILENO, err, O_WRONLY | O_CREAT);
  child_ = streams.start(argv.data(), environ);
  close(in[0]);
  close(out[1]);
  in_ = in[1];
  out_ = out[0];
  if (close_input) {
    close(in_);
    in_ = -1;
  }
}

RunningFerry::~RunningFerry() {
  if (!ended()) {
    signal(SIGKILL);
    waitpid(child_, &status_, 0);
  }
  if (in_ >= 0) close(in_);
  close(out_);
}

void RunningFerry::write(const std::string& text) {
  EXPECT_EQ(::write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::string RunningFerry::read_line(int seconds) {
  std::string line;
  pollfd ready{.fd = out_, .events = POLLIN, .revents = 0};
  while (!line.ends_with('\n') && poll(&ready, 1, seconds * 1000) == 1) {
    char c = 0;
    if (read(out_, &c, 1) != 1) break;
    line += c;
  }
  return line;
}

void RunningFerry::signal(int number) { kill(child_, number); }

bool RunningFerry::ended() {
  if (!reaped_) reaped_ = waitpid(child_, &status_, WNOHANG) == child_;
  return reaped_;
}

Outcome RunningFerry::wait() {
  Outcome outcome;
  char part[4096];
  for (ssize_t n; (n = read(out_, part, sizeof part)) > 0;) outcome.out.append(part, n);
  if (!reaped_) reaped_ = waitpid(child_, &status_, 0) == child_;
  outcome.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  outcome.err = read_bytes(dir_ / "err");
  return outcome;
}

std::string fixture(const std::string& name) { return std::string(FERRY_TESTDATA) + "/" + name; }

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
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

std::vector<float> TensorFile::floats_of(const std::string& tensor) const {
  const std::string bytes = bytes_of(tensor);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
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

std::string changed_config(const TempDir& dir, const std::string& name,
                           const nlohmann::json& change) {
  const std::string source = changed_checkpoint(dir, name, [](TensorFile&) {});
  nlohmann::json config = nlohmann::json::parse(read_bytes(source + "/config.json"));
  config.merge_patch(change);
  write_bytes(source + "/config.json", config.dump());
  return source;
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
