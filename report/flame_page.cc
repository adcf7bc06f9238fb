#include "report/flame_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "report/html_page.h"

namespace ferry::report {
namespace {

// A bar of the chart.
struct Bar {
  std::string name;
  double seconds = 0;
  long long calls = 0;
  std::deque<Bar> parts = {};

  Bar& part(const std::string& of) {
    const auto found = std::ranges::find(parts, of, &Bar::name);
    return found != parts.end() ? *found : parts.emplace_back(Bar{of});
  }
};

// Bars below this share of the whole are not drawn.
constexpr double kLeastShare = 0.0005;

constexpr std::string_view kStyle =
    "body{font:14px system-ui,sans-serif;margin:1.5em;color:#222;background:#fff}"
    ".row{display:flex;width:100%}.bar{overflow:hidden;min-width:0}"
    ".bar>.label{display:block;overflow:hidden;white-space:nowrap;text-overflow:ellipsis;"
    "padding:2px 4px;margin:1px;border-radius:2px;font-size:12px}"
    ".d0>.label{background:#d7dde4}.d1>.label{background:#f6c177}.d2>.label{background:#f2a65a}"
    ".d3>.label{background:#ee8959}.d4>.label{background:#e76f51}.d5>.label{background:#d98880}"
    "table{border-collapse:collapse;margin-top:1.5em}td,th{padding:2px 10px;text-align:left}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}tr:nth-child(even){background:#"
    "f4f4f4}";

std::string milliseconds(double seconds) { return fmt::format("{:.2f} ms", seconds * 1000); }

void add(Bar& whole, const FlameRow& row) {
  Bar* bar = &whole;
  bar->seconds += row.seconds;
  bar->calls += row.calls;
  for (const std::string& name : row.path) {
    if (name.empty()) break;
    bar = &bar->part(name);
    bar->seconds += row.seconds;
    bar->calls += row.calls;
  }
}

void draw(const Bar& bar, const Bar& parent, double whole, size_t depth, std::string& html) {
  const double share = parent.seconds > 0 ? bar.seconds / parent.seconds : 1;
  const std::string label = fmt::format("{} {} ({:.1f} %)", bar.name, milliseconds(bar.seconds),
                                        whole > 0 ? 100 * bar.seconds / whole : 100.0);
  html += fmt::format("<div class=\"bar d{}\" style=\"width:{:.3f}%\">", std::min<size_t>(depth, 5),
                      share * 100);
  html += fmt::format("<span class=\"label\" title=\"{0}, {1} calls\">{0}</span>", html_text(label),
                      bar.calls);
  std::vector<const Bar*> parts;
  for (const Bar& part : bar.parts) {
    if (part.seconds >= kLeastShare * whole) parts.push_back(&part);
  }
  std::ranges::stable_sort(parts,
                           [](const Bar* a, const Bar* b) { return a->seconds > b->seconds; });
  if (!parts.empty()) {
    html += "<div class=\"row\">";
    for (const Bar* part : parts) draw(*part, bar, whole, depth + 1, html);
    html += "</div>";
  }
  html += "</div>\n";
}

}  // namespace

std::string flame_page(std::string_view title, std::span<const FlameRow> rows) {
  Bar whole{"all"};
  for (const FlameRow& row : rows) add(whole, row);
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'\">\n<title>{0}</title>\n<style>{1}</style></head>\n"
      "<body><h1>{0}</h1>\n<div class=\"row\">",
      html_text(title), kStyle);
  draw(whole, whole, whole.seconds, 0, html);
  html += "</div>\n<table><tr><th>where</th><th>calls</th><th>time</th><th>share</th></tr>\n";
  for (const FlameRow& row : rows) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{:.1f} %</td></tr>\n",
        html_text(fmt::format("{}", fmt::join(row.path, " "))), row.calls,
        milliseconds(row.seconds), whole.seconds > 0 ? 100 * row.seconds / whole.seconds : 0.0);
  }
  return html + "</table></body></html>\n";
}

std::string folded_stacks(std::span<const FlameRow> rows) {
  std::string text;
  for (const FlameRow& row : rows) {
    std::string line;
    for (std::string name : row.path) {
      if (name.empty()) break;
      // Characters that would end a name or a line.
      std::ranges::replace_if(
          name, [](char c) { return c == ';' || c == ' ' || static_cast<unsigned char>(c) < ' '; },
          '_');
      line += (line.empty() ? "" : ";") + name;
    }
    text += fmt::format("{} {}\n", line, std::llround(row.seconds * 1e6));
  }
  return text;
}

}  // namespace ferry::report
