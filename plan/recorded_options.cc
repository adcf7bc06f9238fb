#include "plan/recorded_options.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "converters/keys/row_layouts.h"
#include "core/dtype.h"
#include "core/program_interface.h"

namespace ferry::plan {
namespace {

using Options = std::vector<packer::ManifestOption>;

const char* name_of(graph::WeightDType dtype) {
  switch (dtype) {
    case graph::WeightDType::kF32:
      return "f32";
    case graph::WeightDType::kF16:
      return "f16";
    case graph::WeightDType::kBF16:
      return "bf16";
    case graph::WeightDType::kKeep:
      break;
  }
  return "keep";
}

const char* name_of(graph::BufferInit init) {
  switch (init) {
    case graph::BufferInit::kState:
      return "state";
    case graph::BufferInit::kAll:
      return "all";
    case graph::BufferInit::kNone:
      break;
  }
  return "none";
}

void add(Options& out, const char* name, std::string value) {
  out.push_back({name, std::move(value)});
}

void add_dtypes(Options& out, const ConvertOptions& options) {
  add(out, "dtype", name_of(options.dtype));
  for (const auto& [role, dtype] : options.component_dtypes) {
    add(out, "component-dtype", fmt::format("{}={}", role, name_of(dtype)));
  }
  const graph::QuantizeOptions& quantize = options.quantize;
  add(out, "quantize", graph::name_of(quantize.linears));
  add(out, "quantize-embedding", graph::name_of(quantize.embeddings));
  for (const graph::QuantizeRule& rule : quantize.rules) {
    add(out, "quantize-rule", fmt::format("{}={}", rule.pattern, graph::name_of(rule.linear)));
  }
  if (!quantize.quantizes()) return;
  add(out, "quantize-method", quantize.method == graph::ScaleMethod::kHqq ? "hqq" : "bf16-first");
}

void add_static(Options& out, const ConvertOptions& options,
                const converters::BuildOptions& build) {
  add(out, "shards-in-one-file", options.shards_in_one_file ? "true" : "false");
  add(out, "attention", options.single_head_attention ? "sha" : "mha");
  add(out, "softmax", build.softmax == converters::SoftmaxStyle::kMasked ? "masked" : "plain");
  add(out, "rotate", build.rotation == converters::Rotation::kR3 ? "r3" : "none");
  add(out, "decode-length", std::to_string(build.decode_length));
  add(out, "kv-dtype", std::string(dtype_name(build.ports.cache)));
  add(out, "mask-dtype", std::string(dtype_name(build.ports.mask)));
  add(out, "logits-dtype", std::string(dtype_name(build.ports.logits)));
}

void add_stateful(Options& out, const ConvertOptions& options,
                  const converters::BuildOptions& build) {
  add(out, "kv-dtype", std::string(dtype_name(build.kv_cache)));
  add(out, "logits", build.all_logits ? "all" : "last");
  add(out, "init-buffers", name_of(options.buffers.mode));
}

}  // namespace

std::string_view style_name(converters::ProgramStyle style) {
  switch (style) {
    case converters::ProgramStyle::kStatic:
      return kStaticStyle;
    case converters::ProgramStyle::kEncoder:
      return kEncoderStyle;
    case converters::ProgramStyle::kStateful:
      break;
  }
  return kStatefulStyle;
}

Options recorded_options(const ConvertOptions& options, const converters::BuildOptions& build) {
  const bool is_static = build.style == converters::ProgramStyle::kStatic;
  Options out;
  add_dtypes(out, options);
  add(out, "program", std::string(style_name(build.style)));
  add(out, "shards", std::to_string(options.shards));
  if (options.max_file_bytes > 0) {
    add(out, "max-file-size", std::to_string(options.max_file_bytes));
  }
  add(out, "context-length", std::to_string(build.context_length));
  add(out, "prefill-length", std::to_string(build.prefill_length));
  if (build.style == converters::ProgramStyle::kStateful) add_stateful(out, options, build);
  if (is_static) add_static(out, options, build);
  add(out, "packed-layout",
      options.packed_layout ? converters::packed_layout_name(*options.packed_layout) : "own");
  for (const std::string& pattern : options.allow_unmapped) add(out, "allow-unmapped", pattern);
  return out;
}

}  // namespace ferry::plan
