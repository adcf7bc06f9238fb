// SentenceConfig says how a folder of sentence-transformers makes a vector of the states of its
// encoder, as its modules.json lists it. parse_sentence_config() reads it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry::converters {

// A module behind the pooling.
struct SentenceModule {
  enum class Kind { kDense, kNormalize } kind = Kind::kNormalize;
  // kDense computes y = activation(W x + b).
  std::string folder = {};  // folder of the weights: "2_Dense"
  int64_t in = 0, out = 0;
  bool bias = false;
  enum class Function { kIdentity, kTanh, kRelu, kGelu, kSigmoid, kSilu };
  Function function = Function::kIdentity;
  bool operator==(const SentenceModule&) const = default;
};

struct SentenceConfig {
  // How one vector is made of the states of the tokens. kRootMean: the sum over the square root of
  // the number of tokens; kWeightedMean: the tokens weigh 1, 2, 3, ...
  enum class Pooling { kMean, kFirst, kLast, kMax, kRootMean, kWeightedMean };
  std::vector<Pooling> poolings = {Pooling::kMean};  // their vectors follow each other
  std::vector<SentenceModule> modules = {};          // in order
  std::optional<int64_t> max_tokens = {};            // limit of a text, where the folder states it
  // Returns the width of the vector for states of the width `states`.
  int64_t width(int64_t states) const;
  bool operator==(const SentenceConfig&) const = default;
};

// Returns the text of a file of the folder by its path in it ("1_Pooling/config.json"); nullopt if
// there is no such file.
using FolderText = std::function<Result<std::optional<std::string>>(const std::string& path)>;

// Returns nullopt for a folder without modules.json. Messages name files by `folder`. kBadInput: a
// file is malformed, or sizes of modules do not follow each other. kUnsupported: a module, a
// pooling or a setting would change the vector and is not one of the above.
Result<std::optional<SentenceConfig>> parse_sentence_config(const FolderText& text,
                                                            const std::string& folder);

// Reads the folder of a CrossEncoder, whose only module is its classifier, and returns the limit of
// a text, if the folder states one. A folder without modules.json is that of a classifier too.
// Errors are those of parse_sentence_config().
Result<std::optional<int64_t>> parse_cross_encoder_folder(const FolderText& text,
                                                          const std::string& folder);

}  // namespace ferry::converters
