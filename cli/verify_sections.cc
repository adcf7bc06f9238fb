#include "cli/verify_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/json_writer.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

using proof::QuantizationError;
using proof::SquaredError;

constexpr size_t kShownTensors = 8;
constexpr size_t kSchemeWidth = 44;

SquaredError total_of(const std::vector<QuantizationError>& errors) {
  SquaredError total;
  for (const QuantizationError& error : errors) total.add(error.sums);
  return total;
}

std::vector<const QuantizationError*> worst_first(const std::vector<QuantizationError>& errors) {
  std::vector<const QuantizationError*> order;
  for (const QuantizationError& error : errors) order.push_back(&error);
  std::ranges::stable_sort(order, {}, [](const auto* error) { return error->sums.sqnr_db(); });
  return order;
}

std::string layer_name(int64_t layer) {
  return layer < 0 ? "outside of layers" : fmt::format("layer {}", layer);
}

std::string weight_line(const QuantizationError& error, size_t name_width) {
  return fmt::format("  {:{}}  {:{}}  SQNR {:5.1f} dB  worst group {} of row {}: {:.1f} %\n",
                     error.name, name_width, error.scheme, kSchemeWidth, error.sums.sqnr_db(),
                     error.worst.group, error.worst.row, 100 * error.worst.relative);
}

constexpr double kUpperShare = 0.99, kHalf = 0.5;
using proof::kTailShare;

void write_perplexity_comparison(JsonWriter& json, const proof::PerplexityReport& report) {
  const proof::PerplexityComparison& c = *report.comparison;
  json.key("against").begin_object().member("name", report.other);
  json.member("perplexity", c.other.value());
  json.member("perplexity_error", c.other.standard_error());
  json.member("nll_mean", c.other.nll.mean()).member("nll_error", c.other.nll.standard_error());
  json.end_object();
  json.member("nll_difference", c.nll_difference.mean());
  json.member("nll_difference_error", c.nll_difference.standard_error());
  json.member("kl_mean", c.kl.mean()).member("kl_error", c.kl.standard_error());
  json.member("kl_median", c.kl_quantile(kHalf)).member("kl_p99", c.kl_quantile(kUpperShare));
  json.member("kl_p999", c.kl_quantile(kTailShare));
  json.member("kl_p999_error", c.kl_quantile_error(kTailShare));
  json.member("kl_max", c.kl_max()).member("top1_agreement", c.top1.mean());
  json.member("top1_error", c.top1.standard_error());
  json.member("top5_agreement", c.top5.mean()).member("top5_error", c.top5.standard_error());
  json.member("flips", c.flips.mean()).member("flips_error", c.flips.standard_error());
}

void write_limits(JsonWriter& json, const proof::PerplexityReport& report) {
  if (report.limits.empty()) return;
  json.member("within_limits", report.within_limits()).key("limits").begin_array();
  for (const proof::CheckedLimit& limit : report.limits) {
    json.begin_object().member("name", limit.name).member("value", limit.value);
    json.member("limit", limit.limit).member("within", limit.within).end_object();
  }
  json.end_array();
}

void write_members(JsonWriter& json, const proof::PerplexityReport& r) {
  json.member("perplexity", r.perplexity.value());
  json.member("perplexity_error", r.perplexity.standard_error());
  json.member("nll_mean", r.perplexity.nll.mean());
  json.member("nll_error", r.perplexity.nll.standard_error());
  json.member("tokens", r.tokens).member("predicted", r.perplexity.nll.count());
  json.member("sequences", r.sequences).member("windows", r.window_count);
  json.member("window", r.windows.window).member("stride", r.windows.stride);
  json.member("token_by_token", r.token_by_token);
  if (r.kv_bits) json.member("kv_bits", runner::to_text(r.kv_bits));
  if (r.text_bytes) json.member("bytes", *r.text_bytes);
  if (const auto bits = r.bits_per_byte()) json.member("bits_per_byte", *bits);
  if (r.comparison) write_perplexity_comparison(json, r);
  write_limits(json, r);
}

std::string with_error(const proof::Perplexity& p) {
  return fmt::format("{:.4f} +- {:.4f}", p.value(), p.standard_error());
}

std::string protocol_lines(const proof::PerplexityReport& r) {
  std::string text = fmt::format(
      "windows of {} tokens, a stride of {}; each token counts once, in the first window that has "
      "it, but for the first token of a window\n",
      r.windows.window, r.windows.stride);
  text += fmt::format("{} tokens in {} sequence{}, {} predicted in {} window{}\n", r.tokens,
                      r.sequences, r.sequences == 1 ? "" : "s", r.perplexity.nll.count(),
                      r.window_count, r.window_count == 1 ? "" : "s");
  if (r.kv_bits) {
    text +=
        fmt::format("keys and values in the bits of --kv-bits {}\n", runner::to_text(r.kv_bits));
  }
  if (r.token_by_token) {
    text +=
        "one token a call: the bundle gives logits of the last token of a call only "
        "(convert --logits all is faster here)\n";
  }
  return text;
}

std::string share_text(const proof::MeanEstimate& share) {
  return fmt::format("{:.2f} +- {:.2f} %", 100 * share.mean(), 100 * share.standard_error());
}

std::string comparison_lines(const proof::PerplexityReport& r) {
  const proof::PerplexityComparison& c = *r.comparison;
  std::string text =
      fmt::format("against {}: perplexity {}\n", quoted(r.other), with_error(c.other));
  text += fmt::format("NLL difference: {:+.6f} +- {:.6f} nats\n", c.nll_difference.mean(),
                      c.nll_difference.standard_error());
  text += fmt::format(
      "KL(other || this): mean {:.3e} +- {:.1e} nats, median {:.3e}, 99 % below {:.3e}, 99.9 % "
      "below {:.3e} +- {:.1e}, largest {:.3e}\n",
      c.kl.mean(), c.kl.standard_error(), c.kl_quantile(kHalf), c.kl_quantile(kUpperShare),
      c.kl_quantile(kTailShare), c.kl_quantile_error(kTailShare), c.kl_max());
  text +=
      fmt::format("same top token: {}, of the top 5: {}\n", share_text(c.top1), share_text(c.top5));
  return text + fmt::format("tokens that only one of the two predicts: {}\n", share_text(c.flips));
}

}  // namespace

std::string pixel_lines(const std::vector<proof::PixelProof>& proofs) {
  std::string text;
  for (const proof::PixelProof& proof : proofs) {
    text += fmt::format(
        "{}: pixel_values of {} image{}, {} tile{}: {}\n", quoted(proof.prompt), proof.images,
        proof.images == 1 ? "" : "s", proof.tiles, proof.tiles == 1 ? "" : "s",
        proof.metrics.max_abs == 0 ? "equal, bit for bit"
                                   : fmt::format("max_abs {:.2e} (bound {:.0e})",
                                                 proof.metrics.max_abs, proof::kPixelTolerance));
  }
  return text;
}

void write_pixels(JsonWriter& json, const std::vector<proof::PixelProof>& proofs) {
  if (proofs.empty()) return;
  json.key("pixels").begin_array();
  for (const proof::PixelProof& proof : proofs) {
    json.begin_object().member("prompt", proof.prompt);
    json.member("images", proof.images).member("tiles", proof.tiles);
    json.member("max_abs", proof.metrics.max_abs).member("mean_abs", proof.metrics.mean_abs);
    json.member("parity", proof.within).end_object();
  }
  json.end_array();
}

std::vector<std::string> pixel_reasons(const std::vector<proof::PixelProof>& proofs) {
  std::vector<std::string> lines;
  for (const proof::PixelProof& proof : proofs) {
    if (proof.within) continue;
    lines.push_back(
        fmt::format("pixel_values of prompt {} differ: max_abs {:.2e}, the bound is "
                    "{:.0e}",
                    quoted(proof.prompt), proof.metrics.max_abs, proof::kPixelTolerance));
  }
  return lines;
}

std::string quantization_lines(const std::vector<QuantizationError>& errors) {
  if (errors.empty()) return {};
  std::string text =
      fmt::format("quantised weights: {}, SQNR {:.1f} dB against the checkpoint's values\n",
                  errors.size(), total_of(errors).sqnr_db());
  for (const auto& [layer, sums] : proof::by_layer(errors)) {
    text += fmt::format("  {:18} SQNR {:5.1f} dB\n", layer_name(layer), sums.sqnr_db());
  }
  std::vector<const QuantizationError*> order = worst_first(errors);
  order.resize(std::min(order.size(), kShownTensors));
  size_t width = 0;
  for (const auto* error : order) width = std::max(width, error->name.size());
  text += fmt::format("the {} that lose most{}:\n", order.size(),
                      errors.size() > order.size() ? " (all with --json)" : "");
  for (const auto* error : order) text += weight_line(*error, width);
  return text;
}

void write_quantization(JsonWriter& json, const std::vector<QuantizationError>& errors) {
  if (errors.empty()) return;
  json.key("quantization").begin_object();
  json.member("sqnr_db", total_of(errors).sqnr_db()).key("layers").begin_array();
  for (const auto& [layer, sums] : proof::by_layer(errors)) {
    json.begin_object().member("layer", layer).member("values", sums.values);
    json.member("sqnr_db", sums.sqnr_db()).end_object();
  }
  json.end_array().key("weights").begin_array();
  for (const QuantizationError& error : errors) {
    json.begin_object().member("name", error.name).member("scheme", error.scheme);
    json.member("layer", error.layer).member("values", error.sums.values);
    json.member("sqnr_db", error.sums.sqnr_db()).key("worst_group").begin_object();
    json.member("row", error.worst.row).member("group", error.worst.group);
    json.member("relative_error", error.worst.relative).end_object().end_object();
  }
  json.end_array().end_object();
}

std::string to_json(const proof::PerplexityReport& r, const std::string& path) {
  JsonWriter json;
  json.begin_object().member("path", path);
  write_members(json, r);
  json.end_object();
  return json.take();
}

void write_perplexity(JsonWriter& json, const proof::PerplexityReport& r) {
  json.key("perplexity").begin_object();
  write_members(json, r);
  json.end_object();
}

std::string to_text(const proof::PerplexityReport& r) {
  std::string text = protocol_lines(r);
  text += fmt::format("perplexity: {}  (NLL {:.6f} +- {:.6f} nats per token)\n",
                      with_error(r.perplexity), r.perplexity.nll.mean(),
                      r.perplexity.nll.standard_error());
  if (const auto bits = r.bits_per_byte()) {
    text += fmt::format("bits per byte: {:.4f} of {} bytes\n", *bits, *r.text_bytes);
  }
  if (r.comparison) text += comparison_lines(r);
  if (!r.limits.empty()) {
    text += fmt::format("limits: {}\n", r.within_limits() ? "all are kept" : "not kept");
  }
  return text;
}

std::vector<std::string> broken_limits(const proof::PerplexityReport& r) {
  std::vector<std::string> lines;
  for (const proof::CheckedLimit& limit : r.limits) {
    if (limit.within) continue;
    lines.push_back(
        fmt::format("{} is {:.4g}, and the limit is {:.4g}", limit.name, limit.value, limit.limit));
  }
  return lines;
}

}  // namespace ferry::cli
