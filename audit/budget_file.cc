#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "audit/limit_text.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::audit {
namespace {

using nlohmann::json;

class BudgetParser {
 public:
  explicit BudgetParser(const std::string& name) : name_(name) {}

  Result<std::vector<Limit>> parse(const json& document) {
    if (!document.is_object()) return refuse("the document is not an object");
    for (const auto& [field, value] : document.items()) {
      if (field == "limits") continue;
      if (field != "ferry_budget") return refuse(fmt::format("unknown field {}", quoted(field)));
      if (value != 1) return refuse("ferry_budget is not 1, the only version");
    }
    if (!document.contains("ferry_budget")) return refuse("no field 'ferry_budget'");
    const auto limits = document.find("limits");
    if (limits == document.end() || !limits->is_array() || limits->empty()) {
      return refuse("limits is not a list of one limit or more");
    }
    std::vector<Limit> out;
    for (const json& limit : *limits) {
      where_ = fmt::format("limits[{}]", out.size());
      out.push_back(FERRY_TRY(parse_limit(limit)));
    }
    return out;
  }

 private:
  Failure refuse(const std::string& why) const {
    return bad_input(fmt::format("{}: {}{}", name_, where_.empty() ? "" : where_ + ": ", why));
  }

  Result<Limit> parse_limit(const json& object) {
    if (!object.is_object()) return refuse("not an object");
    Limit limit;
    int sizes = 0;
    for (const auto& [field, value] : object.items()) {
      if (field == "name" || field == "of") {
        if (!value.is_string()) return refuse(field + " is not a text");
        (field == "name" ? limit.name : limit.of) = value.get<std::string>();
        continue;
      }
      FERRY_RETURN_IF_ERROR(take_size(limit, field, value));
      ++sizes;
    }
    if (limit.of.empty()) return refuse("no field 'of'");
    if (const std::string what = problem_with(limit.of); !what.empty()) {
      return refuse(fmt::format("of {}: {}", quoted(limit.of), what));
    }
    if (sizes != 1) {
      return refuse(
          "expected one of max, max_bytes, max_percent, max_growth, max_growth_bytes, "
          "max_growth_percent");
    }
    const bool memory = limit.of == "state" || limit.of == "activations" || limit.of == "memory";
    if (limit.percent && memory && !limit.of_growth) {
      return refuse("memory has no percentage of the files");
    }
    if (limit.name.empty()) limit.name = limit.of;
    return limit;
  }

  Status take_size(Limit& limit, std::string_view field, const json& value) {
    const std::string name(field);
    constexpr std::string_view kGrowth = "max_growth";
    limit.of_growth = field.starts_with(kGrowth);
    field.remove_prefix(std::min(field.size(), limit.of_growth ? kGrowth.size() : 3));
    if (!name.starts_with("max")) return refuse(fmt::format("unknown field {}", quoted(name)));
    if (field.empty()) {
      const bool read =
          value.is_string() ? set_limit(limit, value.get<std::string>()) : set_bytes(limit, value);
      return read ? Status()
                  : refuse(name + " is neither bytes, a size with a unit, nor a percentage");
    }
    if (field == "_bytes") {
      return set_bytes(limit, value) ? Status()
                                     : refuse(name + " is not a whole number of 0 or more");
    }
    if (field != "_percent") return refuse(fmt::format("unknown field {}", quoted(name)));
    if (!value.is_number() || !(value.get<double>() >= 0) || !std::isfinite(value.get<double>())) {
      return refuse(name + " is not a number of 0 or more");
    }
    limit.percent = value.get<double>();
    limit.stated = fmt::format("{} %", *limit.percent);
    return {};
  }

  static bool set_bytes(Limit& limit, const json& value) {
    constexpr uint64_t kLargest = uint64_t{1} << 62;
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kLargest) return false;
    limit.bytes = value.get<uint64_t>();
    limit.stated = fmt::format("{} bytes", *limit.bytes);
    return true;
  }

  const std::string& name_;
  std::string where_;
};

}  // namespace

Result<std::vector<Limit>> parse_budget(std::string_view text, const std::string& name) {
  const json document = FERRY_TRY(parse_json(text, name));
  return BudgetParser(name).parse(document);
}

}  // namespace ferry::audit
