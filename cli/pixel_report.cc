#include "cli/pixel_report.h"

#include <fmt/format.h>

#include "core/text.h"

namespace ferry::cli {

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

}  // namespace ferry::cli
