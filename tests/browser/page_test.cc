#include "page_test.h"

namespace ferry::pages {
namespace {

// Lists the texts whose contrast with their background (WCAG 2.2, section 1.4.3) is under 4.5, one
// a line. The background is the nearest one that is not transparent.
constexpr const char* kPaleTexts = R"js((() => {
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const background = (node) => {
    for (let up = node; up; up = up.parentElement) {
      const colour = channels(getComputedStyle(up).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const pale = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !node.checkVisibility() || node.closest('script, .unseen')) continue;
    ++seen;
    const style = getComputedStyle(node);
    const colour = channels(node.closest('svg') ? style.fill : style.color);
    const [a, b] = [luminance(colour), luminance(background(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) pale.add(`${ratio.toFixed(2)} ${node.tagName}.${node.className} ${walk.currentNode.data.trim().slice(0, 30)}`);
  }
  if (seen < 40) pale.add(`only ${seen} texts`);
  return [...pale].join('\n');
})())js";

// Lists controls and tables that a screen reader could not name.
constexpr const char* kNameless = R"js((() => {
  const nameless = [];
  for (const node of document.querySelectorAll('button, summary, a')) {
    if (!node.textContent.trim() && !node.ariaLabel) nameless.push(node.outerHTML);
  }
  for (const node of document.querySelectorAll('input, select, canvas, main svg[role=img], [role=region]')) {
    if (!node.ariaLabel && !node.getAttribute('aria-label') && !node.labels?.length) nameless.push(node.outerHTML);
  }
  for (const node of document.querySelectorAll('table')) {
    if (!node.caption?.textContent || !node.querySelector('th[scope=col]')) nameless.push('a table');
  }
  const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
  if (new Set(ids).size !== ids.length) nameless.push(`an id twice: ${ids}`);
  return nameless.join('\n');
})())js";

}  // namespace

Browser& PageTest::browser() {
  static Browser one;
  return one;
}

void PageTest::TearDown() {
  browser().show_as("", "light");
  browser().allow_scripts(true);
}

void PageTest::expect_no_complaint() {
  for (const std::string& line : browser().complaints()) ADD_FAILURE() << line;
  for (const std::string& address : browser().requests()) {
    EXPECT_EQ(address.substr(0, 8), "file:///") << address;
    EXPECT_NE(address.find("/page.html"), std::string::npos) << address;
  }
}

void PageTest::expect_readable(const std::string& page) {
  for (const char* scheme : {"light", "dark"}) {
    browser().show_as("screen", scheme);
    browser().open(page);
    EXPECT_EQ(browser().value(kPaleTexts), "") << scheme;
    EXPECT_EQ(browser().value(kNameless), "");
    expect_no_complaint();
  }
  // Print is black on white, also where the reader prefers dark pages.
  browser().show_as("print", "dark");
  EXPECT_EQ(browser().value(kPaleTexts), "") << "print";
  EXPECT_EQ(browser().value("getComputedStyle(document.body).backgroundColor"),
            "rgb(255, 255, 255)");
  EXPECT_GT(browser().call("Page.printToPDF").at("data").get<std::string>().size(), 10000U);
  browser().show_as("", "light");
  browser().allow_scripts(false);
  browser().open(page);
  EXPECT_NE(browser().text("main").find("scripts are off"), std::string::npos);
  browser().allow_scripts(true);
}

}  // namespace ferry::pages
