// Source: sentence-transformers 5, models/Pooling.py, Dense.py, Normalize.py, Transformer.py.
#include "converters/config/sentence_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "converters/config/json_fields.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

using SentenceJson = nlohmann::json;
using Pooling = SentenceConfig::Pooling;

constexpr const char* kModules = "modules.json";

struct PoolingMode {
  std::string_view name, flag;
  Pooling pooling;
};
// Several flags give their vectors in this order.
constexpr PoolingMode kPoolings[] = {
    {"cls", "pooling_mode_cls_token", Pooling::kFirst},
    {"max", "pooling_mode_max_tokens", Pooling::kMax},
    {"mean", "pooling_mode_mean_tokens", Pooling::kMean},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::kRootMean},
    {"weightedmean", "pooling_mode_weightedmean_tokens", Pooling::kWeightedMean},
    {"lasttoken", "pooling_mode_lasttoken", Pooling::kLast},
};

struct FunctionName {
  std::string_view name;
  SentenceModule::Function function;
};
constexpr FunctionName kFunctions[] = {
    {"torch.nn.modules.linear.Identity", SentenceModule::Function::kIdentity},
    {"torch.nn.modules.activation.Tanh", SentenceModule::Function::kTanh},
    {"torch.nn.modules.activation.ReLU", SentenceModule::Function::kRelu},
    {"torch.nn.modules.activation.GELU", SentenceModule::Function::kGelu},
    {"torch.nn.modules.activation.Sigmoid", SentenceModule::Function::kSigmoid},
    {"torch.nn.modules.activation.SiLU", SentenceModule::Function::kSilu},
};

// The names that releases have given the file of the Transformer module, in the order of
// preference.
constexpr const char* kTransformers[] = {
    "sentence_bert_config.json",       "sentence_roberta_config.json",
    "sentence_distilbert_config.json", "sentence_camembert_config.json",
    "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json"};

// Keys that Ferry follows or checks, or that change no value.
constexpr std::string_view kTransformerKeys[] = {
    "max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name"};
// Keys with the one value that is supported.
constexpr std::pair<const char*, const char*> kTransformerValues[] = {
    {"transformer_task", R"("feature-extraction")"},
    {"modality_config",
     R"({"text":{"method":"forward","method_output_name":"last_hidden_state"}})"},
    {"module_output_name", R"("token_embeddings")"},
};
// Keys of a CrossEncoder with the one value that is supported.
constexpr std::pair<const char*, const char*> kScoringValues[] = {
    {"transformer_task", R"("sequence-classification")"},
    {"modality_config", R"({"text":{"method":"forward","method_output_name":"logits"}})"},
    {"module_output_name", R"("scores")"},
};
constexpr std::string_view kPoolingKeys[] = {"word_embedding_dimension",
                                             "embedding_dimension",
                                             "include_prompt",
                                             "pooling_mode",
                                             "pooling_mode_mean_tokens",
                                             "pooling_mode_cls_token",
                                             "pooling_mode_lasttoken",
                                             "pooling_mode_max_tokens",
                                             "pooling_mode_mean_sqrt_len_tokens",
                                             "pooling_mode_weightedmean_tokens"};
constexpr std::string_view kDenseKeys[] = {
    "in_features",         "out_features",      "bias",
    "activation_function", "module_input_name", "module_output_name"};

// Whether a setting is the usual one for texts. What modality_config says of images and sounds does
// not concern them; with an entry for messages every text becomes a chat.
bool is_usual_for_texts(const SentenceJson& stated, const SentenceJson& usual) {
  if (stated == usual) return true;
  if (!stated.is_object() || stated.contains("message")) return false;
  return stated.contains("text") && stated["text"] == usual["text"];
}

// Returns kUnsupported for a key that is not in `known`. Nulls and empty objects are settings that
// were not made.
Status check_keys(const SentenceJson& document, std::span<const std::string_view> known,
                  const JsonFields& fields) {
  for (const auto& [key, value] : document.items()) {
    const bool unset = value.is_null() || (value.is_object() && value.empty());
    if (unset || std::ranges::find(known, key) != known.end()) continue;
    return fields.error(ErrorCode::kUnsupported, key, "is not supported");
  }
  return {};
}

// The name of a folder must be plain, so that no path leads out of the checkpoint.
bool is_plain_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '-';
  });
}

Result<Pooling> pooling_called(const SentenceJson& name, const JsonFields& fields) {
  for (const PoolingMode& mode : kPoolings) {
    if (name == mode.name) return mode.pooling;
  }
  return fields.error(ErrorCode::kUnsupported, "pooling_mode", "is no pooling that is known");
}

class FolderReader {
 public:
  // `scores` says that the folder is that of a CrossEncoder.
  FolderReader(const FolderText& text, const std::string& folder, bool scores = false)
      : text_(text), folder_(folder), scores_(scores) {}

  Result<std::optional<SentenceConfig>> read();
  Result<std::optional<int64_t>> read_scoring();

 private:
  std::string shown(const std::string& path) const { return folder_ + "/" + path; }
  // Returns nullopt if there is no such file.
  Result<std::optional<SentenceJson>> json(const std::string& path) const;
  // Returns an object. It is an error if the file is missing.
  Result<SentenceJson> object(const std::string& path) const;
  Status add_module(const SentenceJson& entry, size_t index, SentenceConfig& out);
  Status read_transformer(const std::string& path, SentenceConfig& out) const;
  Result<std::optional<int64_t>> tokenizer_limit() const;
  Status read_settings(const SentenceJson& document, const std::string& name,
                       SentenceConfig& out) const;
  Result<std::vector<Pooling>> read_pooling(const std::string& path) const;
  Result<SentenceModule> read_dense(const std::string& path) const;

  const FolderText& text_;
  const std::string& folder_;
  const bool scores_;
  bool has_transformer_ = false, has_pooling_ = false;
};

Result<std::optional<SentenceJson>> FolderReader::json(const std::string& path) const {
  const std::optional<std::string> text = FERRY_TRY(text_(path));
  if (!text) return std::optional<SentenceJson>();
  return std::optional(FERRY_TRY(parse_json(*text, shown(path))));
}

Result<SentenceJson> FolderReader::object(const std::string& path) const {
  std::optional<SentenceJson> document = FERRY_TRY(json(path));
  if (!document) return bad_input(fmt::format("{}: is missing", shown(path)));
  if (!document->is_object()) return bad_input(shown(path) + ": not a JSON object");
  return *std::move(document);
}

Status FolderReader::read_transformer(const std::string& path, SentenceConfig& out) const {
  if (!path.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: the encoder is in the folder {}: only encoders beside this file "
                            "are supported",
                            shown(kModules), quoted(path)));
  }
  for (const char* name : kTransformers) {
    const std::optional<SentenceJson> document = FERRY_TRY(json(name));
    if (!document) continue;
    FERRY_RETURN_IF_ERROR(read_settings(*document, shown(name), out));
    break;
  }
  if (!out.max_tokens) out.max_tokens = FERRY_TRY(tokenizer_limit());
  return {};
}

// Without max_seq_length the tokenizer's limit counts. A file that knows no limit states a number
// that no text reaches.
Result<std::optional<int64_t>> FolderReader::tokenizer_limit() const {
  const std::optional<SentenceJson> document = FERRY_TRY(json("tokenizer_config.json"));
  if (!document || !document->is_object()) return std::optional<int64_t>();
  const auto stated = document->find("model_max_length");
  if (stated == document->end() || !stated->is_number()) return std::optional<int64_t>();
  const auto limit = stated->get<double>();
  const bool counts = limit >= 1 && limit <= static_cast<double>(kPositionRange.max);
  return counts ? std::optional(static_cast<int64_t>(limit)) : std::nullopt;
}

Status FolderReader::read_settings(const SentenceJson& document, const std::string& name,
                                   SentenceConfig& out) const {
  if (!document.is_object()) return bad_input(name + ": not a JSON object");
  const JsonFields fields(document, name, "");
  FERRY_RETURN_IF_ERROR(check_keys(document, kTransformerKeys, fields));
  out.max_tokens = FERRY_TRY(fields.integer("max_seq_length", kPositionRange));
  for (const auto& [key, usual] : scores_ ? kScoringValues : kTransformerValues) {
    const SentenceJson* stated = fields.find(key);
    if (stated == nullptr || is_usual_for_texts(*stated, SentenceJson::parse(usual))) continue;
    return fields.error(ErrorCode::kUnsupported, key, fmt::format("is not {}", usual));
  }
  if (!FERRY_TRY(fields.flag_or("do_lower_case", false))) return {};
  return fields.error(ErrorCode::kUnsupported, "do_lower_case",
                      "is true: texts that are put into lower case first are not supported");
}

Result<std::vector<Pooling>> FolderReader::read_pooling(const std::string& path) const {
  const SentenceJson document = FERRY_TRY(object(path));
  const JsonFields fields(document, shown(path), "");
  FERRY_RETURN_IF_ERROR(check_keys(document, kPoolingKeys, fields));
  for (const char* key : {"word_embedding_dimension", "embedding_dimension"}) {
    FERRY_TRY(fields.integer(key, kSizeRange));
  }
  if (!FERRY_TRY(fields.flag_or("include_prompt", true))) {
    return fields.error(ErrorCode::kUnsupported, "include_prompt",
                        "is false: a mean without the tokens of the prompt is not supported");
  }
  std::vector<Pooling> poolings;
  if (const SentenceJson* named = fields.find("pooling_mode")) {
    for (const SentenceJson& name : named->is_array() ? *named : SentenceJson::array({*named})) {
      poolings.push_back(FERRY_TRY(pooling_called(name, fields)));
    }
    const bool sane = !poolings.empty() && poolings.size() <= std::size(kPoolings);
    return sane ? Result<std::vector<Pooling>>(std::move(poolings))
                : fields.bad("pooling_mode", "is not a list of poolings");
  }
  for (const PoolingMode& mode : kPoolings) {
    if (FERRY_TRY(fields.flag_or(mode.flag, false))) poolings.push_back(mode.pooling);
  }
  if (poolings.empty()) poolings.push_back(Pooling::kMean);
  return poolings;
}

Result<SentenceModule> FolderReader::read_dense(const std::string& path) const {
  const std::string file = path + "/config.json";
  const SentenceJson document = FERRY_TRY(object(file));
  const JsonFields fields(document, shown(file), "");
  FERRY_RETURN_IF_ERROR(check_keys(document, kDenseKeys, fields));
  SentenceModule module;
  module.kind = SentenceModule::Kind::kDense;
  module.folder = path;
  module.in = FERRY_TRY(fields.required("in_features", kSizeRange));
  module.out = FERRY_TRY(fields.required("out_features", kSizeRange));
  module.bias = FERRY_TRY(fields.flag_or("bias", true));
  for (const char* key : {"module_input_name", "module_output_name"}) {
    const std::optional<std::string> name = FERRY_TRY(fields.text(key));
    if (!name || *name == "sentence_embedding") continue;
    return fields.error(ErrorCode::kUnsupported, key, "is not sentence_embedding");
  }
  const std::string function =
      FERRY_TRY(fields.text("activation_function")).value_or("torch.nn.modules.activation.Tanh");
  const auto known = std::ranges::find(kFunctions, function, &FunctionName::name);
  if (known == std::end(kFunctions)) {
    return fields.error(
        ErrorCode::kUnsupported, "activation_function",
        fmt::format("is {}: supported are Identity, Tanh, ReLU, GELU, Sigmoid and SiLU of torch.nn",
                    quoted(function)));
  }
  module.function = known->function;
  return module;
}

Status FolderReader::add_module(const SentenceJson& entry, size_t index, SentenceConfig& out) {
  const std::string where = fmt::format("{}: module {}", shown(kModules), index);
  if (!entry.is_object()) return bad_input(where + " is not an object");
  const JsonFields fields(entry, shown(kModules), fmt::format("[{}].", index));
  const std::string type = FERRY_TRY(fields.text("type")).value_or("");
  const std::string path = FERRY_TRY(fields.text("path")).value_or("");
  const std::string name = type.substr(type.rfind('.') + 1);
  const bool known = type.starts_with("sentence_transformers.");
  if (known && name == "Transformer" && index == 0) {
    has_transformer_ = true;
    return read_transformer(path, out);
  }
  // Dropout passes values on where nothing is trained.
  if (known && name == "Dropout" && has_pooling_) return {};
  if (known && name == "Normalize" && has_pooling_) {
    out.modules.push_back({.kind = SentenceModule::Kind::kNormalize});
    return {};
  }
  if (!path.empty() && !is_plain_name(path)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} is in {}: not the plain name of a folder", where, quoted(path)));
  }
  if (known && name == "Pooling" && index == 1 && has_transformer_) {
    has_pooling_ = true;
    out.poolings = FERRY_TRY(read_pooling(path.empty() ? "config.json" : path + "/config.json"));
    return {};
  }
  if (known && name == "Dense" && has_pooling_ && !path.empty()) {
    out.modules.push_back(FERRY_TRY(read_dense(path)));
    return {};
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} is {}: supported are Transformer, then Pooling, then Dense, "
                          "Normalize and Dropout",
                          where, quoted(type)));
}

Result<std::optional<SentenceConfig>> FolderReader::read() {
  const std::optional<SentenceJson> modules = FERRY_TRY(json(kModules));
  if (!modules) return std::optional<SentenceConfig>();
  if (!modules->is_array()) return bad_input(shown(kModules) + ": not a JSON list");
  SentenceConfig out;
  for (size_t i = 0; i < modules->size(); ++i) {
    FERRY_RETURN_IF_ERROR(add_module((*modules)[i], i, out));
  }
  if (has_pooling_) return std::optional(std::move(out));
  return fail(ErrorCode::kUnsupported,
              shown(kModules) + ": has no pooling: nothing makes one vector of the states");
}

Result<std::optional<int64_t>> FolderReader::read_scoring() {
  const std::optional<SentenceJson> modules = FERRY_TRY(json(kModules));
  if (!modules) return tokenizer_limit();
  if (!modules->is_array()) return bad_input(shown(kModules) + ": not a JSON list");
  SentenceConfig out;
  for (size_t i = 0; i < modules->size(); ++i) {
    FERRY_RETURN_IF_ERROR(add_module((*modules)[i], i, out));
  }
  if (modules->size() == 1) return out.max_tokens;
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: has {} modules: of classifiers, Transformer alone is supported",
                          shown(kModules), modules->size()));
}

}  // namespace

int64_t SentenceConfig::width(int64_t states) const {
  states *= static_cast<int64_t>(poolings.size());
  for (const SentenceModule& module : modules) {
    if (module.kind == SentenceModule::Kind::kDense) states = module.out;
  }
  return states;
}

Result<std::optional<SentenceConfig>> parse_sentence_config(const FolderText& text,
                                                            const std::string& folder) {
  return FolderReader(text, folder).read();
}

Result<std::optional<int64_t>> parse_cross_encoder_folder(const FolderText& text,
                                                          const std::string& folder) {
  return FolderReader(text, folder, /*scores=*/true).read_scoring();
}

}  // namespace ferry::converters
