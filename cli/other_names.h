// The programs, verbs and options of other tools, and how Ferry says the same. Sources: the --help
// of llama.cpp's programs, mlx_lm, optimum-cli export, export_llm and the runners of ExecuTorch,
// huggingface_hub's hf, transformers and ollama.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ferry::cli {

// Bits of sets of tools.
enum Tool : unsigned {
  kLlamaCli = 1U << 0,  // llama-cli, llama-server and programs with the same options
  kLlamaQuantize = 1U << 1,
  kLlamaConvert = 1U << 2,  // convert_hf_to_gguf.py
  kLlamaBench = 1U << 3,
  kLlamaPerplexity = 1U << 4,
  kLlamaEmbedding = 1U << 5,
  kLlamaTokenize = 1U << 6,
  kMlxGenerate = 1U << 7,
  kMlxConvert = 1U << 8,  // mlx_lm.convert, mlx_lm.lora and mlx_lm.fuse
  kOptimum = 1U << 9,
  kExportLlm = 1U << 10,  // export_llm, and export_llama with options
  kLlmRunner = 1U << 11,  // ExecuTorch's llama_main
  kOllama = 1U << 12,     // ollama run, transformers chat
  kOllamaCreate = 1U << 13,
  kHub = 1U << 14,      // hf download, ollama pull
  kInspect = 1U << 15,  // ollama show, gguf_dump.py
  kCheck = 1U << 16,
  kEveryTool = (1U << 17) - 1,
};

// Returns the verb of Ferry that does what a tool does.
std::string_view verb_of(Tool tool);

// The beginning of a line of another tool, such as "optimum-cli export onnx".
struct OtherProgram {
  std::string_view words;
  unsigned tools;
  std::string_view note = {};  // a sentence for the user
};
std::span<const OtherProgram> other_programs();

// How an option of another tool becomes words of Ferry's line.
enum class Becomes : uint8_t {
  kNothing,       // a flag that has no equivalent
  kNothingValue,  // the same of an option with a value
  kNothingMaybe,  // the same where the value may be absent
  kOption,        // our option with the same value
  kFlag,          // our flag, or the words of `ours`
  kSource,        // the model
  kFile,          // a file of the model on the hub
  kRevision,
  kModelOrTokens,  // -m: the model, or of mlx_lm the number of tokens
  kOut,
  kDType,
  kOutType,
  kScheme,     // a scheme of quantisation
  kEmbedding,  // the same of the embedding
  kQuantize,   // quantise with the tool's own default
  kBits,
  kGroup,
  kKvBits,     // a type of the KV cache
  kTokenizer,  // a file of a tokenizer
  kPrompt,     // the text of a prompt
  kText,       // a file of text
};
struct OtherOption {
  unsigned tools;
  std::string_view name;
  Becomes becomes;
  std::string_view ours = {};
};
std::span<const OtherOption> other_options();

// Returns names of Ferry that say what the name of another tool says; which of them may stand in a
// line depends on its verb.
std::vector<std::string_view> our_names(std::string_view other);

// Returns the name on the hub of a model class of export_llm, or an empty text.
std::string_view hub_name_of_class(std::string_view model_class);

}  // namespace ferry::cli
