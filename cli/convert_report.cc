#include "cli/convert_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <set>

#include "core/json_writer.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

Transforms transforms_of(const plan::Conversion& c) {
  Transforms transforms;
  for (const plan::ConvertedComponent& component : c.components) {
    for (const graph::Model& part : component.parts) {
      for (const graph::Weight& weight : part.weights.weights()) {
        transforms.emplace(weight.name, transform_text(weight.recipe, *c.mapped.source));
      }
    }
  }
  return transforms;
}

// Returns a line about how the attention of a static program differs from the default; empty if it
// does not differ.
std::string attention_line(const packer::Manifest& manifest) {
  std::vector<std::string_view> parts;
  if (manifest.attention == "sha") parts.emplace_back("single-head (sha)");
  if (manifest.softmax == "masked") parts.emplace_back("masked softmax");
  if (manifest.rotate == "r3") parts.emplace_back("queries and keys rotated (r3)");
  return parts.empty() ? std::string() : fmt::format("attention: {}\n", fmt::join(parts, ", "));
}

// Returns a line for each component with quantised weights: the schemes, and what a runtime needs.
std::string manifest_quantization_lines(const packer::Manifest& manifest) {
  std::string text;
  for (const packer::ManifestComponent& component : manifest.components) {
    if (component.quantization.empty()) continue;
    std::set<std::string_view> backends;
    for (const packer::ManifestProgram& program : component.programs) {
      backends.insert(program.backends.begin(), program.backends.end());
    }
    text += fmt::format("quantised {}: {}{}\n", component.role, component.quantization,
                        backends.empty()
                            ? std::string()
                            : fmt::format(" (a runtime needs {})", fmt::join(backends, ", ")));
  }
  return text;
}

void write_components(JsonWriter& json, const packer::Manifest& manifest) {
  json.key("components").begin_array();
  for (const packer::ManifestComponent& component : manifest.components) {
    json.begin_object().member("role", component.role);
    json.member("weight_dtype", component.weight_dtype);
    json.member("quantization", component.quantization).end_object();
  }
  json.end_array();
}

// Returns the planned files; empty if the keys did not fit.
std::vector<packer::PlannedFile> files_of(const plan::Conversion& c) {
  return c.plan ? c.plan->files() : std::vector<packer::PlannedFile>();
}
Transforms transforms_of(const conversion::Export& c) {
  Transforms transforms;
  if (!c.plan) return transforms;
  for (const packer::WeightFile& file : c.plan->input().files) {
    for (const packer::FileTensor& tensor : file.tensors) {
      transforms.emplace(tensor.name, transform_text(tensor.recipe, *c.mapped.source));
    }
  }
  return transforms;
}

// Writes the member `files`. Files that have been written have digests.
void write_exported(JsonWriter& json, const conversion::Export& c, const ExportOutcome& outcome) {
  if (outcome.files.empty()) {
    return write_files(json, c.plan ? c.plan->files() : std::vector<packer::PlannedFile>());
  }
  json.key("files").begin_array();
  for (const packer::WrittenFile& file : outcome.files) {
    json.begin_object().member("path", file.path).member("bytes", file.bytes);
    json.member("sha256", to_hex(file.sha256)).end_object();
  }
  json.end_array().member("bytes", c.plan->total_bytes());
  json.member("total_bytes", c.plan->total_bytes());
}

void write_signature(JsonWriter& json, const std::optional<signing::SignedModel>& signature) {
  json.key("signature");
  if (!signature) {
    json.null();
    return;
  }
  json.begin_object().member("path", signature->signature).member("sha256", signature->digest.root);
  json.member("curve", signature->signer.curve).member("key_sha256", signature->signer.key);
  json.member("subject", signature->signer.subject).end_object();
}

void write_calibration(JsonWriter& json, const graph::CalibratedWeights* chosen) {
  json.key("calibration");
  if (chosen == nullptr || chosen->compared_tokens == 0) {
    json.null();
    return;
  }
  json.begin_object().member("tokens", chosen->compared_tokens);
  json.member("kl_calibrated", chosen->divergence).member("kl_nearest", chosen->nearest_divergence);
  json.member("codes", chosen->codes.empty() ? "nearest" : "calibrated").end_object();
}

}  // namespace

std::string conversion_json(const plan::Conversion& c, const ConversionOutcome& outcome) {
  JsonWriter json;
  json.begin_object();
  write_account(json, c.mapped, transforms_of(c), outcome);
  if (c.plan) write_components(json, c.plan->manifest());
  write_files(json, files_of(c));
  json.key("memory").begin_object().member("activation_bytes", c.activation_bytes);
  json.member("activation_lower_bound_bytes", c.activation_lower_bound);
  json.member("state_bytes", c.state_bytes).end_object();
  json.key("buffers").begin_array();
  for (const plan::PlannedBuffer& buffer : c.buffers) {
    json.begin_object().member("name", buffer.name).member("dtype", dtype_name(buffer.dtype));
    json.member("shape", buffer.shape).member("bytes", buffer.bytes);
    json.member("init", buffer.stored ? "stored" : "none").end_object();
  }
  json.end_array();
  write_calibration(json, outcome.calibrated.get());
  write_signature(json, outcome.signature);
  json.end_object();
  return json.take();
}

std::string conversion_text(const plan::Conversion& c, bool table) {
  std::string text = model_lines(c.mapped);
  text += attention_line(c.plan->manifest());
  text += manifest_quantization_lines(c.plan->manifest());
  text += key_lines(c.mapped, transforms_of(c), table);
  text += file_lines(c.plan->files());
  return text + fmt::format("memory: activations {} (no plan below {}), state {}\n",
                            human_bytes(c.activation_bytes), human_bytes(c.activation_lower_bound),
                            human_bytes(c.state_bytes));
}

std::string export_json(const conversion::Export& c, const ExportOutcome& outcome) {
  JsonWriter json;
  json.begin_object();
  write_account(json, c.mapped, transforms_of(c), outcome);
  json.member("format", outcome.format);
  write_exported(json, c, outcome);
  json.end_object();
  return json.take();
}

std::string export_text(const conversion::Export& c, bool table) {
  return model_lines(c.mapped) + key_lines(c.mapped, transforms_of(c), table) +
         file_lines(c.plan->files());
}

}  // namespace ferry::cli
