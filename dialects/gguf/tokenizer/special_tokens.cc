#include "dialects/gguf/tokenizer/special_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace ferry::text {
namespace {

using nlohmann::json;

constexpr int kMaxNormalizerDepth = 8;

// Returns the member of an object; null where there is none or `value` is no object.
const json& member(const json& value, std::string_view key) {
  static const json nothing;
  if (!value.is_object()) return nothing;
  const auto at = value.find(key);
  return at == value.end() ? nothing : *at;
}

// Returns the id of {"SpecialToken": {"id": ...}}; null for other pieces of a template.
const json& special_id(const json& piece) { return member(member(piece, "SpecialToken"), "id"); }
const json& sequence_id(const json& piece) { return member(member(piece, "Sequence"), "id"); }

// gguf-py is Python: null, empty texts and empty objects count as absent.
bool is_set(const json& value) {
  return !value.is_null() && !((value.is_string() && value.get_ref<const std::string&>().empty()) ||
                               (value.is_structured() && value.empty()));
}

std::optional<int64_t> as_id(const json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > UINT32_MAX) return std::nullopt;
  if (!value.is_number_integer() || value.get<int64_t>() < 0) return std::nullopt;
  return value.get<int64_t>();
}

// Returns the name of an id's key, which may differ from that in tokenizer_config.json.
std::string id_key(std::string_view type) {
  std::string_view name = type;
  if (type == "unk") name = "unknown";
  if (type == "sep") name = "seperator";  // the format's spelling
  if (type == "pad") name = "padding";
  return fmt::format("tokenizer.ggml.{}_token_id", name);
}

}  // namespace

GgufSpecialTokens::GgufSpecialTokens(const json& tokenizer, json tokenizer_config,
                                     const json& config, const json& chat_templates,
                                     int64_t id_bound)
    : config_(std::move(tokenizer_config)), id_bound_(id_bound), types_{"bos", "eos", "unk", "sep",
                                                                        "pad", "cls", "mask"} {
  bos_ = member(config_, "bos_token");
  cls_ = member(config_, "cls_token");
  eos_ = member(config_, "eos_token");
  sep_ = member(config_, "sep_token");
  if (tokenizer.is_object()) {
    read_normalizer(member(tokenizer, "normalizer"), 0);
    if (is_set(config_) && !is_set(bos_) && is_set(cls_)) config_["bos_token"] = bos_ = cls_;
    if (is_set(config_) && !is_set(eos_) && is_set(sep_)) config_["eos_token"] = eos_ = sep_;
    read_post_processor(member(tokenizer, "post_processor"));
  }
  if (is_set(config_)) {
    const auto own = config_.find("chat_template");
    templates_ = own != config_.end() ? *own : chat_templates;
    read_tokenizer_config(member(tokenizer, "added_tokens"));
  }
  read_config(config);
}

void GgufSpecialTokens::set(std::string_view type, int64_t id) {
  const bool known =
      std::ranges::any_of(ids_, [&](const auto& item) { return item.first == type; });
  if (!known && id < id_bound_) ids_.emplace_back(type, id);
}

bool GgufSpecialTokens::has_flag(std::string_view type) const {
  return std::ranges::any_of(flags_, [&](const auto& item) { return item.first == type; });
}

void GgufSpecialTokens::set_flag(std::string_view type, bool value) {
  const auto at =
      std::ranges::find_if(flags_, [&](const auto& item) { return item.first == type; });
  if (at == flags_.end()) {
    flags_.emplace_back(type, value);
  } else {
    at->second = value;
  }
}

void GgufSpecialTokens::read_normalizer(const json& normalizer, int depth) {
  const json& type = member(normalizer, "type");
  const auto set_to = [&](const char* name, const json& value) {
    if (!value.is_boolean()) return;
    std::erase_if(normalizer_, [&](const auto& item) { return item.first == name; });
    normalizer_.emplace_back(name, value.get<bool>());
  };
  if (type == "Lowercase") set_to("lowercase", true);
  if (type == "NFC") set_to("nfc", true);
  if (type == "StripAccents") set_to("strip_accents", true);
  if (type == "BertNormalizer") {
    set_to("lowercase", member(normalizer, "lowercase"));
    set_to("strip_accents", member(normalizer, "strip_accents"));
  }
  if (type != "Sequence" || depth == kMaxNormalizerDepth) return;
  for (const json& step : member(normalizer, "normalizers")) read_normalizer(step, depth + 1);
}

void GgufSpecialTokens::read_post_processor(const json& post_processor) {
  if (!post_processor.is_object()) return;
  const json& list = member(post_processor, "processors");
  const json processors = list.is_array() ? list : json::array({post_processor});
  for (const json& processor : processors) {
    const json& type = member(processor, "type");
    if (type == "ByteLevel") {
      if (!has_flag("bos")) set_flag("bos", false);
      if (!has_flag("eos")) set_flag("eos", false);
    } else if (type == "RobertaProcessing") {
      read_roberta(processor);
    } else if (type == "TemplateProcessing") {
      read_template(processor);
    }
  }
}

// The processor names the tokens of cls and sep, [text, id] each, where nothing else does.
void GgufSpecialTokens::read_roberta(const json& processor) {
  for (const char* type : {"bos", "eos", "sep"}) set_flag(type, true);
  if (!is_set(config_)) return;
  const auto named = [&](const char* name, const json& otherwise) {
    const json& stated = member(processor, name);
    return stated.is_array() && !stated.empty() ? stated.front() : otherwise;
  };
  if (!is_set(cls_)) config_["cls_token"] = cls_ = named("cls", bos_);
  if (!is_set(sep_)) config_["sep_token"] = sep_ = named("sep", eos_);
}

// The token that begins every text is bos, whatever its name. The token that ends every text is
// eos, and the eos of the config is then the end of a turn.
void GgufSpecialTokens::read_template(const json& processor) {
  const json& single = member(processor, "single");
  json first, last;
  if (single.is_array() && single.size() > 1) {
    first = special_id(single.front());
    last = special_id(single.back());
    if (is_set(first)) read_first(first);
    if (is_set(last)) read_last(last);
  }
  const json& pair = member(processor, "pair");
  if (pair.is_array() && !pair.empty()) read_pair(pair, first, last);
}

void GgufSpecialTokens::read_first(const json& first) {
  if (!is_set(config_)) {
    bos_ = first;
  } else if (first != bos_ && first != cls_) {
    if (!is_set(bos_)) config_["bos_token"] = bos_ = first;
    if (!is_set(cls_)) config_["cls_token"] = cls_ = first;
  }
  set_flag("bos", first == bos_ || first == cls_);
}

void GgufSpecialTokens::read_last(const json& last) {
  if (is_set(config_) && last != eos_) {
    for (const char* type : {"eot", "eom"}) {
      if (std::ranges::count(types_, type) > 0) continue;
      types_.emplace_back(type);
      config_[fmt::format("{}_token", type)] = eos_;
      break;
    }
    config_["eos_token"] = last;
  }
  eos_ = last;
  set_flag("eos", true);
}

// Reads whether special tokens separate A and B: A, one or two special tokens, B.
void GgufSpecialTokens::read_pair(const json& pair, const json& first, const json& last) {
  std::vector<json> pieces(pair.begin(), pair.end());
  if (is_set(last) && special_id(pieces.back()) == last) pieces.pop_back();
  if (is_set(first) && !pieces.empty() && special_id(pieces.front()) == first) {
    pieces.erase(pieces.begin());
  }
  if (pieces.size() < 3) return;
  if (sequence_id(pieces.front()) != "A" || sequence_id(pieces.back()) != "B") return;
  const auto separates = [&](const json& piece) {
    const json& id = special_id(piece);
    return is_set(id) && (id == sep_ || id == eos_);
  };
  bool add_sep = separates(pieces[1]) && !is_set(last);
  if (pieces.size() == 4 && separates(pieces[2])) add_sep = true;
  set_flag("sep", add_sep);
  if (add_sep && !is_set(sep_) && is_set(config_)) config_["sep_token"] = eos_;
}

void GgufSpecialTokens::read_tokenizer_config(const json& added_tokens) {
  for (const std::string& type : types_) {
    const json& add = member(config_, fmt::format("add_{}_token", type));
    if (add.is_boolean() && !has_flag(type)) set_flag(type, add.get<bool>());
    const json& entry = member(config_, type + "_token");
    const json& content = entry.is_object() ? member(entry, "content") : entry;
    if (!content.is_string() || !added_tokens.is_array()) continue;
    const auto token = std::ranges::find_if(
        added_tokens, [&](const json& added) { return member(added, "content") == content; });
    if (token == added_tokens.end()) continue;
    if (const auto id = as_id(member(*token, "id"))) set(type, *id);
  }
}

void GgufSpecialTokens::read_config(const json& config) {
  for (const std::string& type : types_) {
    const std::string key = type + "_token_id";
    const json& own = member(config, key);
    const auto id = as_id(own.is_null() ? member(member(config, "text_config"), key) : own);
    if (id) set(type, *id);
  }
}

void GgufSpecialTokens::write(GgufKeyList& keys) const {
  for (const auto& [type, id] : ids_) {
    // The format has no key for cls, which begins a text as bos.
    if (type != "cls") keys.set(id_key(type), static_cast<uint32_t>(id));
  }
  for (const auto& [type, value] : flags_) {
    // The format has the key for these types only.
    if (type != "bos" && type != "eos" && type != "sep") continue;
    keys.set(fmt::format("tokenizer.ggml.add_{}_token", type), value);
  }
  write_templates(keys);
  for (const char* name : {"nfc", "lowercase", "strip_accents"}) {
    for (const auto& [flag, value] : normalizer_) {
      if (flag == name) keys.set(fmt::format("tokenizer.ggml.normalizer.{}", name), value);
    }
  }
}

void GgufSpecialTokens::write_templates(GgufKeyList& keys) const {
  constexpr const char* kKey = "tokenizer.chat_template";
  if (templates_.is_string()) return keys.set(kKey, templates_.get<std::string>());
  if (!templates_.is_array()) return;
  std::vector<std::string> names;
  std::string plain;
  for (const json& choice : templates_) {
    const json& given = member(choice, "name");
    const json& text = member(choice, "template");
    if (!given.is_string() || !text.is_string()) continue;
    std::string name = given.get<std::string>();
    for (char& c : name) {
      const bool plain_ascii =
          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (!plain_ascii) c = '_';
    }
    if (name.empty()) continue;
    if (name == "default") {
      plain = text.get<std::string>();
      continue;
    }
    keys.set(fmt::format("{}.{}", kKey, name), text.get<std::string>());
    if (std::ranges::count(names, name) == 0) names.push_back(name);
  }
  keys.set("tokenizer.chat_templates", std::move(names));
  keys.set(kKey, std::move(plain));
}

}  // namespace ferry::text
