// Pages are safe and complete, whatever names they contain.
#include "report/html_page.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <nlohmann/json.hpp>
#include <random>

#include "audit_document.h"
#include "core/json_writer.h"

namespace ferry::report::html_page_test {
namespace {

using nlohmann::json;

constexpr std::array kKinds = {PageKind::kAudit, PageKind::kParity, PageKind::kBatch};

// Returns the text between `open` and the next `close`, as an HTML parser reads it.
std::string between(const std::string& page, std::string_view open, std::string_view close) {
  const size_t begin = page.find(open);
  if (begin == std::string::npos) return {};
  const size_t end = page.find(close, begin + open.size());
  return page.substr(begin + open.size(), end - begin - open.size());
}

std::string data_of(const std::string& page) {
  return between(page, "<script type=\"application/json\" id=\"data\">", "</script");
}

size_t count_of(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string base64_sha256(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t bit = 0; bit < 256; bit += 6) {
    const unsigned pair = digest[bit / 8] << 8 | (bit / 8 + 1 < 32 ? digest[bit / 8 + 1] : 0);
    out += kLetters[pair >> (10 - bit % 8) & 63];
  }
  return out + "=";
}

TEST(HtmlPage, HostileNamesStayText) {
  const std::string document = pages::audit_document({.name = pages::kHostileName});
  const std::string page = html_page(PageKind::kAudit, pages::kHostileName, document);
  EXPECT_EQ(json::parse(data_of(page)), json::parse(document));
  EXPECT_EQ(count_of(page, "<script"), 2U);
  EXPECT_EQ(count_of(page, "</script"), 2U);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(count_of(page, "<title>"), 1U);
  EXPECT_NE(between(page, "<title>", "</title").find("&lt;/script&gt;&lt;img"), std::string::npos);
}

// The texts are made of pieces that have a meaning in HTML, in JSON or in scripts.
TEST(HtmlPage, AnyTextParsesBackEqual) {
  const std::vector<std::string> pieces = {"<",
                                           ">",
                                           "&",
                                           "!--",
                                           "-->",
                                           "</",
                                           "script",
                                           "]]>",
                                           "\"",
                                           "\\",
                                           "/",
                                           "'",
                                           "\n",
                                           "\t",
                                           "u",
                                           "\\u003c",
                                           "\xe2\x80\xa8",
                                           "\xe2\x80\xa9",
                                           "\xe2",
                                           "\x80",
                                           "\xff",
                                           std::string(1, '\0'),
                                           "\xf0\x9f\x9a\xa2"};
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += pieces[random() % pieces.size()];
    JsonWriter writer;
    const std::string document = writer.begin_object().member(text, text).end_object().take();
    const std::string page = html_page(PageKind::kBatch, text, document);
    ASSERT_EQ(json::parse(data_of(page)), json::parse(document)) << document;
    ASSERT_EQ(count_of(page, "<script"), 2U) << document;
    ASSERT_EQ(count_of(page, "<!--"), 0U) << document;
    ASSERT_EQ(count_of(page, "\xe2\x80\xa8"), count_of(html_text(text), "\xe2\x80\xa8") * 2);
  }
}

TEST(HtmlPage, LineSeparatorsAreEscaped) {
  EXPECT_EQ(json_in_script("\"a\xe2\x80\xa8"
                           "b\xe2\x80\xa9\xe2\x80\xaa\xe2\x80\""),
            "\"a\\u2028b\\u2029\xe2\x80\xaa\xe2\x80\"");
}

TEST(HtmlPage, ControlCharactersOfTitlesAreReplaced) {
  EXPECT_EQ(html_text("a\x01\x7f<\">'&"), "a\xef\xbf\xbd\xef\xbf\xbd&lt;&quot;&gt;&#39;&amp;");
}

TEST(HtmlPage, PolicyAllowsItsOwnScriptAndStyleAlone) {
  for (const PageKind kind : kKinds) {
    const std::string page = html_page(kind, "t", "{}");
    const std::string style = between(page, "<style>", "</style>");
    const std::string script = between(page, "</script>\n<script>", "</script>");
    ASSERT_GT(script.size(), 1000U);
    EXPECT_EQ(between(page, "http-equiv=\"Content-Security-Policy\" content=\"", "\""),
              "default-src 'none'; style-src 'sha256-" + base64_sha256(style) +
                  "'; script-src 'sha256-" + base64_sha256(script) +
                  "'; base-uri 'none'; form-action 'none'");
  }
}

TEST(HtmlPage, LoadsNothingAndParsesNoMarkup) {
  for (const PageKind kind : kKinds) {
    const std::string page = html_page(kind, "t", "{}");
    for (const char* word : {"http:", "https:", "url(", "@import", "src=", "import(", "fetch(",
                             "XMLHttpRequest", "innerHTML", "outerHTML", "insertAdjacentHTML",
                             "document.write", "eval(", "Function(", "style=\""}) {
      EXPECT_EQ(page.find(word), std::string::npos) << word;
    }
  }
}

TEST(HtmlPage, SameInputSameBytes) {
  for (const PageKind kind : kKinds) {
    EXPECT_EQ(html_page(kind, "t", "{\"a\":1}"), html_page(kind, "t", "{\"a\":1}"));
  }
}

TEST(HtmlPage, TenThousandTensorsFitInThreeMegabytes) {
  const pages::AuditDocument options{.layers = 49, .experts = 68, .diff = true};
  ASSERT_GE(pages::items_of(options), 10000);
  const std::string page = html_page(PageKind::kAudit, "large", pages::audit_document(options));
  RecordProperty("bytes", static_cast<int>(page.size()));
  EXPECT_LT(page.size(), 3'000'000U);
}

}  // namespace
}  // namespace ferry::report::html_page_test
