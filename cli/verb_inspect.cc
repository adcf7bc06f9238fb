// ferry inspect lists the contents of a file of any known format.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "cli/verbs.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "listing/listing.h"

namespace ferry::cli {
namespace {

// -- JSON

void write_tensors(JsonWriter& json, const char* key,
                   const std::vector<listing::ListedTensor>& tensors) {
  json.key(key).begin_array();
  for (const listing::ListedTensor& t : tensors) {
    json.begin_object().member("name", t.name);
    if (t.is_tensor) json.member("dtype", dtype_name(t.dtype)).member("shape", t.shape);
    json.member("bytes", t.bytes);
    json.member("stored", t.stored).member("stored_bytes", t.stored_bytes);
    if (!t.shares.empty()) json.member("shares", t.shares);
    if (!t.file.empty()) json.member("file", t.file);
    json.end_object();
  }
  json.end_array();
}

void write_values(JsonWriter& json, const char* key,
                  const std::vector<listing::ListedValue>& values, bool buffers) {
  json.key(key).begin_array();
  for (const listing::ListedValue& v : values) {
    json.begin_object();
    if (!v.name.empty()) json.member("name", v.name);
    json.member(buffers ? "dtype" : "type", v.kind).member("shape", v.shape);
    json.member("dynamic", v.dynamic).member("bytes", v.bytes);
    if (buffers) json.member("init", v.stored ? "stored" : "none");
    json.end_object();
  }
  json.end_array();
}

// Writes how a bundle was made: version and options.
void write_making(JsonWriter& json, const listing::Listing& listing) {
  json.key("tool").begin_object().member("name", listing.tool);
  json.member("version", listing.tool_version).end_object();
  json.key("options").begin_array();
  for (const auto& [name, value] : listing.options) {
    json.begin_object().member("name", name).member("value", value).end_object();
  }
  json.end_array();
}

// Returns a line such as "made by ferry 0.2.0: dtype keep, shards 1".
std::string making_line(const listing::Listing& listing) {
  if (listing.tool.empty()) return {};
  std::vector<std::string> options;
  for (const auto& [name, value] : listing.options) {
    options.push_back(fmt::format("{} {}", printable(name), printable(value)));
  }
  return fmt::format("made by {} {}: {}\n", printable(listing.tool),
                     printable(listing.tool_version), fmt::join(options, ", "));
}

void write_tensor_counts(JsonWriter& json, const char* key,
                         const std::vector<std::pair<std::string, size_t>>& counts) {
  json.key(key).begin_object();
  for (const auto& [name, count] : counts) json.member(name, count);
  json.end_object();
}

void write_delegate(JsonWriter& json, const listing::ListedDelegate& d) {
  json.begin_object().member("backend", d.backend).member("bytes", d.bytes);
  if (!d.not_read.empty()) json.member("not_read", d.not_read);
  write_tensor_counts(json, "nodes", d.nodes);
  json.key("constants").begin_array();
  for (const listing::ListedConstant& c : d.constants) {
    json.begin_object();
    if (!c.key.empty()) json.member("key", c.key);
    json.member("bytes", c.bytes);
    if (!c.kind.empty()) json.member("type", c.kind).member("shape", c.shape);
    if (c.group > 0) json.member("group_size", c.group);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_method(JsonWriter& json, const listing::ListedMethod& m) {
  json.begin_object().member("name", m.name);
  write_values(json, "inputs", m.inputs, false);
  write_values(json, "outputs", m.outputs, false);
  write_values(json, "buffers", m.buffers, true);
  write_tensor_counts(json, "operators", m.operators);
  json.key("delegates").begin_array();
  for (const listing::ListedDelegate& delegate : m.delegates) write_delegate(json, delegate);
  json.end_array();
  json.member("instructions", m.instructions);
  json.key("planned_bytes").begin_array();
  for (uint64_t bytes : m.planned_bytes) json.value(bytes);
  json.end_array();
  json.member("constants", m.constants).member("constant_bytes", m.constant_bytes);
  json.end_object();
}

void write_program(JsonWriter& json, const listing::ListedProgram& p) {
  json.begin_object().member("file", p.file);
  json.member("program_bytes", p.program_bytes).member("constant_bytes", p.constant_bytes);
  json.member("initial_bytes", p.initial_bytes);
  json.member("delegate_bytes", p.delegate_bytes).member("named_bytes", p.named_bytes);
  json.key("methods").begin_array();
  for (const listing::ListedMethod& method : p.methods) write_method(json, method);
  json.end_array();
  write_tensors(json, "external", p.external);
  write_tensors(json, "named_data", p.named);
  write_tensor_counts(json, "test_cases", p.test_cases);
  json.end_object();
}

// -- text

using Out = std::back_insert_iterator<std::string>;

// Returns the bytes of all tensors. Bytes that several tensors share count once.
uint64_t total_bytes(const std::vector<listing::ListedTensor>& tensors) {
  uint64_t total = 0;
  for (const listing::ListedTensor& t : tensors) total += t.shares.empty() ? t.stored_bytes : 0;
  return total;
}

void print_tensors(Out out, const std::vector<listing::ListedTensor>& tensors) {
  constexpr size_t kWidest = 60;
  size_t width = 0, form_width = 8;
  for (const listing::ListedTensor& t : tensors) {
    width = std::max(width, std::min(t.name.size(), kWidest));
    form_width = std::max(form_width, t.stored.size());
  }
  for (const listing::ListedTensor& t : tensors) {
    std::string name = quoted(t.name);
    name = name.substr(1, name.size() - 2);
    fmt::format_to(out, "  {:{}}  {:{}}  {:20}  {:>14} B{}{}", name, width, t.stored, form_width,
                   t.is_tensor ? to_string(t.shape) : "", t.stored_bytes,
                   t.file.empty() ? "" : "  ", printable(t.file));
    fmt::format_to(out, "{}{}\n", t.shares.empty() ? "" : "  shared with ",
                   t.shares.empty() ? "" : quoted(t.shares));
  }
}

std::string value_text(const listing::ListedValue& v) {
  std::string text;
  if (!v.name.empty()) text += printable(v.name) + " ";
  text += v.kind;
  if (!v.shape.empty()) text += " " + to_string(v.shape);
  if (v.dynamic) text += " (upper bounds)";
  return text;
}

void print_values(Out out, const char* what, const std::vector<listing::ListedValue>& values) {
  for (const listing::ListedValue& v : values)
    fmt::format_to(out, "    {} {}\n", what, value_text(v));
}

// A method without inputs and instructions only states a value.
bool is_metadata(const listing::ListedMethod& m) { return m.inputs.empty() && m.instructions == 0; }

std::string counts_text(const std::vector<std::pair<std::string, size_t>>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name);
  }
  return text;
}

void print_constant(Out out, const listing::ListedConstant& c) {
  fmt::format_to(out, "      {}: {} B", c.key.empty() ? "in the blob" : quoted(c.key), c.bytes);
  if (!c.kind.empty()) fmt::format_to(out, ", {} {}", c.kind, to_string(c.shape));
  if (c.group > 0) fmt::format_to(out, " in groups of {}", c.group);
  fmt::format_to(out, "\n");
}

void print_delegate(Out out, const listing::ListedDelegate& d) {
  fmt::format_to(out, "    delegate {}, {} B", quoted(d.backend), d.bytes);
  if (!d.nodes.empty()) fmt::format_to(out, ": {}", counts_text(d.nodes));
  if (!d.not_read.empty()) fmt::format_to(out, ", not read ({})", d.not_read);
  fmt::format_to(out, "\n");
  for (const listing::ListedConstant& constant : d.constants) print_constant(out, constant);
}

// Prints all delegates of a backend in one line.
void print_delegates_in_short(Out out, const listing::ListedMethod& m) {
  struct Sum {
    size_t count = 0;
    uint64_t bytes = 0;
    std::map<std::string, size_t> nodes;
  };
  std::map<std::string, Sum> sums;
  for (const listing::ListedDelegate& d : m.delegates) {
    Sum& sum = sums[d.backend];
    ++sum.count;
    sum.bytes += d.bytes;
    for (const auto& [name, count] : d.nodes) sum.nodes[name] += count;
  }
  for (const auto& [backend, sum] : sums) {
    const std::string nodes = counts_text({sum.nodes.begin(), sum.nodes.end()});
    fmt::format_to(out, "    {} delegates {}, {} B{}{}\n", sum.count, quoted(backend), sum.bytes,
                   nodes.empty() ? "" : ": ", nodes);
  }
}

void print_method(Out out, const listing::ListedMethod& m, bool in_full) {
  fmt::format_to(out, "  method {}: {} instructions\n", quoted(m.name), m.instructions);
  print_values(out, "input ", m.inputs);
  print_values(out, "output", m.outputs);
  for (const listing::ListedValue& v : m.buffers) {
    fmt::format_to(out, "    buffer {}, {}{}\n", value_text(v), human_bytes(v.bytes),
                   v.stored ? ", contents stored" : "");
  }
  for (const auto& [name, count] : m.operators) {
    fmt::format_to(out, "    {:6} x {}\n", count, printable(name));
  }
  if (in_full) {
    for (const listing::ListedDelegate& delegate : m.delegates) print_delegate(out, delegate);
  } else {
    print_delegates_in_short(out, m);
  }
  for (size_t i = 0; i < m.planned_bytes.size(); ++i) {
    fmt::format_to(out, "    planned memory {}: {} B\n", i + 1, m.planned_bytes[i]);
  }
  if (m.constants > 0) {
    fmt::format_to(out, "    {} constants, {} B\n", m.constants, m.constant_bytes);
  }
}

void print_data(Out out, const char* what, const std::vector<listing::ListedTensor>& data,
                bool in_full) {
  if (data.empty()) return;
  fmt::format_to(out, "  {} {}, {}\n", data.size(), what, human_bytes(total_bytes(data)));
  if (in_full) print_tensors(out, data);
}

void print_program(Out out, const listing::ListedProgram& p, bool in_full) {
  fmt::format_to(out, "program {}: {} B program, {} B constants, {} B initial contents",
                 printable(p.file), p.program_bytes, p.constant_bytes, p.initial_bytes);
  if (p.delegate_bytes > 0) fmt::format_to(out, ", {} B of delegates", p.delegate_bytes);
  if (p.named_bytes > 0) fmt::format_to(out, ", {} B named data", p.named_bytes);
  fmt::format_to(out, "\n");
  std::string metadata;
  for (const listing::ListedMethod& method : p.methods) {
    if (is_metadata(method)) {
      metadata += (metadata.empty() ? "" : ", ") + printable(method.name);
    } else {
      print_method(out, method, in_full);
    }
  }
  if (!metadata.empty()) fmt::format_to(out, "  constant methods: {}\n", metadata);
  for (const auto& [method, count] : p.test_cases) {
    fmt::format_to(out, "  bundled: {} test case{} of {}\n", count, count == 1 ? "" : "s",
                   quoted(method));
  }
  const bool data = std::ranges::any_of(p.external, [](const auto& t) { return !t.is_tensor; });
  print_data(out, data ? "external tensors and data of delegates" : "external tensors", p.external,
             in_full);
  print_data(out, "named data", p.named, in_full);
}

std::string listing_json(const listing::Listing& listing) {
  JsonWriter json;
  json.begin_object().member("kind", listing.kind).member("path", listing.path);
  json.member("values_read", false);
  if (!listing.model_type.empty()) json.member("model_type", listing.model_type);
  if (!listing.tool.empty()) write_making(json, listing);
  json.key("files").begin_array();
  for (const listing::ListedFile& file : listing.files) {
    json.begin_object().member("path", file.name).member("name", file.name);
    json.member("bytes", file.bytes).end_object();
  }
  json.end_array();
  json.member("tensor_count", listing.tensors.size());
  json.member("tensor_bytes", total_bytes(listing.tensors));
  write_tensors(json, "tensors", listing.tensors);
  json.key("programs").begin_array();
  for (const listing::ListedProgram& program : listing.programs) write_program(json, program);
  json.end_array().end_object();
  return json.take();
}

std::string listing_text(const listing::Listing& listing) {
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "{}: {}", printable(listing.path), listing.kind);
  if (!listing.model_type.empty()) fmt::format_to(out, " of {}", quoted(listing.model_type));
  text += "\n" + making_line(listing);
  for (const listing::ListedFile& file : listing.files) {
    fmt::format_to(out, "  {:>14} B  {}\n", file.bytes, printable(file.name));
  }
  for (const listing::ListedProgram& program : listing.programs) {
    print_program(out, program, listing.kind == "program");
  }
  if (!listing.tensors.empty() || listing.programs.empty()) {
    fmt::format_to(out, "{} tensors, {}\n", listing.tensors.size(),
                   human_bytes(total_bytes(listing.tensors)));
    print_tensors(out, listing.tensors);
  }
  fmt::format_to(out, "Values were not read; `ferry check {}` reads them.\n",
                 printable(listing.path));
  return text;
}

}  // namespace

void add_inspect(CommandLine& line) {
  auto path = std::make_shared<std::string>();
  line.verb("inspect", "Show what is in a checkpoint, a program, a data file or a bundle")
      .positional("PATH", *path, "File or directory")
      .finds_models()
      .example("ferry inspect checkpoint/", "Tensors with dtype, shape and bytes.")
      .example("ferry inspect bundle/ --json | jq '.result.programs[].methods[].name'",
               "The methods of a bundle's programs.")
      .action([path](Context& context) -> Result<int> {
        const Result<listing::Listing> listing = listing::list_path(*path, context.pool());
        // The details of an error list keys for conversions, which have no meaning here.
        if (!listing) return fail(listing.error().code, listing.error().message);
        if (context.json) {
          context.print_result(listing_json(*listing), 0);
        } else {
          context.print(listing_text(*listing));
        }
        return 0;
      });
}

}  // namespace ferry::cli
