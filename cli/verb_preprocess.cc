// ferry preprocess: images to pixel values, alone.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/verbs.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "pipeline/preprocess.h"

namespace ferry::cli {
namespace {

struct Options {
  pipeline::PreprocessRequest request;
  std::string backend = "torchvision";
};

void add_tensor(JsonWriter& json, const char* name, const char* dtype, const Shape& shape) {
  json.begin_object().member("name", name).member("dtype", dtype).member("shape", shape);
  json.end_object();
}

std::string to_json(const Options& o, const pipeline::PreprocessReport& report) {
  JsonWriter json;
  json.begin_object().member("output", o.request.output).member("backend", o.backend);
  json.key("images").begin_array();
  for (const pipeline::PreprocessedImage& image : report.images) {
    json.begin_object().member("path", image.path);
    json.member("width", image.size.width).member("height", image.size.height);
    json.member("rows", image.grid.rows).member("columns", image.grid.columns);
    json.member("tiles", image.tiles).end_object();
  }
  json.end_array().key("tensors").begin_array();
  add_tensor(json, "pixel_values", "f32", report.pixel_values);
  if (!report.pixel_attention_mask.empty()) {
    add_tensor(json, "pixel_attention_mask", "i64", report.pixel_attention_mask);
  }
  return json.end_array().end_object().take();
}

std::string to_text(const Options& o, const pipeline::PreprocessReport& report) {
  std::string text;
  for (const auto& [path, size, grid, tiles] : report.images) {
    text += fmt::format("{}: {} x {}: ", printable(path), size.width, size.height);
    text += grid.rows * grid.columns > 1
                ? fmt::format("{} tiles: {} rows of {} and the whole image\n", tiles, grid.rows,
                              grid.columns)
                : "1 tile\n";
  }
  text += fmt::format("{}: pixel_values f32 [{}]", printable(o.request.output),
                      fmt::join(report.pixel_values, ", "));
  if (!report.pixel_attention_mask.empty()) {
    text += fmt::format(", pixel_attention_mask i64 [{}]",
                        fmt::join(report.pixel_attention_mask, ", "));
  }
  return text + "\n";
}

Result<int> run(Context& context, Options o) {
  if (o.request.checkpoint.empty()) return fail(ErrorCode::kUsage, "--checkpoint DIR is required");
  if (o.request.output.empty()) return fail(ErrorCode::kUsage, "-o FILE is required");
  o.request.backend = o.backend == "pil" ? media::Backend::kPil : media::Backend::kTorchvision;
  const pipeline::PreprocessReport report =
      FERRY_TRY(pipeline::preprocess(o.request, context.pool()));
  if (context.json) {
    context.print(to_json(o, report));
  } else if (!context.quiet) {
    context.print(to_text(o, report));
  }
  return 0;
}

}  // namespace

void add_preprocess(CommandLine& line) {
  auto o = std::make_shared<Options>();
  line.verb("preprocess", "Images to the pixel values of a checkpoint's own image processor")
      .positional("IMAGE", o->request.images, "JPEG, PNG, WebP, BMP, PGM or PPM files")
      .option("--checkpoint", o->request.checkpoint, "Directory with preprocessor_config.json")
      .option("-o,--out", o->request.output, "New safetensors file")
      .choice("--backend", o->backend, {"torchvision", "pil"},
              "Whose resampler and rounding is computed")
      .action([o](Context& context) { return run(context, *o); });
}

}  // namespace ferry::cli
