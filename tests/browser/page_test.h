// PageTest: what holds of every page. The tests of this program share one browser.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "browser.h"

namespace ferry::pages {

class PageTest : public ::testing::Test {
 protected:
  static Browser& browser();
  void TearDown() override;

  // Nothing in the console, nothing refused, nothing asked for but the file itself.
  static void expect_no_complaint();
  // In light, in dark and on paper: all text stands out from what is behind it; buttons, fields and
  // tables have names; without scripts there is a note.
  static void expect_readable(const std::string& page);
};

}  // namespace ferry::pages
