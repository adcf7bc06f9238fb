// A SentencePiece model as a tokenizer document.
#pragma once

#include <string>

#include "core/result.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_settings.h"

namespace ferry::text {

// What transformers 5.12 makes of `model` for the class that the settings name: LlamaTokenizer,
// GemmaTokenizer, T5Tokenizer, XLMRobertaTokenizer, AlbertTokenizer. Where nothing names a class,
// or it is one that says nothing (PreTrainedTokenizer, TokenizersBackend), what the model itself
// says, as SentencePiece does it, of BPE models that do not change characters. kUnsupported, by
// name, for other classes and for what cannot be expressed. `name` begins the messages.
Result<TokenizerDocument> sentencepiece_document(const SentencePieceModel& model,
                                                 const TokenizerSettings& settings,
                                                 const std::string& name);

}  // namespace ferry::text
