// Makes a tokenizer document of a SentencePiece model.
#pragma once

#include <string>

#include "core/result.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_settings.h"

namespace ferry::text {

// Returns the tokenizer that transformers 5.12 makes of `model` for the class that the settings
// name: LlamaTokenizer, GemmaTokenizer, T5Tokenizer, XLMRobertaTokenizer, AlbertTokenizer. If the
// settings name no class or a generic one (PreTrainedTokenizer, TokenizersBackend), the tokenizer
// follows SentencePiece itself; that supports BPE models that do not change characters.
// kUnsupported, by name, for other classes and for settings that cannot be expressed. `name` begins
// error messages.
Result<TokenizerDocument> sentencepiece_document(const SentencePieceModel& model,
                                                 const TokenizerSettings& settings,
                                                 const std::string& name);

}  // namespace ferry::text
