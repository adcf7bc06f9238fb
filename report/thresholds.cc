#include "report/thresholds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::report {

using nlohmann::json;

struct Quantity {
  std::string_view field;
  std::string_view unit;
  bool at_least;
  double (*measure)(const GenerationStats&);
};

namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;
constexpr std::string_view kMaxBytes = "max_bytes";
constexpr std::string_view kTotal = "total";
constexpr std::string_view kExpectText = "expect_text";

double milliseconds(Nanoseconds time) { return seconds(time) * 1000; }

constexpr Quantity kQuantities[] = {
    {"cpu_min_prefill_tokens_per_second", "tokens/s", true,
     [](const GenerationStats& s) {
       return token_rate(s.prompt_tokens, seconds(s.prompt_eval_end - s.inference_start));
     }},
    {"cpu_min_decode_tokens_per_second", "tokens/s", true,
     [](const GenerationStats& s) {
       return token_rate(s.generated_tokens, seconds(s.inference_end - s.prompt_eval_end));
     }},
    {"cpu_max_time_to_first_token_ms", "ms", false,
     [](const GenerationStats& s) { return milliseconds(s.prompt_eval_end - s.inference_start); }},
    {"cpu_max_load_ms", "ms", false,
     [](const GenerationStats& s) { return milliseconds(s.load_end - s.load_start); }},
    {"cpu_max_peak_rss_mib", "MiB", false,
     [](const GenerationStats& s) { return static_cast<double>(s.peak_rss) / (1 << 20); }},
};

std::string max_bytes_field(const std::string& part) {
  return fmt::format("{}.{}", kMaxBytes, part);
}

// Returns the bytes of the files of one component, or of the bundle. A file that several components
// share counts in each of them.
uint64_t bytes_of(const packer::Manifest& manifest, const std::string& part) {
  const auto sum = [&](const auto& counts) {
    uint64_t bytes = 0;
    for (const packer::ManifestFile& file : manifest.files) {
      if (counts(file.path)) bytes += file.bytes;
    }
    return bytes;
  };
  if (part == kTotal) {
    const uint64_t files = sum([](const std::string&) { return true; });
    // Programs that were opened without a bundle have no manifest file.
    return manifest.version == 0 ? files : files + packer::write_manifest(manifest).size();
  }
  std::set<std::string> files;
  for (const packer::ManifestProgram& program : manifest.find(part)->programs) {
    files.insert(program.file);
    files.insert(program.data_files.begin(), program.data_files.end());
  }
  return sum([&](const std::string& path) { return files.contains(path); });
}

}  // namespace

class Thresholds::Parser {
 public:
  explicit Parser(const std::string& name) { out_.name_ = name; }

  Result<Thresholds> parse(const json& document) {
    if (!document.is_object()) return refuse("the document is not an object");
    if (document.empty()) return refuse("there are no thresholds in it");
    for (const auto& [field, value] : document.items()) {
      FERRY_RETURN_IF_ERROR(take_field(field, value));
    }
    return std::move(out_);
  }

 private:
  Failure refuse(const std::string& why) const {
    return bad_input(fmt::format("{}: {}", out_.name_, why));
  }

  Status take_field(const std::string& field, const json& value) {
    if (field == kMaxBytes) return take_max_bytes(value);
    if (field == kExpectText) return take_texts(value);
    const auto quantity = std::ranges::find(kQuantities, field, &Quantity::field);
    if (quantity == std::end(kQuantities)) {
      return refuse(fmt::format("unknown field {}", quoted(field)));
    }
    if (!value.is_number() || value.get<double>() < 0) {
      return refuse(fmt::format("{} is not a number of 0 or more", field));
    }
    out_.numbers_.push_back({quantity, value.get<double>()});
    return {};
  }

  Status take_max_bytes(const json& value) {
    if (!value.is_object() || value.empty()) {
      return refuse(fmt::format("{} is not an object of components and their bytes", kMaxBytes));
    }
    for (const auto& [part, bytes] : value.items()) {
      if (!bytes.is_number_unsigned()) {
        return refuse(
            fmt::format("{} is not a whole number of 0 or more", printable(max_bytes_field(part))));
      }
      out_.max_bytes_[part] = bytes.get<uint64_t>();
    }
    return {};
  }

  Status take_texts(const json& value) {
    const json list = value.is_array() ? value : json::array({value});
    const auto is_text = [](const json& text) { return text.is_string() && text != ""; };
    if (list.empty() || !std::ranges::all_of(list, is_text)) {
      return refuse(
          fmt::format("{} is not a text or a list of texts, none of them empty", kExpectText));
    }
    out_.texts_ = list.get<std::vector<std::string>>();
    return {};
  }

  Thresholds out_;
};

Result<Thresholds> Thresholds::load(const std::string& path) {
  return parse(FERRY_TRY(read_text_file(path, kMaxFileBytes)), printable(path));
}

Result<Thresholds> Thresholds::parse(std::string_view text, const std::string& name) {
  return Parser(name).parse(FERRY_TRY(parse_json(text, name)));
}

Status Thresholds::check_components(const packer::Manifest& manifest) const {
  for (const auto& [part, limit] : max_bytes_) {
    if (part == kTotal || manifest.find(part) != nullptr) continue;
    std::vector<std::string> roles;
    for (const packer::ManifestComponent& component : manifest.components) {
      roles.push_back(printable(component.role));
    }
    return bad_input(fmt::format("{}: {}: the bundle has no such component; it has {}", name_,
                                 printable(max_bytes_field(part)), fmt::join(roles, ", ")));
  }
  return {};
}

std::vector<Judgement> Thresholds::judge(const GenerationStats& stats,
                                         const packer::Manifest& manifest,
                                         std::string_view generated) const {
  std::vector<Judgement> all;
  for (const auto& [quantity, limit] : numbers_) {
    const double value = quantity->measure(stats);
    const bool met = quantity->at_least ? value >= limit : value <= limit;
    all.push_back(
        {std::string(quantity->field), met, value, limit, quantity->at_least, quantity->unit});
  }
  for (const auto& [part, limit] : max_bytes_) {
    const uint64_t bytes = bytes_of(manifest, part);
    all.push_back({max_bytes_field(part), bytes <= limit, static_cast<double>(bytes),
                   static_cast<double>(limit), false, "bytes"});
  }
  for (const std::string& text : texts_) {
    Judgement judgement = {.field = std::string(kExpectText), .text = text};
    judgement.met = generated.find(text) != std::string_view::npos;
    all.push_back(std::move(judgement));
  }
  return all;
}

}  // namespace ferry::report
