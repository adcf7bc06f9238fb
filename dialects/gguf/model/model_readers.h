// Readers of the keys that single architectures have (model_readers.cc), for readers.cc.
#pragma once

#include "core/result.h"
#include "dialects/gguf/model/reading.h"

namespace ferry::converters {

Status read_gguf_falcon(GgufReading& in);
Status read_gguf_mpt(GgufReading& in);
Status read_gguf_minicpm3(GgufReading& in);
Status read_gguf_cohere_moe(GgufReading& in);
Status read_gguf_gemma3n(GgufReading& in);
Status read_gguf_mimo(GgufReading& in);
Status read_gguf_bitnet(GgufReading& in);
Status read_gguf_t5(GgufReading& in);

}  // namespace ferry::converters
