#include "card/card.h"

#include <fmt/format.h>

#include <ctime>
#include <span>
#include <string_view>
#include <vector>

#include "card/licences.h"
#include "card/texts.h"
#include "core/json_writer.h"
#include "core/program_interface.h"
#include "core/sha256.h"
#include "core/version.h"
#include "packer/manifest.h"

namespace ferry::card {
namespace {

constexpr std::string_view kModelRef = "model";
constexpr std::string_view kCheckpointRef = "checkpoint";
constexpr std::string_view kHub = "https://huggingface.co/";

void write_property(JsonWriter& json, std::string_view name, std::string_view value) {
  json.begin_object().member("name", name).member("value", value).end_object();
}

void write_hash(JsonWriter& json, std::string_view sha256) {
  json.key("hashes").begin_array().begin_object().member("alg", "SHA-256");
  json.member("content", sha256).end_object().end_array();
}

// A purl needs the name of a repository; a data set has no type of its own there.
std::string purl(const std::string& hub_name, const std::string& commit) {
  const std::string version = commit.empty() ? std::string() : "@" + commit;
  return fmt::format("pkg:huggingface/{}{}", hub_name, version);
}

void write_licence(JsonWriter& json, const std::string& licence, const CheckpointCard& card) {
  json.begin_object().key("license").begin_object();
  if (const auto id = spdx_id(licence)) {
    json.member("id", *id);
  } else if (licence == "other" && !card.license_name.empty()) {
    json.member("name", card.license_name);
  } else {
    json.member("name", licence_name(licence));
  }
  json.member("acknowledgement", "declared");
  if (is_web_address(card.license_link)) json.member("url", card.license_link);
  json.end_object().end_object();
}

void write_licences(JsonWriter& json, const CheckpointCard& card) {
  if (card.licenses.empty()) return;
  json.key("licenses").begin_array();
  for (const std::string& licence : card.licenses) write_licence(json, licence, card);
  json.end_array();
}

void write_hub_page(JsonWriter& json, const std::string& address) {
  json.key("externalReferences").begin_array().begin_object().member("type", "distribution");
  json.member("url", address).end_object().end_array();
}

// A model that another one was made of. A name that is no name at Hugging Face stays a name.
void write_base_model(JsonWriter& json, const std::string& name) {
  json.begin_object().member("type", "machine-learning-model").member("name", name);
  if (is_hub_name(name) && name.find('/') != std::string::npos) {
    json.member("purl", purl(name, ""));
    write_hub_page(json, std::string(kHub) + name);
  }
  json.end_object();
}

void write_source_file(JsonWriter& json, const FactSource& source) {
  json.begin_object().member("type", "file").member("name", source.name);
  json.member("bom-ref", fmt::format("checkpoint/{}", source.name));
  if (!source.sha256.empty()) write_hash(json, source.sha256);
  json.key("properties").begin_array();
  write_property(json, "ferry:bytes", std::to_string(source.bytes));
  if (!source.sha256_tree.empty()) {
    write_property(json, "ferry:sha256_tree", source.sha256_tree);
  }
  json.end_array().end_object();
}

void write_checkpoint(JsonWriter& json, const Facts& facts) {
  json.begin_object().member("type", "machine-learning-model").member("bom-ref", kCheckpointRef);
  json.member("name", facts.checkpoint_name.empty() ? "checkpoint" : facts.checkpoint_name);
  if (!facts.checkpoint_commit.empty()) json.member("version", facts.checkpoint_commit);
  write_licences(json, facts.card);
  if (is_hub_name(facts.checkpoint_name)) {
    json.member("purl", purl(facts.checkpoint_name, facts.checkpoint_commit));
    write_hub_page(json, std::string(kHub) + facts.checkpoint_name);
  }
  if (!facts.card.base_models.empty()) {
    json.key("pedigree").begin_object().key("ancestors").begin_array();
    for (const std::string& base : facts.card.base_models) write_base_model(json, base);
    json.end_array().end_object();
  }
  if (!facts.sources.empty()) {
    json.key("components").begin_array();
    for (const FactSource& source : facts.sources) write_source_file(json, source);
    json.end_array();
  }
  json.end_object();
}

std::string figure(double value) { return fmt::format("{:.6g}", value); }

void write_metric(JsonWriter& json, const ProvedFigure& f, std::string_view type,
                  std::optional<double> value) {
  if (!value) return;
  json.begin_object().member("type", type).member("value", figure(*value));
  json.member("slice", fmt::format("{}: {} beside {}", f.id, f.ours, f.expected)).end_object();
}

void write_metrics(JsonWriter& json, const ProofFigures& proof) {
  json.key("quantitativeAnalysis").begin_object().key("performanceMetrics").begin_array();
  for (const ProvedFigure& f : proof.figures) {
    write_metric(json, f, "largest absolute difference of " + f.output, f.max_abs);
    write_metric(json, f, "SQNR in dB of " + f.output, f.sqnr_db);
    write_metric(json, f, "mean KL divergence in nats", f.kl_mean);
    write_metric(json, f, "share of positions with the same most likely token", f.top1_agreement);
    if (f.greedy_total == 0) continue;
    write_metric(json, f, "share of equal greedy tokens",
                 static_cast<double>(f.greedy_match) / static_cast<double>(f.greedy_total));
  }
  json.end_array().end_object();
  if (proof.does_not_prove.empty()) return;
  json.key("considerations").begin_object().key("technicalLimitations").begin_array();
  for (const std::string& line : proof.does_not_prove) json.value("not proved: " + line);
  json.end_array().end_object();
}

std::string port_text(const packer::ManifestPort& port) {
  std::string shape;
  for (const int64_t size : port.shape) {
    shape += fmt::format("{}{}", shape.empty() ? "" : ",", size);
  }
  return fmt::format("{} {} [{}]", port.name, dtype_name(port.dtype), shape);
}

void write_ports(JsonWriter& json, std::string_view key,
                 const std::vector<packer::ManifestPort>& ports) {
  json.key(key).begin_array();
  for (const packer::ManifestPort& port : ports) {
    json.begin_object().member("format", port_text(port)).end_object();
  }
  json.end_array();
}

// Inputs of the first program and outputs of the last one of the model's main component.
void write_main_ports(JsonWriter& json, const packer::Manifest& manifest) {
  const packer::ManifestComponent* main = manifest.main();
  if (main == nullptr || main->programs.empty()) return;
  const packer::ManifestProgram &first = main->programs.front(), &last = main->programs.back();
  if (first.methods.empty() || last.methods.empty()) return;
  write_ports(json, "inputs", first.methods.front().inputs);
  write_ports(json, "outputs", last.methods.front().outputs);
}

std::string dataset_ref(size_t i) { return fmt::format("dataset/{}", i + 1); }

void write_parameters(JsonWriter& json, const Facts& facts) {
  json.key("modelParameters").begin_object();
  if (!facts.card.pipeline_tag.empty()) json.member("task", facts.card.pipeline_tag);
  json.member("architectureFamily", facts.manifest.model_type);
  if (!facts.architecture.empty()) json.member("modelArchitecture", facts.architecture);
  if (!facts.card.datasets.empty()) {
    json.key("datasets").begin_array();
    for (size_t i = 0; i < facts.card.datasets.size(); ++i) {
      json.begin_object().member("ref", dataset_ref(i)).end_object();
    }
    json.end_array();
  }
  write_main_ports(json, facts.manifest);
  json.end_object();
}

void write_model_card(JsonWriter& json, const Facts& facts) {
  json.key("modelCard").begin_object();
  write_parameters(json, facts);
  if (facts.proof) write_metrics(json, *facts.proof);
  json.key("properties").begin_array();
  for (const packer::ManifestComponent& component : facts.manifest.components) {
    const std::string& how = component.quantization;
    write_property(json, fmt::format("ferry:quantization:{}", component.role),
                   how.empty() ? "none" : how);
    if (component.weight_dtype.empty()) continue;
    write_property(json, fmt::format("ferry:weight_dtype:{}", component.role),
                   component.weight_dtype);
  }
  write_property(json, "ferry:context_length", std::to_string(facts.manifest.context_length));
  if (facts.proof) {
    write_property(json, "ferry:parity", facts.proof->claim);
    write_property(json, "ferry:parity_file", facts.proof->name);
    write_property(json, "ferry:parity_file_sha256", facts.proof->sha256);
  }
  json.end_array().end_object();
}

std::string_view kind_name(FactFile::Kind kind) {
  switch (kind) {
    case FactFile::Kind::kManifest:
      return "manifest";
    case FactFile::Kind::kProgram:
      return "program";
    case FactFile::Kind::kWeights:
      return "weights";
    case FactFile::Kind::kReference:
      return "reference";
    case FactFile::Kind::kOther:
      break;
  }
  return "file";
}

std::string file_ref(const FactFile& file) { return fmt::format("file/{}", file.name); }

void write_file(JsonWriter& json, const FactFile& file) {
  json.begin_object().member("type", "file").member("bom-ref", file_ref(file));
  json.member("name", file.name);
  write_hash(json, file.sha256);
  json.key("properties").begin_array();
  write_property(json, "ferry:kind", kind_name(file.kind));
  write_property(json, "ferry:bytes", std::to_string(file.bytes));
  json.end_array().end_object();
}

void write_model(JsonWriter& json, const Facts& facts) {
  json.begin_object().member("type", "machine-learning-model").member("bom-ref", kModelRef);
  json.member("name", facts.bundle);
  json.member("description",
              fmt::format("{} as ExecuTorch programs, a Ferry bundle of {} files. The hash of the "
                          "model is the subject of its signature: SHA-256 over the digests of its "
                          "files",
                          facts.manifest.model_type, facts.files.size()));
  write_hash(json, facts.root);
  write_licences(json, facts.card);
  json.key("pedigree").begin_object().key("ancestors").begin_array();
  write_checkpoint(json, facts);
  json.end_array().end_object();
  json.key("components").begin_array();
  for (const FactFile& file : facts.files) write_file(json, file);
  json.end_array();
  write_model_card(json, facts);
  json.key("properties").begin_array();
  write_property(json, "ferry:manifest_sha256", facts.manifest_sha256);
  write_property(json, "ferry:bytes", std::to_string(facts.bytes));
  write_property(json, "ferry:signed", facts.is_signed ? "true" : "false");
  for (const packer::ManifestOption& option : facts.manifest.options) {
    write_property(json, fmt::format("ferry:option:{}", option.name), option.value);
  }
  json.end_array().end_object();
}

void write_tool(JsonWriter& json, std::string_view name, std::string_view version) {
  json.begin_object().member("type", "application").member("name", name);
  if (!version.empty()) json.member("version", version);
  json.end_object();
}

void write_metadata(JsonWriter& json, const Facts& facts, std::optional<int64_t> time) {
  json.key("metadata").begin_object();
  if (time) json.member("timestamp", time_text(*time));
  json.key("lifecycles").begin_array().begin_object().member("phase", "post-build");
  json.end_object().end_array();
  json.key("tools").begin_object().key("components").begin_array();
  write_tool(json, "ferry", version());
  json.end_array().end_object().key("component");
  write_model(json, facts);
  json.end_object();
}

void write_datasets(JsonWriter& json, const std::vector<std::string>& datasets) {
  json.key("components").begin_array();
  for (size_t i = 0; i < datasets.size(); ++i) {
    const std::string& name = datasets[i];
    json.begin_object().member("type", "data").member("bom-ref", dataset_ref(i));
    json.member("name", name).key("data").begin_array().begin_object().member("type", "dataset");
    json.member("name", name);
    if (is_hub_name(name)) {
      json.key("contents").begin_object();
      json.member("url", fmt::format("{}datasets/{}", kHub, name)).end_object();
    }
    json.end_object().end_array().end_object();
  }
  json.end_array();
}

void write_dependencies(JsonWriter& json, const Facts& facts) {
  json.key("dependencies").begin_array().begin_object().member("ref", kModelRef);
  json.key("dependsOn").begin_array();
  for (const FactFile& file : facts.files) json.value(file_ref(file));
  for (size_t i = 0; i < facts.card.datasets.size(); ++i) json.value(dataset_ref(i));
  json.end_array().end_object().end_array();
}

// Returns the members behind `version` as the inside of an object.
std::string body(const Facts& facts, std::optional<int64_t> time) {
  JsonWriter json;
  json.begin_object();
  write_metadata(json, facts, time);
  write_datasets(json, facts.card.datasets);
  write_dependencies(json, facts);
  json.end_object();
  return json.take();
}

// Returns a UUID of version 8 (RFC 9562) that stands for the contents.
std::string serial_number(const std::string& contents) {
  std::string digits = to_hex(sha256(std::as_bytes(std::span(contents))));
  digits[12] = '8';
  digits[16] = "89ab"[static_cast<unsigned char>(digits[16]) % 4];
  const std::string_view view = digits;
  return fmt::format("urn:uuid:{}-{}-{}-{}-{}", view.substr(0, 8), view.substr(8, 4),
                     view.substr(12, 4), view.substr(16, 4), view.substr(20, 12));
}

}  // namespace

std::string time_text(int64_t time) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm utc = {};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string ml_bom(const Facts& facts, std::optional<int64_t> time) {
  const std::string contents = body(facts, time);
  JsonWriter json;
  json.begin_object().member("$schema", "http://cyclonedx.org/schema/bom-1.7.schema.json");
  json.member("bomFormat", "CycloneDX").member("specVersion", "1.7");
  json.member("serialNumber", serial_number(contents)).member("version", 1).end_object();
  std::string head = json.take();
  head.resize(head.rfind('}'));
  return head + "," + contents.substr(1);
}

}  // namespace ferry::card
