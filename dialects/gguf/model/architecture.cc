#include "dialects/gguf/model/architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "converters/family.h"

namespace ferry::converters {
namespace {

const std::vector<GgufArchitecture>& architectures() {
  static const std::vector<GgufArchitecture> all = [] {
    std::vector<GgufArchitecture> rows;
    for (const FamilySpec* family : all_families()) {
      for (GgufArchitecture row : family->gguf) {
        if (row.model_type.empty()) row.model_type = family->name();
        rows.push_back(std::move(row));
      }
    }
    for (const FamilySpec* family : all_families()) {
      for (GgufArchitecture& row : rows) {
        if (row.name == family->gguf_shared) row.other_types.push_back(family->name());
      }
    }
    return rows;
  }();
  return all;
}

// A key that readers of GGUF obey in some architectures.
struct UnreadKey {
  std::string_view key;  // behind "ARCHITECTURE."
  double neutral;        // with this value it changes nothing; true is 1
  double absent = 0;     // this value changes nothing either: readers take it for no value
  // Architectures in which Ferry reads the key, or to which alone it means something.
  std::string_view read_by = {}, only = {};
};

constexpr std::string_view kGrouped =
    "afmoe deepseek2 dots1 exaone-moe mimo2 glm4moe lfm2moe nemotron_h_moe";
constexpr std::string_view kGranites = "granite granitemoe granitehybrid";

constexpr UnreadKey kUnread[] = {
    {.key = "attention.causal",
     .neutral = 1,
     .absent = 1,
     .read_by = "bert nomic-bert jina-bert-v3 modern-bert eurobert gemma-embedding"},
    {.key = "attention.scale", .neutral = 0, .read_by = kGranites},
    {.key = "embedding_scale", .neutral = 1, .read_by = kGranites},
    {.key = "residual_scale", .neutral = 1, .read_by = kGranites},
    {.key = "logit_scale",
     .neutral = 1,
     .read_by = "granite granitemoe granitehybrid command-r cohere2 cohere2moe"},
    {.key = "attn_logit_softcapping", .neutral = 0, .read_by = "gemma2"},
    {.key = "final_logit_softcapping", .neutral = 0, .read_by = "gemma2 gemma3 gemma3n gemma4"},
    {.key = "router_logit_softcapping", .neutral = 0},
    {.key = "attention.clamp_kqv", .neutral = 0, .read_by = "dbrx mpt olmo"},
    {.key = "attention.max_alibi_bias", .neutral = 0, .read_by = "mpt"},
    {.key = "attention.output_scale", .neutral = 1},
    {.key = "attention.value_scale", .neutral = 1, .read_by = "mimo2"},
    {.key = "attention.temperature_scale", .neutral = 0, .read_by = "mistral3"},
    {.key = "attention.temperature_length", .neutral = 0},
    {.key = "attention.rope_pattern", .neutral = 0},
    {.key = "attention.key_length_swa", .neutral = 0, .read_by = "gemma4"},
    {.key = "attention.value_length_swa", .neutral = 0, .read_by = "gemma4"},
    {.key = "attention.shared_kv_layers", .neutral = 0, .read_by = "gemma3n gemma4"},
    {.key = "expert_weights_scale", .neutral = 1, .read_by = kGrouped},
    {.key = "expert_group_count", .neutral = 1, .read_by = kGrouped},
    {.key = "expert_group_scale", .neutral = 1},
    {.key = "experts_per_group", .neutral = 0},
    {.key = "num_loops", .neutral = 1},
    {.key = "rope.dimension_sections", .neutral = 0, .only = "glm4"},
};

// Whether `list` has `word`; its words are separated by blanks.
bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::string_view first = list.substr(0, list.find(' '));
    if (first == word) return true;
    list.remove_prefix(std::min(list.size(), first.size() + 1));
  }
  return false;
}

}  // namespace

std::vector<const GgufArchitecture*> find_gguf_architectures(std::string_view name) {
  std::vector<const GgufArchitecture*> found;
  for (const GgufArchitecture& architecture : architectures()) {
    if (architecture.name == name) found.push_back(&architecture);
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const GgufArchitecture* one) { return one->sign != GgufSign::kNone; });
  return found;
}

const GgufArchitecture* gguf_architecture_of(const ModelConfig& config) {
  const GgufArchitecture* found = nullptr;
  for (const GgufArchitecture& architecture : architectures()) {
    const bool of_model = architecture.model_type == config.text_type ||
                          std::ranges::count(architecture.other_types, config.text_type) > 0;
    const bool writes = architecture.writes == nullptr || architecture.writes(config);
    if (architecture.keys.empty() || !of_model || !writes) continue;
    if (architecture.wrapper == config.model_type) return &architecture;
    if (architecture.wrapper.empty() && found == nullptr) found = &architecture;
  }
  return found;
}

std::string gguf_architecture_names() {
  std::set<std::string_view> names;
  for (const GgufArchitecture& architecture : architectures()) names.insert(architecture.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Status refuse_unread_keys(const GgufKeys& keys, const GgufArchitecture& architecture) {
  for (const UnreadKey& row : kUnread) {
    const nlohmann::json* value = keys.fields.find(keys.name(row.key));
    if (value == nullptr || has_word(row.read_by, architecture.name)) continue;
    if (!row.only.empty() && row.only != architecture.name) continue;
    const bool flag = value->is_boolean();
    if (!flag && !value->is_number()) return keys.unsupported(row.key, "is not a number");
    const double number = flag ? (value->get<bool>() ? 1.0 : 0.0) : value->get<double>();
    if (number == row.neutral || number == row.absent) continue;
    return keys.unsupported(
        row.key, fmt::format("is {}: not supported in this architecture", value->dump()));
  }
  return {};
}

}  // namespace ferry::converters
