// Helpers of the tests that run the program with models of speech.
#pragma once

#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"

namespace ferry::speech_run {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

inline Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

inline std::string sound(const std::string& name) { return fixture("sound/" + name); }

// Converts a checkpoint to a bundle in `dir`.
inline std::string convert_speech(const TempDir& dir, const std::string& checkpoint,
                                  const Line& options) {
  const std::string bundle = dir / "b";
  const Outcome outcome = run_ferry(Line{"convert", checkpoint, "-o", bundle} + options);
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  return bundle;
}

inline Json verified(const Line& args, int code = 0) {
  const Outcome outcome = run_ferry(Line{"--json", "verify"} + args);
  EXPECT_EQ(outcome.code, code) << outcome.err << outcome.out;
  return outcome.json();
}

inline void expect_refused(const Line& args, int code, const std::string& message) {
  const Outcome outcome = run_ferry(args);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
}

}  // namespace ferry::speech_run
