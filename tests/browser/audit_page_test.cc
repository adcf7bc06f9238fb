// The page of an audit in a real browser: what the page shows, and how it reacts to mouse and keys.
#include <gtest/gtest.h>

#include "../report/audit_document.h"
#include "page_test.h"
#include "report/html_page.h"

namespace ferry::pages {
namespace {

using report::html_page;
using report::PageKind;

std::string audit_page(const AuditDocument& options) {
  return html_page(PageKind::kAudit, options.name, audit_document(options));
}

class AuditPage : public PageTest {
 protected:
  // Returns the middle of the map's canvas.
  std::pair<double, double> middle_of_map() {
    const auto box = browser().value(
        "(() => { const node = document.querySelector('#map canvas'); "
        "node.scrollIntoView({block: 'center'}); const b = node.getBoundingClientRect(); "
        "return [b.x + b.width / 2, b.y + b.height / 2]; })()");
    return {box.at(0), box.at(1)};
  }
  std::string zoom() { return browser().value("document.querySelector('#map .map').dataset.zoom"); }
  std::string address() { return browser().value("decodeURIComponent(location.hash)"); }
};

TEST_F(AuditPage, TenThousandTensorsOpenAndAreFound) {
  const AuditDocument options{.layers = 49, .experts = 68};
  const std::string page = audit_page(options);
  browser().open(page);
  ASSERT_TRUE(browser().becomes_true("document.documentElement.dataset.readyMs"));
  const double seconds = browser().processor_seconds();
  expect_no_complaint();
  const std::string ready = browser().value("document.documentElement.dataset.readyMs");
  std::printf("%d items, %zu bytes: first picture after %s ms, %.2f s of processor time\n",
              items_of(options), page.size(), ready.c_str(), seconds);
  // Other tests run at the same time, so the limit of a second applies to processor time.
  EXPECT_LT(seconds, 1.0);
  browser().click("#map input[type=search]");
  browser().type("experts.67 w3 layers.4");
  // The search matches layers 4 and 40 to 48.
  ASSERT_TRUE(
      browser().becomes_true("document.querySelector('#items .table-block').dataset.rows == 10"));
  EXPECT_EQ(browser().text("#map .toolbar .count").substr(0, 14), "10 items found");
  EXPECT_EQ(browser().value("document.querySelectorAll('#items tbody tr').length"), 10);
  EXPECT_EQ(address(), "#find=experts.67+w3+layers.4");
  expect_no_complaint();
}

TEST_F(AuditPage, ZoomsByMouseAndComesBack) {
  browser().open(audit_page({.layers = 12}));
  EXPECT_EQ(zoom(), "");
  const auto [x, y] = middle_of_map();
  browser().move(x, y);
  EXPECT_TRUE(browser().becomes_true("!document.querySelector('.tip').hidden"));
  EXPECT_NE(browser().text(".tip").find("of all"), std::string::npos);
  browser().click(x, y);
  EXPECT_EQ(zoom(), "model.ptd");
  EXPECT_EQ(address(), "#zoom=model.ptd");
  const auto [x2, y2] = middle_of_map();
  browser().click(x2, y2);
  const std::string deeper = zoom();
  EXPECT_EQ(deeper.substr(0, 10), "model.ptd/");
  browser().value("history.back()");
  EXPECT_TRUE(
      browser().becomes_true("document.querySelector('#map .map').dataset.zoom === 'model.ptd'"));
  browser().click("#map .crumbs button");
  EXPECT_EQ(zoom(), "");
  expect_no_complaint();
}

TEST_F(AuditPage, ZoomsByKeys) {
  browser().open(audit_page({.layers = 12}));
  browser().value("document.querySelector('#map canvas').focus()");
  browser().press("ArrowRight", 39);
  EXPECT_EQ(browser().text(".tip strong"), "model.ptd");
  browser().press("Enter", 13);
  EXPECT_EQ(zoom(), "model.ptd");
  browser().press("ArrowRight", 39);
  browser().press("Enter", 13);
  EXPECT_EQ(zoom(), "model.ptd/mlp.gate");
  EXPECT_EQ(browser().text("#map .level tbody th"), "layer 0: feed_forward.w1.weight");
  browser().press("Escape", 27);
  EXPECT_EQ(zoom(), "model.ptd");
}

TEST_F(AuditPage, AddressesRestoreTheView) {
  browser().open(audit_page({.layers = 12}),
                 "#zoom=model.ptd/attn.q&find=layers.1&colour=kind&size=elements&items.sort=name");
  EXPECT_EQ(zoom(), "model.ptd/attn.q");
  EXPECT_EQ(browser().value("document.querySelector('#map input').value"), "layers.1");
  EXPECT_EQ(browser().value("[...document.querySelectorAll('#map .choice [aria-pressed=true]')]"
                            ".map((b) => b.innerText).join()"),
            "Kind,Elements");
  EXPECT_EQ(browser().text("#items tbody th .link"), "layers.1.attention.wk.weight");
  EXPECT_EQ(browser().value("document.querySelector('#items .table-block').dataset.rows"), "18");
}

TEST_F(AuditPage, TablesSortAndFilter) {
  browser().open(audit_page({.layers = 12}));
  const std::string head = "#items thead th:nth-child(1) button";
  browser().click(head);
  EXPECT_EQ(browser().value("document.querySelector('#items thead th').ariaSort"), "ascending");
  EXPECT_EQ(browser().text("#items tbody th .link"), "header");
  browser().click(head);
  EXPECT_EQ(browser().value("document.querySelector('#items thead th').ariaSort"), "descending");
  EXPECT_EQ(browser().text("#items tbody th .link"), "tok_embeddings.weight");
  // Layers sort as numbers: 11 is behind 9.
  browser().value(
      "(() => { const s = document.querySelector('#items select[aria-label^=Component]');"
      " s.value = 'attn.q'; s.dispatchEvent(new Event('change')); })()");
  EXPECT_EQ(browser().text("#items tbody th .link"), "layers.11.attention.wq.weight");
  EXPECT_EQ(browser().value("document.querySelectorAll('#items tbody tr').length"), 12);
}

TEST_F(AuditPage, AnItemIsShownInTheMap) {
  browser().open(audit_page({.layers = 12}), "#items.sort=-name&find=layers.7.attention.wo");
  browser().click("#items tbody th .link");
  EXPECT_EQ(zoom(), "model.ptd/attn.o");
  EXPECT_EQ(browser().text(".tip strong"), "layers.7.attention.wo.weight");
}

TEST_F(AuditPage, HostileNamesAreText) {
  const std::string name(kHostileName);
  browser().open(audit_page({.name = kHostileName, .diff = true}));
  expect_no_complaint();
  EXPECT_EQ(browser().value("document.images.length"), 0);
  EXPECT_EQ(browser().value("document.title").get<std::string>().substr(9, 9), "</script>");
  // Invisible characters, and those that change the text direction, are shown as escapes.
  EXPECT_EQ(
      browser().text("h1"),
      "</script><img src=x onerror=\"document.title='taken'\">-->\\u{2028}\\u{202e}'\"\\&lt;");
  EXPECT_EQ(browser().text("#findings td.wide span").substr(0, 13), "</script><img");
}

TEST_F(AuditPage, ChangesAreShown) {
  browser().open(audit_page({.layers = 4, .diff = true}));
  EXPECT_NE(browser().text("#diff .lead").find("before (464 kB)"), std::string::npos)
      << browser().text("#diff .lead");
  EXPECT_EQ(browser().value("document.querySelectorAll('#diff .table-block tbody tr').length"), 3);
  EXPECT_NE(browser().text("#diff .keys").find("removed"), std::string::npos);
  browser().click("#diff .choice button:nth-of-type(2)");
  EXPECT_EQ(address(), "#diffsize=old");
  EXPECT_NE(browser().text("#diff .level").find("equal in both: 7 items"), std::string::npos);
  expect_no_complaint();
}

TEST_F(AuditPage, BudgetIsSaidInWords) {
  browser().open(audit_page({}));
  EXPECT_NE(browser().text("#budget p").find("1 of 1 limit exceeded"), std::string::npos);
  EXPECT_NE(browser().text("#budget tbody").find("exceeded"), std::string::npos);
}

TEST_F(AuditPage, MapIsPrintedWithoutColours) {
  browser().open(audit_page({}));
  const std::string coloured =
      "(() => { const c = document.querySelector('#map canvas'); "
      "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0; "
      "for (let i = 0; i < d.length; i += 4) n += d[i] !== d[i + 1] || d[i] !== d[i + 2]; "
      "return n; })()";
  // On a busy machine the map may be drawn after the page is ready.
  EXPECT_TRUE(browser().becomes_true(coloured + " > 10000"));
  browser().show_as("print", "dark");
  browser().value("dispatchEvent(new Event('beforeprint'))");
  EXPECT_EQ(browser().value(coloured), 0);
}

TEST_F(AuditPage, ReadsWellInLightDarkAndPrint) { expect_readable(audit_page({.diff = true})); }

}  // namespace
}  // namespace ferry::pages
