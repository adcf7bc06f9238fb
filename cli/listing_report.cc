#include "cli/listing_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/json_writer.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

// -- JSON

void write_tensors(JsonWriter& json, const char* key,
                   const std::vector<pipeline::ListedTensor>& tensors) {
  json.key(key).begin_array();
  for (const pipeline::ListedTensor& t : tensors) {
    json.begin_object().member("name", t.name).member("dtype", dtype_name(t.dtype));
    json.member("shape", t.shape).member("bytes", t.bytes);
    json.member("stored", t.stored).member("stored_bytes", t.stored_bytes);
    if (!t.shares.empty()) json.member("shares", t.shares);
    if (!t.file.empty()) json.member("file", t.file);
    json.end_object();
  }
  json.end_array();
}

void write_values(JsonWriter& json, const char* key,
                  const std::vector<pipeline::ListedValue>& values, bool buffers) {
  json.key(key).begin_array();
  for (const pipeline::ListedValue& v : values) {
    json.begin_object();
    if (!v.name.empty()) json.member("name", v.name);
    json.member(buffers ? "dtype" : "type", v.kind).member("shape", v.shape);
    json.member("dynamic", v.dynamic).member("bytes", v.bytes);
    if (buffers) json.member("init", v.stored ? "stored" : "none");
    json.end_object();
  }
  json.end_array();
}

void write_method(JsonWriter& json, const pipeline::ListedMethod& m) {
  json.begin_object().member("name", m.name);
  write_values(json, "inputs", m.inputs, false);
  write_values(json, "outputs", m.outputs, false);
  write_values(json, "buffers", m.buffers, true);
  json.key("operators").begin_object();
  for (const auto& [name, count] : m.operators) json.member(name, count);
  json.end_object();
  json.key("delegates").begin_array();
  for (const std::string& delegate : m.delegates) json.value(delegate);
  json.end_array();
  json.member("instructions", m.instructions);
  json.key("planned_bytes").begin_array();
  for (uint64_t bytes : m.planned_bytes) json.value(bytes);
  json.end_array();
  json.member("constants", m.constants).member("constant_bytes", m.constant_bytes);
  json.end_object();
}

void write_program(JsonWriter& json, const pipeline::ListedProgram& p) {
  json.begin_object().member("file", p.file);
  json.member("program_bytes", p.program_bytes).member("constant_bytes", p.constant_bytes);
  json.member("initial_bytes", p.initial_bytes);
  json.key("methods").begin_array();
  for (const pipeline::ListedMethod& method : p.methods) write_method(json, method);
  json.end_array();
  write_tensors(json, "external", p.external);
  json.end_object();
}

// -- text

using Out = std::back_insert_iterator<std::string>;

// Of the file; what several tensors share counts once.
uint64_t total_bytes(const std::vector<pipeline::ListedTensor>& tensors) {
  uint64_t total = 0;
  for (const pipeline::ListedTensor& t : tensors) total += t.shares.empty() ? t.stored_bytes : 0;
  return total;
}

void print_tensors(Out out, const std::vector<pipeline::ListedTensor>& tensors) {
  constexpr size_t kWidest = 60;
  size_t width = 0, form_width = 8;
  for (const pipeline::ListedTensor& t : tensors) {
    width = std::max(width, std::min(t.name.size(), kWidest));
    form_width = std::max(form_width, t.stored.size());
  }
  for (const pipeline::ListedTensor& t : tensors) {
    std::string name = quoted(t.name);
    name = name.substr(1, name.size() - 2);
    fmt::format_to(out, "  {:{}}  {:{}}  {:20}  {:>14} B{}{}", name, width, t.stored, form_width,
                   to_string(t.shape), t.stored_bytes, t.file.empty() ? "" : "  ",
                   printable(t.file));
    fmt::format_to(out, "{}{}\n", t.shares.empty() ? "" : "  shared with ",
                   t.shares.empty() ? "" : quoted(t.shares));
  }
}

std::string value_text(const pipeline::ListedValue& v) {
  std::string text;
  if (!v.name.empty()) text += printable(v.name) + " ";
  text += v.kind;
  if (!v.shape.empty()) text += " " + to_string(v.shape);
  if (v.dynamic) text += " (upper bounds)";
  return text;
}

void print_values(Out out, const char* what, const std::vector<pipeline::ListedValue>& values) {
  for (const pipeline::ListedValue& v : values)
    fmt::format_to(out, "    {} {}\n", what, value_text(v));
}

// A method without inputs and instructions only states a value.
bool is_metadata(const pipeline::ListedMethod& m) {
  return m.inputs.empty() && m.instructions == 0;
}

void print_method(Out out, const pipeline::ListedMethod& m) {
  fmt::format_to(out, "  method {}: {} instructions\n", quoted(m.name), m.instructions);
  print_values(out, "input ", m.inputs);
  print_values(out, "output", m.outputs);
  for (const pipeline::ListedValue& v : m.buffers) {
    fmt::format_to(out, "    buffer {}, {}{}\n", value_text(v), human_bytes(v.bytes),
                   v.stored ? ", contents stored" : "");
  }
  for (const auto& [name, count] : m.operators) {
    fmt::format_to(out, "    {:6} x {}\n", count, printable(name));
  }
  for (const std::string& delegate : m.delegates) {
    fmt::format_to(out, "    delegate {}\n", quoted(delegate));
  }
  for (size_t i = 0; i < m.planned_bytes.size(); ++i) {
    fmt::format_to(out, "    planned memory {}: {} B\n", i + 1, m.planned_bytes[i]);
  }
  if (m.constants > 0) {
    fmt::format_to(out, "    {} constants, {} B\n", m.constants, m.constant_bytes);
  }
}

void print_program(Out out, const pipeline::ListedProgram& p, bool with_external) {
  fmt::format_to(out, "program {}: {} B program, {} B constants, {} B initial contents\n",
                 printable(p.file), p.program_bytes, p.constant_bytes, p.initial_bytes);
  std::string metadata;
  for (const pipeline::ListedMethod& method : p.methods) {
    if (is_metadata(method)) {
      metadata += (metadata.empty() ? "" : ", ") + printable(method.name);
    } else {
      print_method(out, method);
    }
  }
  if (!metadata.empty()) fmt::format_to(out, "  constant methods: {}\n", metadata);
  if (p.external.empty()) return;
  fmt::format_to(out, "  {} external tensors, {}\n", p.external.size(),
                 human_bytes(total_bytes(p.external)));
  if (with_external) print_tensors(out, p.external);
}

}  // namespace

std::string to_json(const pipeline::Listing& listing) {
  JsonWriter json;
  json.begin_object().member("kind", listing.kind).member("path", listing.path);
  if (!listing.model_type.empty()) json.member("model_type", listing.model_type);
  json.key("files").begin_array();
  for (const pipeline::ListedFile& file : listing.files) {
    json.begin_object().member("name", file.name).member("bytes", file.bytes).end_object();
  }
  json.end_array();
  json.member("tensor_count", listing.tensors.size());
  json.member("tensor_bytes", total_bytes(listing.tensors));
  write_tensors(json, "tensors", listing.tensors);
  json.key("programs").begin_array();
  for (const pipeline::ListedProgram& program : listing.programs) write_program(json, program);
  json.end_array().end_object();
  return json.take();
}

std::string to_text(const pipeline::Listing& listing) {
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "{}: {}", printable(listing.path), listing.kind);
  if (!listing.model_type.empty()) fmt::format_to(out, " of {}", quoted(listing.model_type));
  text += "\n";
  for (const pipeline::ListedFile& file : listing.files) {
    fmt::format_to(out, "  {:>14} B  {}\n", file.bytes, printable(file.name));
  }
  for (const pipeline::ListedProgram& program : listing.programs) {
    print_program(out, program, listing.kind == "program");
  }
  if (!listing.tensors.empty() || listing.programs.empty()) {
    fmt::format_to(out, "{} tensors, {}\n", listing.tensors.size(),
                   human_bytes(total_bytes(listing.tensors)));
    print_tensors(out, listing.tensors);
  }
  return text;
}

}  // namespace ferry::cli
