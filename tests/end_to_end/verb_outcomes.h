// Command lines of the program, and what tests of whole models expect of their outcomes.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_outcomes {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

inline Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

// Changes the config of a checkpoint that is the test's own.
inline void change_config(const std::string& checkpoint, const Json& change) {
  Json config = Json::parse(read_bytes(checkpoint + "/config.json"));
  config.update(change);
  write_bytes(checkpoint + "/config.json", config.dump());
}

// Converts a checkpoint, and returns the bundle.
inline std::string converted(const TempDir& dir, const std::string& checkpoint,
                             const Line& options) {
  const std::string bundle = dir / "b";
  const Outcome outcome = run_ferry(Line{"convert", checkpoint, "-o", bundle} + options);
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  return bundle;
}

// Returns the report of a verification that ends with `code`.
inline Json verified(const Line& args, int code = 0) {
  const Outcome outcome = run_ferry(Line{"--json", "verify"} + args);
  EXPECT_EQ(outcome.code, code) << outcome.err << outcome.out;
  return outcome.json();
}

// Returns the names of the first layers that a report of `verify` compares.
inline Line first_layers(const Json& report, size_t count) {
  Line names;
  for (const Json& layer : report["result"]["layers"]) {
    if (names.size() < count) names.push_back(layer["name"]);
  }
  return names;
}

inline void expect_refused(const Line& args, int code, const std::string& message) {
  const Outcome outcome = run_ferry(args);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
}

}  // namespace ferry::verb_outcomes
