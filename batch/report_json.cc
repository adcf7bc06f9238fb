#include "batch/report.h"
#include "core/json_writer.h"

namespace ferry::batch {
namespace {

void write_plan(JsonWriter& json, const Plan& plan) {
  json.key("plan").begin_object().member("path", plan.path).member("sha256", plan.sha256);
  json.member("tasks", plan.tasks.size()).end_object();
}

void write_counts(JsonWriter& json, const PlanStatus& status) {
  json.member("complete", status.complete());
  json.key("counts").begin_object();
  for (size_t i = 0; i < kTaskStates.size(); ++i) {
    json.member(kTaskStates[i], status.counts[i]);
  }
  json.end_object();
}

void write_time(JsonWriter& json, const char* name, const std::string& time) {
  json.key(name);
  if (time.empty()) {
    json.null();
  } else {
    json.value(time);
  }
}

void write_totals(JsonWriter& json, const Report& report) {
  json.key("totals").begin_object().member("attempts", report.attempts);
  json.member("input_bytes", report.input_bytes).member("output_bytes", report.output_bytes);
  json.member("seconds", report.seconds).member("processor_seconds", report.processor_seconds);
  json.member("max_rss_bytes", report.max_rss_bytes);
  write_time(json, "start", report.start);
  write_time(json, "end", report.end);
  json.key("parity").begin_object().member("proven", report.proven);
  json.member("failed", report.not_proven).member("not_asked", report.not_asked).end_object();
  json.end_object();
}

void write_failures(JsonWriter& json, const std::vector<FailureGroup>& failures) {
  json.key("failures").begin_array();
  for (const FailureGroup& group : failures) {
    json.begin_object().member("class", group.reason).member("exit", group.exit);
    json.member("message", group.message).key("tasks").begin_array();
    for (const std::string& id : group.tasks) json.value(id);
    json.end_array().end_object();
  }
  json.end_array();
}

void write_hosts(JsonWriter& json, const Report& report) {
  json.key("hosts").begin_array();
  for (const auto& [name, work] : report.hosts) {
    json.begin_object().member("name", name).member("attempts", work.attempts);
    json.member("seconds", work.seconds).end_object();
  }
  json.end_array();
}

// What the last attempt came to; zeros where there is none.
void write_result(JsonWriter& json, const TaskStatus& status) {
  const AttemptResult result = status.result.value_or(AttemptResult());
  json.member("class", name_of(result.reason)).key("exit");
  if (status.result) {
    json.value(result.exit);
  } else {
    json.null();
  }
  json.member("transient", result.transient);
  json.member("message", status.problem.empty() ? result.message : status.problem);
  json.member("attempts", status.attempts);
  json.member("host", result.host).member("start", result.start);
  json.member("seconds", result.seconds).member("processor_seconds", result.processor_seconds);
  json.member("max_rss_bytes", result.max_rss_bytes);
  json.member("input_bytes", result.input_bytes).member("output_bytes", result.output_bytes);
  json.member("sha256", result.sha256);
  write_parity(json, result.parity);
  write_steps(json, result.steps);
}

void write_tasks(JsonWriter& json, const Plan& plan, const PlanStatus& status) {
  json.key("tasks").begin_array();
  for (const Task& task : plan.tasks) {
    const TaskStatus& its = status.tasks[task.index];
    json.begin_object().member("index", task.index).member("id", task.id);
    json.member("input", task.input).member("output", task.output);
    json.member("state", kTaskStates[static_cast<size_t>(its.state)]);
    write_result(json, its);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string report_json(const Report& report) {
  JsonWriter json;
  json.begin_object();
  write_plan(json, *report.plan);
  write_counts(json, report.status);
  write_totals(json, report);
  write_failures(json, report.failures);
  write_hosts(json, report);
  write_tasks(json, *report.plan, report.status);
  json.end_object();
  return json.take();
}

std::string status_json(const Plan& plan, const PlanStatus& status) {
  JsonWriter json;
  json.begin_object();
  write_plan(json, plan);
  write_counts(json, status);
  write_tasks(json, plan, status);
  json.end_object();
  return json.take();
}

}  // namespace ferry::batch
