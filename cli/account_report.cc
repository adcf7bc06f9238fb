#include "cli/convert_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "core/checked.h"
#include "core/derived_source.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

constexpr size_t kWidestColumn = 64;
constexpr size_t kShownKeys = 32;  // most shown config keys without effect; JSON has all

// -- transforms of a tensor

// Returns an empty text for steps that transform_text() describes by the dtypes before and after.
std::string step_text(const graph::Step& step) {
  switch (step.kind) {
    case graph::Step::Kind::kAdd:
      return fmt::format("{:+g}", step.value);
    case graph::Step::Kind::kMul:
      return fmt::format("x {:g}", step.value);
    case graph::Step::Kind::kNegExp:
      return "-exp";
    case graph::Step::Kind::kLogNegated:
      return "log(-x)";
    case graph::Step::Kind::kSmooth:
      return step.by_rows ? "rows smoothed" : "smoothed";
    case graph::Step::Kind::kQuantize:
      return step.scheme.group == 0 ? "a scale for each row"
                                    : fmt::format("a scale for {} elements", step.scheme.group);
    case graph::Step::Kind::kSplitQ80:
      return "codes and scales as stored";
    case graph::Step::Kind::kStored:
      return "blocks as stored";
    case graph::Step::Kind::kEncode:
    case graph::Step::Kind::kDecode:
    case graph::Step::Kind::kCast:
      break;
  }
  return {};
}

// Returns a text such as "rows 0..63 of 192", "64 of 192 rows in 4 runs", "8 tensors one after the
// other" or "reordered". Returns an empty text for all elements of one tensor in their order.
std::string order_text(const graph::Recipe& recipe, const TensorSource& source) {
  const std::vector<size_t> entries = entries_of(recipe);
  if (entries.empty()) return {};
  if (entries.size() > 1) return fmt::format("{} tensors one after the other", entries.size());
  const Shape& shape = source.entries()[entries[0]].shape;
  const int64_t all = checked_numel(shape).value_or(0);
  const int64_t width = shape.size() < 2 ? 1 : std::max<int64_t>(shape.back(), 1);
  int64_t first = 0, taken = 0, end = -1, runs = 0;
  bool whole_rows = true;
  const auto note = [&](int64_t offset, int64_t count) {
    if (taken == 0) first = offset;
    runs += offset == end ? 0 : 1;
    taken += count;
    end = offset + count;
    whole_rows = whole_rows && offset % width == 0 && count % width == 0;
  };
  for (const StridedPiece& piece : recipe.pieces) {
    if (!piece.axes.empty() && piece.axes.back().stride != 1) return "reordered";
    for_each_run(piece, note);
  }
  if (!whole_rows) return "reordered";
  const int64_t rows = all / width;
  taken /= width;
  if (runs > 1) {
    return taken == rows ? fmt::format("{} rows in {} runs", rows, runs)
                         : fmt::format("{} of {} rows in {} runs", taken, rows, runs);
  }
  if (taken == rows) return {};
  return fmt::format("rows {}..{} of {}", first / width, first / width + taken - 1, rows);
}

// Returns the forms in which the sources are stored, such as "bf16" or "f16 and q8_0".
std::string stored_forms(const graph::Recipe& recipe, const TensorSource& source) {
  std::set<std::string_view> forms;
  for (const size_t entry : entries_of(recipe)) {
    const std::string_view form = form_of(source, entry);
    forms.insert(form.substr(0, form.find(':')));  // a derived tensor has the form "KIND:..."
  }
  return fmt::format("{}", fmt::join(forms, " and "));
}

// Returns the form in which the target is stored; empty if the blocks of the sources are copied.
std::string made_form(const graph::Recipe& recipe) {
  if (recipe.steps.empty()) return std::string(dtype_name(recipe.output().dtype));
  const graph::Step& last = recipe.steps.back();
  if (last.kind == graph::Step::Kind::kStored) return {};
  if (last.kind == graph::Step::Kind::kEncode) return std::string(last.encoder->name);
  return std::string(dtype_name(recipe.output().dtype));
}

// Returns one text if the transforms of all targets are equal, else one text per target.
std::vector<std::string> entry_transforms(const converters::MappedEntry& entry,
                                          const Transforms& transforms) {
  std::vector<std::string> texts;
  for (const std::string& target : entry.targets) {
    const auto found = transforms.find(target);
    if (found != transforms.end()) texts.push_back(found->second);
  }
  const bool agree = std::ranges::adjacent_find(texts, std::not_equal_to<>()) == texts.end();
  if (agree && texts.size() > 1) texts.resize(1);
  return texts;
}

std::string transform_of(const converters::MappedEntry& entry, const Transforms& transforms) {
  return fmt::format("{}", fmt::join(entry_transforms(entry, transforms), " | "));
}

// -- JSON

const char* kind_name(converters::KeyProblem::Kind kind) {
  switch (kind) {
    case converters::KeyProblem::Kind::kUnmapped:
      return "unmapped";
    case converters::KeyProblem::Kind::kMissing:
      return "missing";
    case converters::KeyProblem::Kind::kDuplicate:
      return "duplicate";
    case converters::KeyProblem::Kind::kShape:
      return "shape";
    case converters::KeyProblem::Kind::kDType:
      return "dtype";
    case converters::KeyProblem::Kind::kAmbiguous:
      return "ambiguous";
  }
  return "other";  // unreachable: -Wswitch requires a case for every enumerator
}

void write_entries(JsonWriter& json, const plan::MappedCheckpoint& c,
                   const Transforms& transforms) {
  json.key("entries").begin_array();
  for (const converters::MappedEntry& entry : c.mapping.entries) {
    json.begin_object().member("source", entry.source);
    json.key("targets").begin_array();
    for (const std::string& target : entry.targets) json.value(target);
    json.end_array();
    json.member("rule", entry.rule).member("transform", transform_of(entry, transforms));
    json.member("reason", entry.reason).end_object();
  }
  json.end_array();
}

void write_keys(JsonWriter& json, const char* name,
                const std::vector<converters::KeyProblem>& problems,
                converters::KeyProblem::Kind kind, const std::vector<std::string>& further) {
  json.key(name).begin_array();
  for (const std::string& key : further) json.value(key);
  for (const converters::KeyProblem& problem : problems) {
    if (problem.kind == kind) json.value(problem.key);
  }
  json.end_array();
}

void write_prefixes(JsonWriter& json, const std::vector<converters::TakenPrefix>& prefixes) {
  json.key("prefixes").begin_array();
  for (const converters::TakenPrefix& taken : prefixes) {
    json.begin_object().member("prefix", taken.prefix).member("rule", taken.rule).end_object();
  }
  json.end_array();
}

void write_problems(JsonWriter& json, const std::vector<converters::KeyProblem>& problems) {
  json.key("problems").begin_array();
  for (const converters::KeyProblem& problem : problems) {
    json.begin_object().member("kind", kind_name(problem.kind)).member("key", problem.key);
    json.member("message", problem.message).end_object();
  }
  json.end_array();
}

void write_texts(JsonWriter& json, const char* name, const std::vector<std::string>& texts) {
  json.key(name).begin_array();
  for (const std::string& text : texts) json.value(text);
  json.end_array();
}

void write_non_finite(JsonWriter& json,
                      const std::optional<std::vector<packer::NonFiniteWeight>>& weights) {
  json.key("non_finite");
  if (!weights) {
    json.null();
    return;
  }
  json.begin_array();
  for (const packer::NonFiniteWeight& weight : *weights) {
    json.begin_object().member("tensor", weight.name);
    write_texts(json, "sources", weight.sources);
    json.member("values", weight.count).end_object();
  }
  json.end_array();
}

// -- text

std::string mapping_line(const converters::MappingReport& mapping) {
  size_t mapped = 0, split = 0, tied = 0, dropped = 0;
  for (const converters::MappedEntry& entry : mapping.entries) {
    if (entry.targets.empty()) {
      ++dropped;
    } else if (entry.source.empty()) {
      ++tied;
    } else {
      ++(entry.targets.size() > 1 ? split : mapped);
    }
  }
  std::string line = fmt::format("tensors: {} mapped, {} split, {} tied, {} dropped", mapped, split,
                                 tied, dropped);
  if (!mapping.allowed.empty()) {
    line += fmt::format(", {} unmapped and allowed", mapping.allowed.size());
  }
  return line;
}

struct TableLine {
  std::string source, rule, what;
};

// Maps each rule to the number of entries that it dropped.
using DropCounts = std::map<std::string, size_t>;

DropCounts count_drops(const converters::MappingReport& mapping) {
  DropCounts counts;
  for (const converters::MappedEntry& entry : mapping.entries) {
    if (entry.targets.empty()) ++counts[entry.rule];
  }
  return counts;
}

// Calls write(entry, count) for every entry that has a line of its own. All tensors that one rule
// dropped share the line of the first of them, with their number as `count`.
void for_each_line(const converters::MappingReport& mapping,
                   const std::function<void(const converters::MappedEntry&, size_t)>& write) {
  DropCounts counts = count_drops(mapping);
  for (const converters::MappedEntry& entry : mapping.entries) {
    if (!entry.targets.empty()) {
      write(entry, 1);
    } else if (size_t& count = counts[entry.rule]; count > 0) {
      write(entry, std::exchange(count, 0));
    }
  }
}

// Joins all texts if there are few, else only the first and the last text.
std::string shortened(const std::vector<std::string>& texts, std::string_view separator) {
  constexpr size_t kMost = 8;
  if (texts.size() <= kMost) return fmt::format("{}", fmt::join(texts, separator));
  return fmt::format("{}{}... ({}){}{}", texts.front(), separator, texts.size(), separator,
                     texts.back());
}

TableLine table_line(const converters::MappedEntry& entry, size_t count,
                     const Transforms& transforms) {
  TableLine line{.source = entry.source.empty() ? "(tie)" : printable(entry.source),
                 .rule = entry.rule,
                 .what = {}};
  if (entry.targets.empty()) {
    if (count > 1) line.source = fmt::format("({} tensors)", count);
    line.what = "dropped: " + entry.reason;
    return line;
  }
  line.what = "-> " + shortened(entry.targets, ", ");
  const std::string transform = shortened(entry_transforms(entry, transforms), " | ");
  if (!transform.empty()) line.what += fmt::format("  [{}]", transform);
  if (!entry.reason.empty()) line.what += "  " + entry.reason;
  return line;
}

std::string key_table(const plan::MappedCheckpoint& c, const Transforms& transforms) {
  std::vector<TableLine> lines;
  size_t source_width = 0, rule_width = 0;
  for_each_line(c.mapping, [&](const converters::MappedEntry& entry, size_t count) {
    lines.push_back(table_line(entry, count, transforms));
    source_width = std::max(source_width, std::min(kWidestColumn, lines.back().source.size()));
    rule_width = std::max(rule_width, std::min(kWidestColumn, lines.back().rule.size()));
  });
  std::string text;
  for (const TableLine& line : lines) {
    fmt::format_to(std::back_inserter(text), "  {:{}}  {:{}}  {}\n", line.source, source_width,
                   line.rule, rule_width, line.what);
  }
  return text;
}

std::string drop_lines(const converters::MappingReport& mapping) {
  std::string text;
  for_each_line(mapping, [&](const converters::MappedEntry& entry, size_t count) {
    if (!entry.targets.empty()) return;
    const std::string what =
        count > 1 ? fmt::format("{} tensors ({})", count, entry.rule) : quoted(entry.source);
    fmt::format_to(std::back_inserter(text), "  dropped {}: {}\n", what, entry.reason);
  });
  return text;
}
void write_outcome(JsonWriter& json, const ConversionOutcome& outcome) {
  json.key("path");
  outcome.path.empty() ? json.null() : json.value(outcome.path);
  json.member("source", outcome.source).member("dtype", outcome.dtype);
  json.member("up_to_date", outcome.up_to_date).member("seconds", outcome.seconds);
}

void write_version_readings(JsonWriter& json,
                            const std::vector<converters::VersionReading>& readings) {
  json.key("version_readings").begin_array();
  for (const converters::VersionReading& reading : readings) {
    json.begin_object().member("key", reading.key).member("reading", reading.reading);
    json.member("earlier", reading.earlier).end_object();
  }
  json.end_array();
}

std::string unused_keys_line(const std::vector<std::string>& keys) {
  if (keys.empty()) return {};
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(keys.size(), kShownKeys); ++i) names.push_back(quoted(keys[i]));
  if (keys.size() > kShownKeys) names.push_back(fmt::format("{} more", keys.size() - kShownKeys));
  return fmt::format("config keys that have no effect: {}\n", fmt::join(names, ", "));
}

}  // namespace

std::string transform_text(const graph::Recipe& recipe, const TensorSource& source) {
  std::string text = order_text(recipe, source);
  const auto add = [&](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  };
  for (const graph::Step& step : recipe.steps) add(step_text(step));
  const std::string stored = stored_forms(recipe, source);
  const std::string made = made_form(recipe);
  if (!made.empty() && !stored.empty() && stored != made) {
    add(fmt::format("{} to {}", stored, made));
  }
  return text.empty() ? "copy" : text;
}

std::string unused_keys_note(const std::vector<std::string>& keys) {
  if (keys.size() == 1) return fmt::format("the config key {} has no effect", quoted(keys[0]));
  return fmt::format("{} config keys have no effect, {} among them (--dry-run lists all)",
                     keys.size(), quoted(keys.front()));
}

std::vector<std::string> non_finite_notes(const std::vector<packer::NonFiniteWeight>& weights,
                                          const std::string& source) {
  constexpr size_t kMost = 8;
  std::vector<std::string> notes;
  for (const packer::NonFiniteWeight& weight : weights) {
    if (notes.size() == kMost) {
      notes.push_back(
          fmt::format("{}: values that are not finite in {} more tensors (--json lists "
                      "all)",
                      printable(source), weights.size() - kMost));
      break;
    }
    const bool single = weight.sources.size() == 1;
    notes.push_back(fmt::format("{}: {} value{} not finite (tensor {})", printable(source),
                                weight.count, weight.count == 1 ? " is" : "s are",
                                quoted(single ? weight.sources[0] : weight.name)));
  }
  return notes;
}

void write_account(JsonWriter& json, const plan::MappedCheckpoint& c, const Transforms& transforms,
                   const ConversionOutcome& outcome) {
  write_outcome(json, outcome);
  json.member("model_type", c.config.model_type);
  write_texts(json, "unused_config_keys", c.unused_config_keys);
  write_version_readings(json, c.version_readings);
  write_prefixes(json, c.mapping.prefixes);
  write_entries(json, c, transforms);
  write_keys(json, "unmapped", c.problems, converters::KeyProblem::Kind::kUnmapped,
             c.mapping.allowed);
  write_keys(json, "missing", c.problems, converters::KeyProblem::Kind::kMissing, {});
  write_keys(json, "ambiguous", c.problems, converters::KeyProblem::Kind::kAmbiguous, {});
  write_problems(json, c.problems);
  write_texts(json, "notes", outcome.notes);
  write_non_finite(json, outcome.non_finite);
}

void write_files(JsonWriter& json, const std::vector<packer::PlannedFile>& files) {
  uint64_t bytes = 0;
  json.key("files").begin_array();
  for (const packer::PlannedFile& file : files) {
    json.begin_object().member("path", file.path).member("bytes", file.bytes).end_object();
    bytes += file.bytes;
  }
  json.end_array().member("bytes", bytes).member("total_bytes", bytes);
}

std::string model_lines(const plan::MappedCheckpoint& c) {
  std::string text;
  const auto out = std::back_inserter(text);
  const std::string type = c.config.model_type;
  fmt::format_to(out, "model: {} ({} layers, hidden {}, vocabulary {})\n", quoted(type),
                 c.config.num_layers, c.config.hidden_size, c.config.vocab_size);
  fmt::format_to(out, "{}\n", mapping_line(c.mapping));
  for (const converters::TakenPrefix& taken : c.mapping.prefixes) {
    fmt::format_to(out, "  '{}' before all keys left out: {}\n", taken.prefix, taken.rule);
  }
  if (const size_t count = c.mapping.without_base_prefix; count > 0) {
    fmt::format_to(out, "  keys of a base model: {} lack the prefix of the model with a head\n",
                   count);
  }
  return text;
}

std::string key_lines(const plan::MappedCheckpoint& c, const Transforms& transforms, bool table) {
  if (!table) return drop_lines(c.mapping);
  return key_table(c, transforms) + unused_keys_line(c.unused_config_keys);
}

std::string file_lines(const std::vector<packer::PlannedFile>& files) {
  std::string text;
  uint64_t bytes = 0;
  for (const packer::PlannedFile& file : files) {
    text += fmt::format("  {:>14} B  {}\n", file.bytes, file.path);
    bytes += file.bytes;
  }
  return text + fmt::format("  {:>14} B  in all ({})\n", bytes, human_bytes(bytes));
}

}  // namespace ferry::cli
