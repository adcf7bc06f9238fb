#include "report/html_page.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <span>

#include "core/sha256.h"
#include "core/version.h"
#include "report/page_parts.h"

namespace ferry::report {
namespace {

// Whether `rest` begins with U+2028 or U+2029, the line separators at which old JavaScript parsers
// end a string.
bool is_line_separator(std::string_view rest) {
  return rest.size() >= 3 && rest[0] == '\xe2' && rest[1] == '\x80' &&
         (rest[2] == '\xa8' || rest[2] == '\xa9');
}

// Returns the escape of the first character of `rest`; empty if the character needs none.
std::string_view json_escape(std::string_view rest) {
  switch (rest[0]) {
    case '<':
      return "\\u003c";
    case '>':
      return "\\u003e";
    case '&':
      return "\\u0026";
    default:
      break;
  }
  if (!is_line_separator(rest)) return {};
  return rest[2] == '\xa8' ? "\\u2028" : "\\u2029";
}

std::string_view html_escape(char c) {
  switch (c) {
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '&':
      return "&amp;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? "\xef\xbf\xbd" : "";
  }
}

}  // namespace

std::string json_in_script(std::string_view json) {
  std::string out;
  out.reserve(json.size() + json.size() / 64);
  while (!json.empty()) {
    const size_t plain = std::min(json.find_first_of("<>&\xe2"), json.size());
    out += json.substr(0, plain);
    json.remove_prefix(plain);
    const std::string_view escape = json.empty() ? "" : json_escape(json);
    // The byte 0xe2 also begins other characters, which stay as they are.
    out += escape.empty() ? json.substr(0, 1) : escape;
    json.remove_prefix(std::min(json.size(), is_line_separator(json) ? size_t{3} : size_t{1}));
  }
  return out;
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const std::string_view escape = html_escape(c);
    escape.empty() ? out.push_back(c) : static_cast<void>(out += escape);
  }
  return out;
}

namespace {

struct Page {
  std::string_view name;    // name of the kind in the style and the scripts
  std::string_view what;    // what the page shows, before the name of the thing
  std::string_view script;  // the complete script
};

Page page(PageKind kind) {
  switch (kind) {
    case PageKind::kAudit:
      return {.name = "audit", .what = "Sizes of ", .script = kAuditScript};
    case PageKind::kParity:
      return {.name = "parity", .what = "Parity of ", .script = kParityScript};
    case PageKind::kBatch:
      return {.name = "batch", .what = "Batch ", .script = kBatchScript};
  }
  return {};
}

// Returns the hash of an inline script or style in the form that a content security policy uses.
std::string hash_source(std::string_view text) {
  const Digest digest = sha256(std::as_bytes(std::span(text)));
  std::array<unsigned char, 45> base64{};
  EVP_EncodeBlock(base64.data(), reinterpret_cast<const unsigned char*>(digest.data()),
                  static_cast<int>(digest.size()));
  return fmt::format("'sha256-{}'", reinterpret_cast<const char*>(base64.data()));
}

// The policy forbids everything that it does not list: images, fonts, requests, frames, forms and
// other base URLs.
std::string policy(std::string_view script) {
  return fmt::format(
      "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
      hash_source(kPageStyle), hash_source(script));
}

constexpr std::string_view kNoScript =
    "This page draws its tables and charts with a script of its own, and scripts are off in this "
    "program. The page loads nothing from the network. Its numbers are in the element "
    "<code>data</code> of this file as JSON, and the same command with <code>--json</code> prints "
    "them.";

std::string first_lines(PageKind kind) {
  return fmt::format("<!doctype html>\n<html lang=\"en\" data-page=\"{}\">\n", page(kind).name);
}

}  // namespace

bool is_page(PageKind kind, std::string_view text) { return text.starts_with(first_lines(kind)); }

std::string html_page(PageKind kind, std::string_view title, std::string_view json) {
  const Page parts = page(kind);
  const std::string name = html_text(title);
  std::string out = first_lines(kind);
  out += fmt::format(
      "<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<meta name=\"generator\" content=\"ferry {}\">\n<title>{}{} - Ferry</title>\n<style>",
      policy(parts.script), html_text(version()), parts.what, name);
  out += kPageStyle;
  out += fmt::format(
      "</style>\n</head>\n<body>\n<main id=\"page\">\n<h1>{}</h1>\n"
      "<noscript><p class=\"remark\">{}</p></noscript>\n</main>\n<svg id=\"svg\" hidden></svg>\n"
      "<script type=\"application/json\" id=\"data\">",
      name, kNoScript);
  out += json_in_script(json);
  out += "</script>\n<script>";
  out += parts.script;
  out += "</script>\n</body>\n</html>\n";
  return out;
}

}  // namespace ferry::report
