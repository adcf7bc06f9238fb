#include "runner/image_spans.h"

#include <gtest/gtest.h>

namespace ferry::runner::image_spans_test {
namespace {

// Images at [2, 5) and [5, 7), which are one without a token between them, and at [9, 11).
ImageSpans spans() {
  static const std::vector<float> values(6);
  const auto rows = [](int64_t first, size_t count) {
    return EmbeddingRows{first, std::span(values).first(2 * count)};
  };
  const EmbeddingRows all[] = {rows(2, 3), rows(5, 2), rows(9, 2)};
  ImageSpans out;
  out.set(all, 2);
  return out;
}

TEST(ImageSpans, ATokenAttendsToTheEndOfItsImage) {
  const ImageSpans images = spans();
  const int64_t expected[] = {1, 2, 7, 7, 7, 7, 7, 8, 9, 11, 11, 12};
  for (int64_t at = 0; at < std::ssize(expected); ++at) {
    EXPECT_EQ(images.end_at(at), expected[at]) << at;
  }
  EXPECT_EQ(ImageSpans().end_at(3), 4);
}

TEST(ImageSpans, ACallEndsBeforeTheImageThatItWouldCut) {
  const ImageSpans images = spans();
  EXPECT_EQ(images.call_length(0, 20, 4).value(), 2u);
  EXPECT_EQ(images.call_length(2, 18, 5).value(), 5u);
  EXPECT_EQ(images.call_length(0, 20, 8).value(), 8u);
  EXPECT_EQ(images.call_length(0, 20, 10).value(), 9u);
  EXPECT_EQ(images.call_length(7, 13, 20).value(), 13u);
  EXPECT_EQ(ImageSpans().call_length(0, 20, 4).value(), 4u);
}

TEST(ImageSpans, AWholePromptMayBeAsOneImage) {
  const std::vector<float> values(4);
  const EmbeddingRows rows[] = {{.first = 1, .values = values, .prompt_end = 6}};
  ImageSpans prompt;
  prompt.set(rows, 2);
  EXPECT_EQ(prompt.end_at(0), 6);
  EXPECT_EQ(prompt.end_at(5), 6);
  EXPECT_EQ(prompt.end_at(6), 7);
  EXPECT_EQ(prompt.call_length(0, 9, 6).value(), 6u);
  EXPECT_EQ(prompt.call_length(0, 6, 5).error().message,
            "the 6 tokens of the prompt at position 0 attend to each other, and so must be tokens "
            "of one call, which has room for 5 here");
}

TEST(ImageSpans, AnImageThatDoesNotFitIsRefused) {
  const ImageSpans images = spans();
  const auto refused = [&](int64_t position, size_t count, size_t most) {
    const auto length = images.call_length(position, count, most);
    EXPECT_FALSE(length);
    return length ? "" : length.error().message;
  };
  EXPECT_EQ(refused(2, 18, 4),
            "the 5 rows of the image at position 2 attend to each other, and so must be tokens of "
            "one call, which has room for 4 here");
  EXPECT_NE(refused(9, 1, 8).find("the 2 rows of the image at position 9"), std::string::npos);
  EXPECT_NE(refused(3, 10, 10).find("the 5 rows of the image at position 2"), std::string::npos);
}

}  // namespace
}  // namespace ferry::runner::image_spans_test
