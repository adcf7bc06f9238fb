#include "batch/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/text.h"

namespace ferry::batch {
namespace {

constexpr int64_t kPlanVersion = 1;
constexpr size_t kMaxIdBytes = 200;
constexpr size_t kDigestDigits = 64;

// The place of a line, with which every message about the line begins.
struct Line {
  std::string where;  // such as "plan.jsonl: line 3"
  Failure refuse(const std::string& what) const {
    return bad_input(fmt::format("{}: {}", where, what));
  }
};

// -- members

Result<bool> bool_of(const Line& line, const std::string& name, const nlohmann::json& value) {
  if (!value.is_boolean()) return line.refuse(fmt::format("{} is not true or false", quoted(name)));
  return value.get<bool>();
}

Result<std::string> text_of(const Line& line, const std::string& name,
                            const nlohmann::json& value) {
  if (!value.is_string()) return line.refuse(fmt::format("{} is not a string", quoted(name)));
  std::string text = value.get<std::string>();
  if (text.find('\0') != std::string::npos) {
    return line.refuse(fmt::format("{} has a NUL character", quoted(name)));
  }
  return text;
}

Result<std::string> path_of(const Line& line, const std::string& name,
                            const nlohmann::json& value) {
  std::string path = FERRY_TRY(text_of(line, name, value));
  if (path.empty()) return line.refuse(fmt::format("{} is empty", quoted(name)));
  return path;
}

Result<std::vector<std::string>> words_of(const Line& line, const std::string& name,
                                          const nlohmann::json& value) {
  if (!value.is_array()) return line.refuse(fmt::format("{} is not an array", quoted(name)));
  std::vector<std::string> words;
  for (const nlohmann::json& item : value) words.push_back(FERRY_TRY(text_of(line, name, item)));
  return words;
}

// Returns whether batch adds this word to command lines itself, also in the forms `-oFILE` and
// `--out=FILE`.
bool is_ours(const std::string& word) {
  constexpr std::array<std::string_view, 16> kOurs = {
      "-o",      "--out",  "--overwrite", "--dry-run", "-n", "--json",
      "--quiet", "--help", "--threads",   "--version", "-h", "--all",
      "-q",      "--",     "--resume",    "--no-sync"};
  const std::string name = word.substr(0, word.find('='));
  const bool short_out = word.starts_with("-o") && !word.starts_with("--");
  return short_out || std::ranges::find(kOurs, name) != kOurs.end();
}

Result<std::vector<std::string>> args_of(const Line& line, const nlohmann::json& value) {
  std::vector<std::string> words = FERRY_TRY(words_of(line, "args", value));
  for (const std::string& word : words) {
    if (is_ours(word)) return line.refuse(fmt::format("{} in 'args' is not allowed", quoted(word)));
  }
  return words;
}

Failure unknown(const Line& line, const std::string& name, const char* of) {
  return line.refuse(fmt::format("there is no member {} of {}", quoted(name), of));
}

Result<Verify> verify_of(const Line& line, const nlohmann::json& value) {
  if (!value.is_object()) return line.refuse("'verify' is not an object");
  Verify verify;
  for (const auto& [name, member] : value.items()) {
    if (name == "embedded") {
      verify.embedded = FERRY_TRY(bool_of(line, name, member));
    } else if (name == "checkpoint") {
      verify.checkpoint = FERRY_TRY(bool_of(line, name, member));
    } else if (name == "check") {
      verify.check = FERRY_TRY(bool_of(line, name, member));
    } else if (name == "reference") {
      verify.reference = FERRY_TRY(path_of(line, name, member));
    } else if (name == "args") {
      verify.args = FERRY_TRY(args_of(line, member));
    } else {
      return unknown(line, name, "'verify'");
    }
  }
  if (verify.embedded && (verify.checkpoint || !verify.reference.empty())) {
    return line.refuse("'embedded' excludes 'checkpoint' and 'reference'");
  }
  return verify;
}

bool is_digest(const std::string& text) {
  return text.size() == kDigestDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Result<Expectation> expectation_of(const Line& line, const nlohmann::json& value) {
  if (!value.is_object()) return line.refuse("'expect' is not an object");
  Expectation expect;
  for (const auto& [name, member] : value.items()) {
    if (name == "sha256") {
      expect.sha256 = FERRY_TRY(text_of(line, name, member));
      if (!is_digest(expect.sha256)) return line.refuse("'sha256' is not 64 hexadecimal digits");
    } else if (name == "max_bytes") {
      if (!member.is_number_unsigned()) return line.refuse("'max_bytes' is not a whole number");
      expect.max_bytes = member.get<uint64_t>();
    } else {
      return unknown(line, name, "'expect'");
    }
  }
  return expect;
}

// Reads a member that both tasks and defaults can have. Returns false if `name` is no such member.
Result<bool> read_common(const Line& line, const std::string& name, const nlohmann::json& value,
                         Task& task) {
  if (name == "args") {
    task.args = FERRY_TRY(args_of(line, value));
  } else if (name == "verify") {
    task.verify = FERRY_TRY(verify_of(line, value));
  } else if (name == "expect") {
    task.expect = FERRY_TRY(expectation_of(line, value));
  } else {
    return false;
  }
  return true;
}

// -- lines

Result<Task> defaults_of(const Line& line, const nlohmann::json& document) {
  Task defaults;
  for (const auto& [name, value] : document.items()) {
    if (name == "ferry_plan") {
      if (value == kPlanVersion) continue;
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: 'ferry_plan' is not {}", line.where, kPlanVersion));
    }
    if (name != "defaults") return unknown(line, name, "a plan's first line");
    if (!value.is_object()) return line.refuse("'defaults' is not an object");
    for (const auto& [inner, member] : value.items()) {
      if (!FERRY_TRY(read_common(line, inner, member, defaults))) {
        return unknown(line, inner, "'defaults'");
      }
    }
  }
  return defaults;
}

Result<Task> task_of(const Line& line, const nlohmann::json& document, Task task) {
  for (const auto& [name, value] : document.items()) {
    if (name == "id") {
      task.id = FERRY_TRY(text_of(line, name, value));
      if (is_task_id(task.id)) continue;
      return line.refuse(fmt::format("id {} is not 1 to {} of A-Z a-z 0-9 . _ -, the first no . -",
                                     quoted(task.id), kMaxIdBytes));
    }
    if (name == "input") {
      task.input = FERRY_TRY(path_of(line, name, value));
    } else if (name == "output") {
      task.output = FERRY_TRY(path_of(line, name, value));
    } else if (!FERRY_TRY(read_common(line, name, value, task))) {
      return unknown(line, name, "a task");
    }
  }
  for (const auto& [name, text] :
       {std::pair("id", &task.id), {"input", &task.input}, {"output", &task.output}}) {
    if (text->empty()) return line.refuse(fmt::format("'{}' is missing", name));
  }
  return task;
}

// Returns one text for all spellings of a path, such as "a/b" and "./a//b/".
std::string normal_path(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal;
}

// Resolves the symbolic links of a path as far as the path exists. Returns the path itself if that
// fails.
std::string real_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return normal_path(path);
  const std::filesystem::path real = std::filesystem::weakly_canonical(absolute, error);
  return normal_path(error ? path : real.string());
}

// Refuses ids and outputs that an earlier line has.
class Names {
 public:
  Status add(const Line& line, const Task& task, size_t number) {
    if (const auto [at, added] = ids_.emplace(task.id, number); !added) {
      return line.refuse(fmt::format("id {} is that of line {}", quoted(task.id), at->second));
    }
    const std::string output = real_path(task.output);
    if (output == real_path(task.input)) return line.refuse("'output' is 'input'");
    if (const auto [at, added] = outputs_.emplace(output, Output{number, task.output}); !added) {
      return line.refuse(
          fmt::format("output {} is that of line {}", quoted(task.output), at->second.line));
    }
    return {};
  }
  // Call this after the last line. Refuses outputs that are inside the output of another task.
  Status check_nesting(const std::string& name) const {
    for (const auto& [path, output] : outputs_) {
      for (size_t slash = path.find('/', 1); slash != std::string::npos;
           slash = path.find('/', slash + 1)) {
        const auto outer = outputs_.find(path.substr(0, slash));
        if (outer == outputs_.end()) continue;
        return Line{fmt::format("{}: line {}", name, output.line)}.refuse(fmt::format(
            "output {} is inside of that of line {}", quoted(output.given), outer->second.line));
      }
    }
    return {};
  }

 private:
  struct Output {
    size_t line = 0;
    std::string given;  // path as the plan states it
  };

  std::unordered_map<std::string, size_t> ids_;      // id to number of its line
  std::unordered_map<std::string, Output> outputs_;  // keys are results of real_path()
};

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

bool is_task_id(const std::string& text) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return !text.empty() && text.size() <= kMaxIdBytes && text[0] != '.' && text[0] != '-' &&
         text.find_first_not_of(kAllowed) == std::string::npos;
}

Result<Plan> parse_plan(const std::string& text, const std::string& name) {
  Plan plan;
  plan.sha256 = to_hex(sha256(std::as_bytes(std::span<const char>(text))));
  Task defaults;
  Names names;
  size_t number = 0;
  for (const std::string_view content : lines_of(text)) {
    const Line line{fmt::format("{}: line {}", name, ++number)};
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) {
      return line.refuse("is empty");  // an empty line would shift the indices of tasks
    }
    const nlohmann::json document = FERRY_TRY(parse_json(content, line.where));
    if (!document.is_object()) return line.refuse("is not an object");
    if (document.contains("ferry_plan")) {
      if (number > 1) return line.refuse("'ferry_plan' stands in the first line only");
      defaults = FERRY_TRY(defaults_of(line, document));
      continue;
    }
    Task task = FERRY_TRY(task_of(line, document, defaults));
    FERRY_RETURN_IF_ERROR(names.add(line, task, number));
    task.index = plan.tasks.size();
    plan.tasks.push_back(std::move(task));
  }
  FERRY_RETURN_IF_ERROR(names.check_nesting(name));
  if (plan.tasks.empty()) return bad_input(fmt::format("{}: no task in this plan", name));
  return plan;
}

Result<Plan> read_plan(const std::string& path) {
  const std::string text = FERRY_TRY(read_text_file(path, kMaxPlanBytes));
  Plan plan = FERRY_TRY(parse_plan(text, printable(path)));
  plan.path = path;
  return plan;
}

}  // namespace ferry::batch
