#include "audit_document.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "core/json_writer.h"

namespace ferry::pages {
namespace {

struct Item {
  std::string kind;
  std::string name;
  std::string component;
  int layer;  // -1: none
  std::string dtype;
  Shape shape;
  int64_t bytes;
};

Item weight(std::string name, std::string component, int layer, Shape shape) {
  int64_t bytes = 2;
  for (const int64_t n : shape) bytes *= n;
  return {.kind = "weight",
          .name = std::move(name),
          .component = std::move(component),
          .layer = layer,
          .dtype = "bf16",
          .shape = std::move(shape),
          .bytes = bytes};
}

Item other(std::string kind, std::string name, int64_t bytes) {
  return {.kind = std::move(kind),
          .name = std::move(name),
          .component = "files",
          .layer = -1,
          .dtype = "",
          .shape = {},
          .bytes = bytes};
}

void add_layer(std::vector<Item>& items, int layer, int experts) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  for (const char* part : {"q", "k", "v", "o"}) {
    items.push_back(weight(fmt::format("{}attention.w{}.weight", prefix, part),
                           fmt::format("attn.{}", part), layer, {64, 64}));
  }
  for (int expert = 0; expert < experts; ++expert) {
    for (const char* part : {"w1", "w2", "w3"}) {
      items.push_back(
          weight(fmt::format("{}feed_forward.experts.{}.{}.weight", prefix, expert, part),
                 "experts", layer, {96, 64}));
    }
  }
  if (experts > 0) return;
  items.push_back(weight(prefix + "feed_forward.w1.weight", "mlp.gate", layer, {192, 64}));
  items.push_back(weight(prefix + "feed_forward.w2.weight", "mlp.down", layer, {64, 192}));
}

std::vector<Item> items_for(const AuditDocument& options) {
  std::vector<Item> items = {other("header", "header", 512)};
  items.push_back(weight("tok_embeddings.weight", "embedding", -1, {1000, 64}));
  for (int layer = 0; layer < options.layers; ++layer) add_layer(items, layer, options.experts);
  items.push_back(other("manifest", "manifest.json", 4096));
  return items;
}

void write_items(JsonWriter& json, const std::vector<Item>& items) {
  int64_t offset = 0;
  json.key("items").begin_array();
  for (const Item& item : items) {
    const bool in_data = item.kind != "manifest";
    json.begin_object().member("file", in_data ? 0 : 1).member("offset", in_data ? offset : 0);
    json.member("bytes", item.bytes).member("kind", item.kind).member("name", item.name);
    json.member("component", item.component);
    if (item.layer >= 0) json.member("layer", item.layer);
    if (!item.shape.empty()) json.member("dtype", item.dtype).member("shape", item.shape);
    if (item.name == "tok_embeddings.weight") {
      json.key("tied").begin_array().value("output.weight").end_array();
    }
    json.end_object();
    offset += item.bytes;
  }
  json.end_array();
}

void write_view(JsonWriter& json, const char* name, const std::vector<Item>& items,
                std::string Item::*key) {
  std::map<std::string, std::pair<int64_t, int64_t>> sums;
  for (const Item& item : items) {
    sums[item.*key].first += item.bytes;
    ++sums[item.*key].second;
  }
  json.key(name).begin_array();
  for (const auto& [text, sum] : sums) {
    json.begin_object().member("key", text).member("bytes", sum.first).member("elements", 0);
    json.member("count", sum.second).end_object();
  }
  json.end_array();
}

void write_findings(JsonWriter& json, std::string_view name) {
  json.key("findings").begin_array().begin_object();
  json.member("id", "duplicate").member("severity", "warning").member("bytes", 8192);
  json.member("count", 2).member("message", name).member("remedy", "");
  json.key("items").begin_array().value("layers.0.attention.wk.weight").value(name).end_array();
  json.end_object().end_array();
}

void write_budget(JsonWriter& json, int64_t total) {
  json.key("budget").begin_object().member("passed", false).key("limits").begin_array();
  json.begin_object().member("name", "download").member("of", "total").member("unit", "bytes");
  json.member("size", total).member("limit", total - 1).member("over", 1).member("passed", false);
  json.end_object().end_array().end_object();
}

void write_change(JsonWriter& json, const char* change, const char* name, int64_t before,
                  int64_t after) {
  json.begin_object().member("change", change).member("name", name).member("kind", "weight");
  json.member("old", before).member("new", after).member("delta", after - before).end_object();
}

void write_diff(JsonWriter& json, int64_t total) {
  json.key("diff").begin_object();
  json.key("old").begin_object().member("name", "before").member("bytes", total + 4096);
  json.end_object().key("new").begin_object().member("name", "after").member("bytes", total);
  json.end_object().member("delta", -4096).member("compared", "size");
  json.key("equal").begin_object().member("count", 7).member("bytes", 70000).end_object();
  json.key("views").begin_object().end_object().key("rows").begin_array();
  write_change(json, "changed", "layers.0.attention.wq.weight", 16384, 8192);
  write_change(json, "new", "layers.1.attention.wq.weight", 0, 8192);
  write_change(json, "removed", "gone.weight", 4096, 0);
  json.end_array().end_object();
}

}  // namespace

int items_of(const AuditDocument& options) { return static_cast<int>(items_for(options).size()); }

std::string audit_document(const AuditDocument& options) {
  const std::vector<Item> items = items_for(options);
  int64_t total = 0;
  for (const Item& item : items) total += item.bytes;
  JsonWriter json;
  json.begin_object().member("ferry_audit", 1);
  json.key("target").begin_object().member("name", options.name).member("type", "bundle");
  json.member("bytes", total).member("model_type", "llama").end_object();
  json.key("totals").begin_object().member("bytes", total).member("elements", total / 2);
  json.member("files", 2).member("items", items.size()).member("tensors", items.size() - 2);
  json.member("unaccounted", 0).end_object();
  json.key("files").begin_array();
  json.begin_object().member("path", "model.ptd").member("bytes", total - 4096);
  json.member("type", "data").end_object().begin_object().member("path", "manifest.json");
  json.member("bytes", 4096).member("type", "manifest").end_object().end_array();
  json.key("rules").begin_array().end_array();
  write_items(json, items);
  json.key("views").begin_object();
  write_view(json, "kind", items, &Item::kind);
  write_view(json, "component", items, &Item::component);
  json.end_object().key("memory").null().key("account").null();
  write_findings(json, options.name);
  write_budget(json, total);
  options.diff ? write_diff(json, total) : static_cast<void>(json.key("diff").null());
  return json.end_object().take();
}

}  // namespace ferry::pages
