#include "checkpoint/python_json.h"

#include <gtest/gtest.h>

namespace ferry::checkpoint::python_json_test {
namespace {

TEST(PythonJson, BareWordsBecomeObjects) {
  EXPECT_EQ(without_bare_floats("{\"a\": [0.0, Infinity], \"b\":NaN,\n\"c\": -Infinity}"),
            "{\"a\": [0.0, {\"__float__\": \"Infinity\"}], \"b\":{\"__float__\": \"NaN\"},\n"
            "\"c\": {\"__float__\": \"-Infinity\"}}");
}

TEST(PythonJson, StringsAndOtherWordsStayAsTheyAre) {
  for (const char* text :
       {R"({"a": "NaN, Infinity"})", R"({"a\" : Infinity": 1})", R"({"Infinity": 1})", "Infinity",
        R"({"a": Infinity1})", R"({"a": xNaN })", R"({"a": "Infinity)", "", R"({"a": NaN)"}) {
    EXPECT_EQ(without_bare_floats(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ferry::checkpoint::python_json_test
