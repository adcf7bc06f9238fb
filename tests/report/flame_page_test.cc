// Pages and folded stacks of measured times.
#include "report/flame_page.h"

#include <gtest/gtest.h>

namespace ferry::report::flame_page_test {
namespace {

const std::vector<FlameRow> kRows = {{{"prompt", "forward", "a b;c", "w"}, 0.75, 3},
                                     {{"prompt", "forward", "<script>", ""}, 0.25, 2}};

TEST(FlamePage, BarsAreSharesOfTheBarAbove) {
  const std::string page = flame_page("Times & more", kRows);
  EXPECT_NE(page.find("<h1>Times &amp; more</h1>"), std::string::npos);
  EXPECT_NE(page.find("width:75.000%"), std::string::npos);
  EXPECT_NE(page.find("w 750.00 ms (75.0 %), 3 calls"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt; 250.00 ms"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
}

TEST(FlamePage, NoTimeIsAPage) {
  const std::vector<FlameRow> rows = {{{"prompt"}, 0, 1}};
  EXPECT_NE(flame_page("t", rows).find("</html>"), std::string::npos);
  EXPECT_NE(flame_page("t", {}).find("</html>"), std::string::npos);
}

TEST(FlamePage, FoldedStacksHaveALineForEachRow) {
  EXPECT_EQ(folded_stacks(kRows),
            "prompt;forward;a_b_c;w 750000\nprompt;forward;<script> 250000\n");
}

}  // namespace
}  // namespace ferry::report::flame_page_test
