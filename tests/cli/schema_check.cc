#include "tests/cli/schema_check.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "tests/cli/ferry_process.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 13> kKeywords = {"$schema",
                                                        "$id",
                                                        "$ref",
                                                        "$defs",
                                                        "title",
                                                        "description",
                                                        "type",
                                                        "enum",
                                                        "properties",
                                                        "required",
                                                        "additionalProperties",
                                                        "items",
                                                        "const"};

bool has_type(const json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

class SchemaCheck {
 public:
  explicit SchemaCheck(std::string file) : file_(std::move(file)) {}

  void check(const json& schema, const json& value, const std::string& at) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) problem(at, "is not allowed");
      return;
    }
    for (const auto& [keyword, ignored] : schema.items()) {
      if (std::ranges::count(kKeywords, keyword) == 0) problem(at, "has the keyword " + keyword);
    }
    if (schema.contains("$ref")) follow(schema["$ref"], value, at);
    if (schema.contains("type")) check_type(schema["type"], value, at);
    if (schema.contains("const") && value != schema["const"]) problem(at, "is " + value.dump());
    if (schema.contains("enum")) check_enum(schema["enum"], value, at);
    if (value.is_object()) check_object(schema, value, at);
    if (value.is_array() && schema.contains("items")) {
      for (size_t i = 0; i < value.size(); ++i) {
        check(schema["items"], value[i], at + "[" + std::to_string(i) + "]");
      }
    }
  }

  const json& file(const std::string& name) {
    const auto [found, added] = files_.try_emplace(name);
    if (added) found->second = json::parse(read_bytes(fixture("../docs/schemas/" + name)));
    return found->second;
  }

  std::vector<std::string> problems;

 private:
  void problem(const std::string& at, const std::string& what) {
    problems.push_back(file_ + ": " + (at.empty() ? "the document" : at) + " " + what);
  }

  // Follows a reference such as "#/$defs/x" or "other.json#/$defs/x".
  void follow(const std::string& reference, const json& value, const std::string& at) {
    const size_t hash = reference.find('#');
    const std::string before = file_;
    if (hash > 0) file_ = reference.substr(0, hash);
    const json::json_pointer pointer(hash == reference.npos ? "" : reference.substr(hash + 1));
    check(file(file_).at(pointer), value, at);
    file_ = before;
  }

  void check_type(const json& type, const json& value, const std::string& at) {
    const json types = type.is_array() ? type : json::array({type});
    const bool fits = std::ranges::any_of(
        types, [&](const json& name) { return has_type(value, name.get<std::string>()); });
    if (!fits) problem(at, "is not of type " + type.dump() + ": " + value.dump().substr(0, 100));
  }

  void check_enum(const json& words, const json& value, const std::string& at) {
    if (std::ranges::count(words, value) == 0)
      problem(at, "is none of its values: " + value.dump());
  }

  void check_object(const json& schema, const json& value, const std::string& at) {
    const json empty = json::object();
    const json& properties = schema.contains("properties") ? schema["properties"] : empty;
    for (const json& name : schema.value("required", json::array())) {
      if (!value.contains(name)) problem(at, "lacks " + name.dump());
    }
    for (const auto& [name, member] : value.items()) {
      const std::string place = at + "." + name;
      if (properties.contains(name)) {
        check(properties[name], member, place);
      } else if (schema.contains("additionalProperties")) {
        check(schema["additionalProperties"], member, place);
      } else if (!properties.empty()) {
        problem(place, "is not described");
      }
    }
  }

  std::string file_;
  std::map<std::string, json> files_;
};

}  // namespace

std::vector<std::string> schema_problems(const std::string& file, const json& value) {
  SchemaCheck check(file);
  check.check(check.file(file), value, "");
  return check.problems;
}

}  // namespace ferry
