#include "cli/parity_prompts.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/verify_report.h"
#include "prompt/image_input.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::cli {
namespace {

using proof::CaseDetails;
using proof::ErrorHistogram;

// Rounds to the few digits that charts need.
double significant(double value) {
  return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
}
double two_decimals(float value) { return std::round(static_cast<double>(value) * 100) / 100; }

void write_text(JsonWriter& json, std::string_view name, const std::optional<std::string>& text) {
  json.key(name);
  if (text) {
    json.value(*text);
  } else {
    json.null();
  }
}

void write_token(JsonWriter& json, int64_t id, TokenTexts& texts) {
  json.begin_object().member("id", id);
  write_text(json, "text", texts.text(id));
  json.end_object();
}

void write_row(JsonWriter& json, const std::string& name, int64_t layer,
               const proof::TensorDetails& tensor) {
  if (tensor.log10_error.empty()) return;
  json.begin_object().member("name", name).member("layer", layer);
  json.key("log10_error").begin_array();
  for (const std::optional<float>& cell : tensor.log10_error) {
    if (cell) {
      json.value(two_decimals(*cell));
    } else {
      json.null();
    }
  }
  json.end_array().end_object();
}

void write_heat_map(JsonWriter& json, const proof::CaseReport& one, int64_t layers) {
  const CaseDetails& details = *one.details;
  json.key("columns").begin_object().member("count", details.columns.size());
  json.member("positions", details.positions_per_column).end_object();
  json.key("heat_map").begin_array();
  for (const proof::LayerResult& layer : one.layers) {
    const auto found = details.tensors.find(layer.tensor.name);
    if (found == details.tensors.end()) continue;
    write_row(json, layer.tensor.name, layer.tensor.layer, found->second);
  }
  const auto logits = details.tensors.find("logits");
  if (logits != details.tensors.end()) write_row(json, "logits", layers, logits->second);
  json.end_array();
}

void write_by_position(JsonWriter& json, const CaseDetails& details) {
  const auto write = [&](std::string_view name, auto value) {
    json.key(name).begin_array();
    for (const proof::ColumnDetails& column : details.columns) {
      if (column.compared) {
        json.value(value(column));
      } else {
        json.null();
      }
    }
    json.end_array();
  };
  json.key("by_position").begin_object();
  write("kl", [](const auto& column) { return significant(column.kl); });
  write("max_abs", [](const auto& column) { return significant(column.max_abs); });
  write("top1", [](const auto& column) { return column.top1; });
  json.end_object();
}

// Writes the bins from the first to the last that is not 0. `edge` returns the lower edge of a bin.
template <class Bins, class Edge>
void write_bins(JsonWriter& json, const Bins& bins, const Edge& edge) {
  size_t first = 0, last = bins.size();
  while (first < last && bins[first] == 0) ++first;
  while (last > first && bins[last - 1] == 0) --last;
  json.begin_array();
  for (size_t i = first; i < last; ++i) {
    json.begin_object().member("from", significant(edge(i)));
    json.member("to", significant(edge(i + 1))).member("count", bins[i]).end_object();
  }
  json.end_array();
}

void write_histogram(JsonWriter& json, const ErrorHistogram& histogram) {
  json.key("histogram").begin_object();
  json.member("zero", histogram.zero).member("not_finite", histogram.not_finite);
  json.key("decades");
  write_bins(json, histogram.decades, [](size_t i) {
    return std::pow(10.0, ErrorHistogram::kFirstDecade + 0.5 * static_cast<double>(i));
  });
  json.key("units");
  if (histogram.unit) {
    json.begin_object().member("dtype", dtype_name(*histogram.unit)).key("bins");
    write_bins(json, histogram.units, [](size_t i) {
      return std::ldexp(1.0, ErrorHistogram::kFirstUnit + static_cast<int>(i));
    });
    json.end_object();
  } else {
    json.null();
  }
  json.end_object();
}

void write_candidate(JsonWriter& json, const proof::CandidateToken& token, bool finite,
                     TokenTexts& texts) {
  json.begin_object().key("token");
  write_token(json, token.id, texts);
  json.member("expected", significant(token.want)).member("expected_rank", token.want_rank);
  if (finite) {
    json.member("ours", significant(token.got)).member("ours_rank", token.got_rank);
  } else {
    json.key("ours").null().key("ours_rank").null();
  }
  json.end_object();
}

void write_table(JsonWriter& json, std::string_view why, const proof::PositionDetails& row,
                 TokenTexts& texts) {
  json.begin_object().member("why", why).member("position", row.position).key("token");
  write_token(json, row.token, texts);
  json.member("kl", significant(row.kl)).member("max_abs", significant(row.max_abs));
  json.key("top").begin_array();
  for (const proof::CandidateToken& token : row.top) {
    write_candidate(json, token, row.finite, texts);
  }
  json.end_array().end_object();
}

void write_tables(JsonWriter& json, const CaseDetails& details, TokenTexts& texts) {
  json.key("tables").begin_array();
  for (const proof::PositionDetails& row : details.worst) write_table(json, "worst", row, texts);
  for (const proof::PositionDetails& row : details.first) {
    const bool shown = std::ranges::any_of(
        details.worst, [&](const auto& other) { return other.position == row.position; });
    if (!shown) write_table(json, "first", row, texts);
  }
  json.end_array();
}

void write_tokens(JsonWriter& json, std::string_view name, const std::vector<int64_t>& ids,
                  TokenTexts& texts) {
  json.key(name).begin_array();
  for (const int64_t id : ids) write_token(json, id, texts);
  json.end_array();
  write_text(json, std::string(name) + "_text", texts.text(ids));
}

void write_greedy(JsonWriter& json, const proof::CaseReport& one, TokenTexts& texts) {
  json.key("greedy");
  if (one.greedy_total == 0) {
    json.null();
    return;
  }
  json.begin_object().member("match", one.greedy_match).member("total", one.greedy_total);
  json.member("tie", one.greedy_tie);
  std::vector<int64_t> ours;
  for (const proof::ChosenToken& token : one.details->chosen) ours.push_back(token.got);
  write_tokens(json, "expected", one.details->continuation, texts);
  write_tokens(json, "ours", ours, texts);
  json.end_object();
}

void write_routing(JsonWriter& json, const proof::RoutingReport& routing) {
  json.key("routing");
  if (routing.choices == 0) {
    json.null();
    return;
  }
  json.begin_object().member("choices", routing.choices);
  json.member("different", routing.different).end_object();
}

void write_f64(JsonWriter& json, const std::optional<proof::F64Distance>& f64) {
  json.key("f64");
  if (!f64) {
    json.null();
    return;
  }
  json.begin_object().member("ours_max_abs", f64->ours);
  json.member("reference_max_abs", f64->reference);
  json.member("nearer", f64->ours <= f64->reference ? "ours" : "reference").end_object();
}

void write_prompt(JsonWriter& json, const proof::CaseReport& one, int64_t layers,
                  TokenTexts& texts) {
  json.begin_object().member("name", one.prompt).member("tokens", one.tokens);
  if (!one.skipped.empty()) {
    json.member("skipped", one.skipped).end_object();
    return;
  }
  json.member("parity", one.parity).key("metrics").begin_object();
  write_metrics(json, one.worst());
  json.member("greedy_match", one.greedy_match).member("greedy_total", one.greedy_total);
  json.end_object();
  write_routing(json, one.routing);
  write_f64(json, one.f64);
  json.member("not_compared", one.not_compared);
  write_text(json, "text", texts.text(one.details->tokens));
  write_heat_map(json, one, layers);
  write_by_position(json, *one.details);
  write_histogram(json, one.details->histogram);
  write_tables(json, *one.details, texts);
  write_greedy(json, one, texts);
  json.end_object();
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

void write_prompts(JsonWriter& json, const proof::ParityReport& report, TokenTexts& texts) {
  json.key("prompts").begin_array();
  for (const proof::CaseReport& one : report.cases) {
    write_prompt(json, one, report.bounds.layers, texts);
  }
  json.end_array();
}

TokenTexts::TokenTexts(const packer::Bundle& bundle) {
  Result<text::Tokenizer> tokenizer =
      text::load_tokenizer(bundle.text_directory(), prompt::reader_of(bundle));
  if (tokenizer) tokenizer_.emplace(std::move(*tokenizer));
}

std::optional<std::string> TokenTexts::find(int64_t id) const {
  // Decoders strip the blank at the start of a text, so the text of the second of two tokens is
  // taken.
  const std::array<int64_t, 2> twice = {id, id};
  const auto one = tokenizer_->decode(std::span(twice).first(1), /*skip_special=*/false);
  const auto two = tokenizer_->decode(twice, /*skip_special=*/false);
  if (!one || !two) return std::nullopt;
  std::string found = two->starts_with(*one) ? two->substr(one->size()) : *one;
  if (found.empty() || found.find(kReplacement) != std::string::npos) return std::nullopt;
  return found;
}

std::optional<std::string> TokenTexts::text(int64_t id) {
  if (!tokenizer_) return std::nullopt;
  const auto [at, fresh] = known_.try_emplace(id);
  if (fresh) at->second = find(id);
  return at->second;
}

std::optional<std::string> TokenTexts::text(std::span<const int64_t> ids) const {
  if (!tokenizer_) return std::nullopt;
  Result<std::string> all = tokenizer_->decode(ids, /*skip_special=*/false);
  return all ? std::optional(std::move(*all)) : std::nullopt;
}

}  // namespace ferry::cli
