// Reads numbers and flags out of one JSON object, strictly: a value of the wrong kind or out of
// range is an error that names the key. A null counts as absent, as in transformers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry {

struct IntRange {
  int64_t min, max;  // inclusive
};
struct FloatRange {
  double min, max;  // inclusive
};

class JsonFields {
 public:
  // `object` must outlive this; `name` begins the messages; `path` precedes keys in them ("", or
  // "text_config.").
  JsonFields(const nlohmann::json& object, std::string name, std::string path)
      : object_(&object), name_(std::move(name)), path_(std::move(path)) {}

  // nullptr where the key is absent or null.
  const nlohmann::json* find(std::string_view key) const;

  Result<std::optional<int64_t>> integer(std::string_view key, IntRange range) const;
  Result<std::optional<double>> number(std::string_view key, FloatRange range) const;
  Result<std::optional<bool>> flag(std::string_view key) const;
  Result<std::optional<std::string>> text(std::string_view key) const;
  // kBadInput where the key is absent.
  Result<int64_t> required(std::string_view key, IntRange range) const;
  Result<int64_t> integer_or(std::string_view key, IntRange range, int64_t otherwise) const;
  Result<double> number_or(std::string_view key, FloatRange range, double otherwise) const;
  Result<bool> flag_or(std::string_view key, bool otherwise) const;
  // A list of integers, or one integer.
  Result<std::optional<std::vector<int64_t>>> integers(std::string_view key, IntRange range) const;
  Result<std::optional<std::vector<double>>> numbers(std::string_view key, FloatRange range) const;
  // The object under `key`.
  Result<std::optional<JsonFields>> object(std::string_view key) const;

  // "NAME: 'path.key' WHAT" as kBadInput, and as another error.
  tl::unexpected<Error> bad(std::string_view key, std::string_view what) const;
  tl::unexpected<Error> error(ErrorCode code, std::string_view key, std::string_view what) const;

 private:
  Result<int64_t> checked_integer(const nlohmann::json& value, std::string_view key,
                                  IntRange range) const;
  Result<double> checked_number(const nlohmann::json& value, std::string_view key,
                                FloatRange range) const;

  const nlohmann::json* object_;
  std::string name_, path_;
};

}  // namespace ferry
