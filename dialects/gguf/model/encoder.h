// Reads what files of encoders state beyond decoders: how the states of a text become one vector,
// and the keys of BERT and its successors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "converters/config/sentence_config.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"
#include "dialects/gguf/model/reading.h"

namespace ferry::converters {

// Returns nullopt for a file that states no pooling. Vectors are brought to a length of 1, as
// runtimes of GGUF do by default. kUnsupported for a pooling that ranks texts.
Result<std::optional<SentenceConfig>> read_gguf_sentence(const GgufKeys& keys,
                                                         const TensorSource& source);

// Values of the key pooling_type.
inline constexpr int64_t kGgufMeanPooling = 1, kGgufFirstPooling = 2, kGgufLastPooling = 3;
// Every so many layers of a ModernBERT one has no window, where no key says otherwise.
inline constexpr int64_t kModernBertGlobalEvery = 3;
// The other way: returns the value of the key pooling_type. Only for vectors without an obstacle.
int64_t gguf_pooling_type(const SentenceConfig& sentence);
// Returns why files cannot say how the vector is made; empty where they can. Runtimes of GGUF know
// the mean, the first and the last token.
std::string gguf_sentence_obstacle(const SentenceConfig& sentence);

// For read_gguf_own_keys().
Status read_gguf_encoder(GgufReading& in);
Status read_gguf_bert(GgufReading& in);
Status read_gguf_modern_bert(GgufReading& in);
Status read_gguf_embedding_gemma(GgufReading& in);

}  // namespace ferry::converters
