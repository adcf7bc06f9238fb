#include "batch/result.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/json.h"
#include "core/text.h"

namespace ferry::batch {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSchema = 1;
constexpr std::array<std::string_view, 3> kOutcomes = {"done", "failed", "interrupted"};
constexpr std::array<std::string_view, 14> kClasses = {
    "",       "input",       "unsupported", "usage", "io",     "memory", "parity",
    "damage", "expectation", "exists",      "crash", "signal", "lease",  "internal"};
static_assert(kClasses.size() == static_cast<size_t>(Class::kInternal) + 1);

// -- writing

void write_number(JsonWriter& json, const char* name, const std::optional<double>& value) {
  json.key(name);
  if (value) {
    json.value(*value);
  } else {
    json.null();
  }
}

void write_outputs(JsonWriter& json, const std::vector<OutputFile>& outputs) {
  json.key("outputs").begin_array();
  for (const OutputFile& file : outputs) {
    json.begin_object().member("path", file.path).member("bytes", file.bytes);
    json.member("method", file.method).member("digest", file.digest).end_object();
  }
  json.end_array();
}

// -- reading

// Reads members whose types must be those that to_json() writes. Keeps the name of the first member
// that is missing or of another type.
class Members {
 public:
  Members(const Json& object, const std::string& name) : object_(object), name_(name) {}

  template <class T>
  void get(const char* member, T& value) {
    const auto found = object_.find(member);
    if (found == object_.end() || !fits(*found, value)) {
      note(member);
    } else {
      value = found->get<T>();
    }
  }
  void get(const char* member, std::optional<double>& value) {
    const auto found = object_.find(member);
    if (found != object_.end() && found->is_null()) return;
    double number = 0;
    get(member, number);
    value = number;
  }
  // Sets `value` to the index of the member's text in `words`.
  template <class Enum, size_t N>
  void get_word(const char* member, const std::array<std::string_view, N>& words, Enum& value) {
    std::string text;
    get(member, text);
    for (size_t i = 0; i < N; ++i) {
      if (words[i] != text) continue;
      value = static_cast<Enum>(i);
      return;
    }
    note(member);
  }
  // Calls read(Members&) for every object of an array.
  template <class Read>
  void each(const char* member, const Read& read) {
    const auto found = object_.find(member);
    if (found == object_.end() || !found->is_array()) return note(member);
    for (const Json& item : *found) {
      if (!item.is_object()) return note(member);
      Members inner(item, name_);
      read(inner);
      if (!inner.wrong_.empty()) note(member);
    }
  }
  void note(const char* member) {
    if (wrong_.empty()) wrong_ = member;
  }
  Status status() const {
    if (wrong_.empty()) return {};
    return bad_input(fmt::format("{}: {} is missing or malformed", name_, quoted(wrong_)));
  }

 private:
  static bool fits(const Json& value, const std::string&) { return value.is_string(); }
  static bool fits(const Json& value, bool) { return value.is_boolean(); }
  static bool fits(const Json& value, double) { return value.is_number(); }
  static bool fits(const Json& value, uint64_t) { return value.is_number_unsigned(); }
  static bool fits(const Json& value, int64_t) { return value.is_number_integer(); }
  static bool fits(const Json& value, int) {
    constexpr int64_t kMost = 1 << 16;
    return value.is_number_integer() && value >= 0 && value <= kMost;
  }

  const Json& object_;
  const std::string& name_;
  std::string wrong_;
};

Result<Json> parse_object(const std::string& text, const std::string& name) {
  Json document = FERRY_TRY(parse_json(text, name));
  if (!document.is_object()) return bad_input(fmt::format("{}: is not an object", name));
  const auto schema = document.find("schema");
  if (schema == document.end() || *schema != kSchema) {
    return bad_input(fmt::format("{}: 'schema' is not {}", name, kSchema));
  }
  return document;
}

void read_outcome(Members& members, AttemptResult& result) {
  members.get_word("status", kOutcomes, result.outcome);
  members.get("exit", result.exit);
  members.get_word("class", kClasses, result.reason);
  members.get("transient", result.transient);
  members.get("message", result.message);
}

void read_measures(Members& members, AttemptResult& result) {
  members.get("host", result.host);
  members.get("start", result.start);
  members.get("seconds", result.seconds);
  members.get("processor_seconds", result.processor_seconds);
  members.get("max_rss_bytes", result.max_rss_bytes);
  members.get("input_bytes", result.input_bytes);
  members.get("output_bytes", result.output_bytes);
  members.get("sha256", result.sha256);
}

void read_lists(Members& members, AttemptResult& result) {
  members.each("outputs", [&](Members& inner) {
    OutputFile& file = result.outputs.emplace_back();
    inner.get("path", file.path);
    inner.get("bytes", file.bytes);
    inner.get("method", file.method);
    inner.get("digest", file.digest);
  });
  members.each("steps", [&](Members& inner) {
    Step& step = result.steps.emplace_back();
    inner.get("name", step.name);
    inner.get("exit", step.exit);
    inner.get("signal", step.signal);
    inner.get("seconds", step.seconds);
    inner.get("processor_seconds", step.processor_seconds);
    inner.get("max_rss_bytes", step.max_rss_bytes);
  });
}

Result<std::optional<Parity>> parity_of(const Json& document, const std::string& name) {
  const auto found = document.find("parity");
  if (found == document.end()) return bad_input(fmt::format("{}: 'parity' is missing", name));
  if (found->is_null()) return std::optional<Parity>();
  if (!found->is_object()) return bad_input(fmt::format("{}: 'parity' is malformed", name));
  Parity parity;
  Members members(*found, name);
  members.get("parity", parity.parity);
  members.get("max_abs", parity.max_abs);
  members.get("sqnr_db", parity.sqnr_db);
  members.get("top1_agreement", parity.top1_agreement);
  members.get("kl_max", parity.kl_max);
  FERRY_RETURN_IF_ERROR(members.status());
  return std::optional<Parity>(parity);
}

}  // namespace

const char* name_of(Outcome outcome) { return kOutcomes[static_cast<size_t>(outcome)].data(); }
const char* name_of(Class reason) { return kClasses[static_cast<size_t>(reason)].data(); }

bool AttemptResult::is_final() const {
  constexpr int kLastFinalExit = 4;
  return outcome == Outcome::kFailed && !transient && exit >= 1 && exit <= kLastFinalExit &&
         reason != Class::kExists;
}

void write_parity(JsonWriter& json, const std::optional<Parity>& parity) {
  json.key("parity");
  if (!parity) {
    json.null();
    return;
  }
  json.begin_object().member("parity", parity->parity);
  write_number(json, "max_abs", parity->max_abs);
  write_number(json, "sqnr_db", parity->sqnr_db);
  write_number(json, "top1_agreement", parity->top1_agreement);
  write_number(json, "kl_max", parity->kl_max);
  json.end_object();
}

void write_steps(JsonWriter& json, const std::vector<Step>& steps) {
  json.key("steps").begin_array();
  for (const Step& step : steps) {
    json.begin_object().member("name", step.name);
    json.member("exit", step.exit).member("signal", step.signal);
    json.member("seconds", step.seconds).member("processor_seconds", step.processor_seconds);
    json.member("max_rss_bytes", step.max_rss_bytes).end_object();
  }
  json.end_array();
}

std::string to_json(const AttemptResult& r) {
  JsonWriter json;
  json.begin_object().member("schema", kSchema).member("ferry", r.ferry);
  json.member("id", r.id).member("index", r.index).member("attempt", r.attempt);
  json.member("fingerprint", r.fingerprint).member("input", r.input).member("output", r.output);
  json.member("status", name_of(r.outcome)).member("exit", r.exit);
  json.member("class", name_of(r.reason)).member("transient", r.transient);
  json.member("message", r.message).member("host", r.host).member("start", r.start);
  json.member("seconds", r.seconds).member("processor_seconds", r.processor_seconds);
  json.member("max_rss_bytes", r.max_rss_bytes).member("input_bytes", r.input_bytes);
  json.member("output_bytes", r.output_bytes).member("sha256", r.sha256);
  write_outputs(json, r.outputs);
  write_parity(json, r.parity);
  write_steps(json, r.steps);
  json.end_object();
  return json.take();
}

std::string to_json(const Started& started) {
  JsonWriter json;
  json.begin_object().member("schema", kSchema).member("fingerprint", started.fingerprint);
  json.member("host", started.host).member("boot", started.boot).member("start", started.start);
  json.member("process", started.process).member("process_start", started.process_start);
  json.member("may_replace", started.may_replace).end_object();
  return json.take();
}

Result<AttemptResult> parse_result(const std::string& text, const std::string& name) {
  const Json document = FERRY_TRY(parse_object(text, name));
  AttemptResult result;
  Members members(document, name);
  members.get("ferry", result.ferry);
  members.get("id", result.id);
  members.get("index", result.index);
  members.get("attempt", result.attempt);
  members.get("fingerprint", result.fingerprint);
  members.get("input", result.input);
  members.get("output", result.output);
  read_outcome(members, result);
  read_measures(members, result);
  read_lists(members, result);
  FERRY_RETURN_IF_ERROR(members.status());
  result.parity = FERRY_TRY(parity_of(document, name));
  return result;
}

Result<Started> parse_started(const std::string& text, const std::string& name) {
  const Json document = FERRY_TRY(parse_object(text, name));
  Started started;
  Members members(document, name);
  members.get("fingerprint", started.fingerprint);
  members.get("host", started.host);
  members.get("boot", started.boot);
  members.get("start", started.start);
  members.get("process", started.process);
  members.get("process_start", started.process_start);
  members.get("may_replace", started.may_replace);
  FERRY_RETURN_IF_ERROR(members.status());
  return started;
}

}  // namespace ferry::batch
