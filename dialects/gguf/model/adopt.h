// adopt_gguf() turns a GGUF file into a Hugging Face checkpoint: tensors, config and the files that
// belong to them. The other functions are its parts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "converters/config/model_config.h"
#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"

namespace ferry::converters {

struct GgufTokenizer {
  std::string tokenizer;  // text of tokenizer.json, empty where the metadata do not determine it
  std::string tokenizer_config;  // with the chat template; empty if `tokenizer` is
  std::string missing;           // the reason for an empty `tokenizer`, in one line
};

struct AdoptedGguf {
  KeyedTensors tensors;
  std::string config;       // text of config.json
  std::string config_name;  // name that begins messages about the config
  std::string generation;   // text of generation_config.json, or empty
  GgufTokenizer tokenizer;
  std::optional<SentenceConfig> sentence;  // how states become a vector, where the file says so
};

// `source` has the tensors as they are in the file, `metadata` one member per key. `user_config` is
// the text of a config.json that adds to the metadata, or empty, `user_name` its path. Errors are
// those of make_gguf_config() and key_gguf_tensors(). kUnsupported for other architectures and for
// files that hold no model.
Result<AdoptedGguf> adopt_gguf(const TensorSource& source, const nlohmann::json& metadata,
                               const std::string& user_config, const std::string& user_name);

// -- config.json

struct GgufConfigInput {
  const GgufArchitecture* architecture = nullptr;
  const nlohmann::json* metadata = nullptr;  // one member per key of the file
  const TensorSource* tensors = nullptr;     // under their stored names; path() begins messages
  std::string user_config = {};              // text of a config.json, or empty
  std::string user_name = {};                // path of the user's config
};

struct GgufConfig {
  std::string text;  // text of config.json
  std::string name;  // name that begins messages about the config
  ModelConfig parsed;
};

// Makes the text of a config.json, of the metadata and of a config.json that a user adds. Keys of
// the metadata win over defaults. The user's config wins over both, where it does not contradict
// what the file says about its tensors. kBadInput for missing keys, with their names, for values of
// the wrong kind, and for a contradiction, also with rope_freqs.weight. kUnsupported for RoPE
// scaling and heads that are not supported.
Result<GgufConfig> make_gguf_config(const GgufConfigInput& input);

// -- tensors

// Gives the tensors of the file the keys of a Hugging Face checkpoint. Sizes of heads come from
// `config`, all other sizes from the stored shapes, which families check. A tensor that the
// architecture does not have gets its stored name behind "gguf:", which no rule of a family
// matches. The factors of RoPE make no weight: the caller has compared them with the config.
// kBadInput where the rows of a tensor are not those of the config's heads, for a tensor with a
// Hugging Face name, and for an ssm_a that is not negative. In the last two cases the writer of the
// file did not change the values as GGUF writers do, and undoing the change would be wrong.
Result<KeyedTensors> key_gguf_tensors(const TensorSource& source,
                                      const GgufArchitecture& architecture,
                                      const ModelConfig& config);

// -- tokenizer

// Makes tokenizer.json and tokenizer_config.json of the tokenizer.ggml keys, in the forms that the
// tokenizers library reads. Supports byte-level BPE (tokenizer.ggml.model "gpt2") for the
// pre-tokenizers that are known by name, and SentencePiece BPE ("llama") where the scores rank the
// tokens. The merges of SentencePiece are the ways to put a token together from two others, by
// falling score. Trailing unused tokens that no key names are left out. kBadInput for keys of the
// wrong kind; `name` begins the messages.
Result<GgufTokenizer> make_gguf_tokenizer(const nlohmann::json& metadata, const std::string& name);

}  // namespace ferry::converters
