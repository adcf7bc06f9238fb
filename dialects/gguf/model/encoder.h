// Reads what files of encoders state beyond decoders: how the states of a text become one vector,
// and the keys of BERT and its successors.
#pragma once

#include <optional>

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

// For read_gguf_own_keys().
Status read_gguf_encoder(GgufReading& in);
Status read_gguf_bert(GgufReading& in);
Status read_gguf_modern_bert(GgufReading& in);
Status read_gguf_embedding_gemma(GgufReading& in);

}  // namespace ferry::converters
