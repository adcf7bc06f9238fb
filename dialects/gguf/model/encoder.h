// Reads what files of encoders state beyond decoders: how the states of a text become one vector,
// and the keys of BERT and its successors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "converters/config/classifier_config.h"
#include "converters/config/model_config.h"
#include "converters/config/sentence_config.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"
#include "dialects/gguf/model/reading.h"

namespace ferry::converters {

// Returns nullopt for a file that states no pooling, or has a head of labels. Vectors are brought
// to a length of 1, as runtimes of GGUF do by default. kUnsupported for a pooling that ranks texts
// without such a head.
Result<std::optional<SentenceConfig>> read_gguf_sentence(const GgufKeys& keys,
                                                         const TensorSource& source);

// Values of the key pooling_type.
inline constexpr int64_t kGgufMeanPooling = 1, kGgufFirstPooling = 2, kGgufLastPooling = 3,
                         kGgufLabelPooling = 4;
// Every so many layers of a ModernBERT one has no window, where no key says otherwise.
inline constexpr int64_t kModernBertGlobalEvery = 3;
// The other way: returns the value of the key pooling_type. Only for vectors without an obstacle.
int64_t gguf_pooling_type(const SentenceConfig& sentence);
// Returns why files cannot say how the vector is made; empty where they can. Runtimes of GGUF know
// the mean, the first and the last token, and in some architectures two projections behind it.
std::string gguf_sentence_obstacle(const SentenceConfig& sentence, const ModelConfig& config,
                                   const GgufArchitecture& architecture);
// Returns why files cannot say how scores of labels are made; empty where they can.
std::string gguf_head_obstacle(const ClassifierConfig& head, const GgufArchitecture& architecture);
// Returns the projections of the modules, and the name of one: "dense_2".
std::vector<SentenceModule> gguf_projections(const SentenceConfig& sentence);
std::string gguf_projection_name(const SentenceModule& projection);

// For read_gguf_own_keys().
Status read_gguf_encoder(GgufReading& in);
Status read_gguf_bert(GgufReading& in);
Status read_gguf_modern_bert(GgufReading& in);
Status read_gguf_embedding_gemma(GgufReading& in);

}  // namespace ferry::converters
