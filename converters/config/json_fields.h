// JsonFields: reads numbers and flags from a JSON object. A value of the wrong kind or out of range
// is an error that names the key. A null counts as absent.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::converters {

struct IntRange {
  int64_t min, max;  // inclusive
};
struct FloatRange {
  double min, max;  // inclusive
};

// Other names of a key. Readers ask for `key`; the object may state it under any of `stated`, and
// the first name that is present is used. Without names the object cannot state the key, which then
// has its default.
struct KeyNames {
  std::string_view key;
  std::array<std::string_view, 2> stated = {};  // empty: none
};

// The paths of the keys that readers asked for ("text_config.rope_scaling.factor").
using KeyLog = std::set<std::string, std::less<>>;

class JsonFields {
 public:
  // `object` must outlive this JsonFields. Messages begin with `name`; in them, `path` precedes the
  // keys ("" or "text_config.").
  JsonFields(const nlohmann::json& object, std::string name, std::string path)
      : object_(&object), name_(std::move(name)), path_(std::move(path)) {}

  // The arguments must outlive this JsonFields. `defaults` is an object with the values of absent
  // keys. A key that is present and null stays null.
  void set_defaults(const nlohmann::json& defaults) { defaults_ = &defaults; }
  void set_names(std::span<const KeyNames> names) { names_ = names; }
  void record_in(KeyLog& log) { log_ = &log; }

  // Returns nullptr if the key is absent or null.
  const nlohmann::json* find(std::string_view key) const;
  // Whether the key is in the object itself, null or not.
  bool states(std::string_view key) const;
  size_t size() const;  // keys of the object itself

  Result<std::optional<int64_t>> integer(std::string_view key, IntRange range) const;
  Result<std::optional<double>> number(std::string_view key, FloatRange range) const;
  Result<std::optional<bool>> flag(std::string_view key) const;
  Result<std::optional<std::string>> text(std::string_view key) const;
  // Returns kBadInput if the key is absent.
  Result<int64_t> required(std::string_view key, IntRange range) const;
  Result<int64_t> integer_or(std::string_view key, IntRange range, int64_t otherwise) const;
  Result<double> number_or(std::string_view key, FloatRange range, double otherwise) const;
  Result<bool> flag_or(std::string_view key, bool otherwise) const;
  // Reads a list of integers, or one integer as a list of one.
  Result<std::optional<std::vector<int64_t>>> integers(std::string_view key, IntRange range) const;
  Result<std::optional<std::vector<double>>> numbers(std::string_view key, FloatRange range) const;
  // Returns the object under `key`.
  Result<std::optional<JsonFields>> object(std::string_view key) const;
  // Returns the object `item`, which must be one of a list of this object; `place` names it
  // ("blocks[3]").
  JsonFields item(const nlohmann::json& item, std::string_view place) const;
  // Like object(), but the default takes the place of an absent key or a null.
  Result<std::optional<JsonFields>> object_or_default(std::string_view key) const;

  // bad() makes the error "NAME: 'path.key' WHAT" with kBadInput, error() with another code.
  Failure bad(std::string_view key, std::string_view what) const;
  Failure error(ErrorCode code, std::string_view key, std::string_view what) const;

 private:
  Result<int64_t> checked_integer(const nlohmann::json& value, std::string_view key,
                                  IntRange range) const;
  Result<double> checked_number(const nlohmann::json& value, std::string_view key,
                                FloatRange range) const;

  // Returns the value that the object itself has, a null included; nullptr where the key is absent.
  const nlohmann::json* stated(std::string_view key) const;
  // Returns the name under which the object has `key`; the first name where it has none.
  std::string_view shown_name(std::string_view key) const;
  const KeyNames* names_of(std::string_view key) const;

  const nlohmann::json* object_;
  const nlohmann::json* defaults_ = nullptr;
  std::span<const KeyNames> names_ = {};
  KeyLog* log_ = nullptr;
  std::string name_, path_;
};

// Returns the paths of those keys of `object`, at `path` and below, that are not in `log`, not null
// and not inert: "sliding_window", "rope_scaling.finetuned". An object of which no key was asked
// for counts as one key.
std::vector<std::string> unused_keys(const nlohmann::json& object, const std::string& path,
                                     const KeyLog& log, bool (*is_inert)(std::string_view));

// Ranges of the numbers in a config: far above those of any model, and low enough that products of
// a few sizes fit into 64 bits.
constexpr IntRange kSizeRange = {1, int64_t{1} << 24};
constexpr IntRange kLayerRange = {1, 1024};
constexpr IntRange kHeadRange = {1, 4096};
constexpr IntRange kHeadDimRange = {1, 1 << 16};
constexpr IntRange kPositionRange = {1, INT32_MAX};
constexpr IntRange kConvRange = {1, 64};
constexpr IntRange kExpertRange = {0, 1 << 12};
constexpr IntRange kTokenRange = {INT32_MIN, INT32_MAX};
constexpr FloatRange kEpsRange = {1e-30, 1.0};
constexpr FloatRange kThetaRange = {1e-3, 1e15};
constexpr FloatRange kFactorRange = {1e-3, 1e6};
constexpr FloatRange kScaleRange = {1e-6, 1e6};
constexpr FloatRange kPartialRange = {1e-3, 1.0};

}  // namespace ferry::converters
