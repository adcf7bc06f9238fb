// PageTest: checks that every page must pass. The tests of this program share one browser.
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

  // The console is empty, nothing was refused, and the page requested no other file.
  static void expect_no_complaint();
  // In light mode, in dark mode and on paper all text has enough contrast. Buttons, fields and
  // tables have names. Without scripts the page shows a note.
  static void expect_readable(const std::string& page);
};

}  // namespace ferry::pages
