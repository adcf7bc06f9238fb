// Result: the state after moves, copies and assignments.

#include "core/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace ferry {
namespace result_test {
namespace {

Result<std::string> text(bool fails) {
  if (fails) return bad_input("no text");
  return "text";
}
Result<size_t> length(bool fails) {
  const std::string found = FERRY_TRY(text(fails));
  return found.size();
}
Status checked(bool fails) {
  FERRY_RETURN_IF_ERROR(text(fails).has_value() ? Status() : fail(ErrorCode::kIo, "unread"));
  return {};
}

TEST(Result, ErrorsPassThroughFunctionsOfOtherTypes) {
  EXPECT_EQ(length(false).value(), 4u);
  const auto failed = length(true);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(failed.error().message, "no text");
  EXPECT_TRUE(checked(false));
  EXPECT_EQ(checked(true).error().code, ErrorCode::kIo);
}

TEST(Result, AMovedOneKeepsItsState) {
  auto value = text(false), error = text(true);
  const auto taken_value = std::move(value), taken_error = std::move(error);
  EXPECT_EQ(*taken_value, "text");
  EXPECT_EQ(taken_error.error().message, "no text");
  EXPECT_TRUE(value.has_value());   // NOLINT: the test reads a value after its move
  EXPECT_FALSE(error.has_value());  // NOLINT: the test reads a value after its move
  EXPECT_EQ(error.error().message, "");
}

TEST(Result, CopiesAndAssignmentsOfEveryPairOfStates) {
  for (const bool from : {false, true}) {
    for (const bool to : {false, true}) {
      const auto source = text(from);
      auto copy = source, target = text(to);
      target = source;
      EXPECT_EQ(target.has_value(), !from);
      EXPECT_EQ(target.value_or("none"), from ? "none" : "text");
      EXPECT_EQ(copy.value_or("none"), from ? "none" : "text");
      target = std::move(copy);
      EXPECT_EQ(std::move(target).value_or("none"), from ? "none" : "text");
      EXPECT_EQ(source.has_value(), !from);
    }
  }
}

TEST(Result, ValuesOfOtherTypesConvert) {
  const Result<std::shared_ptr<const int>> made = std::make_unique<int>(3);
  EXPECT_EQ(**made, 3);
  EXPECT_THROW(text(true).value(), std::logic_error);
}

}  // namespace
}  // namespace result_test
}  // namespace ferry
