#include "cli/other_names.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ferry::cli {
namespace {

constexpr std::string_view kNoServer = "there is no server; this is a chat in the terminal";
constexpr std::string_view kNoTraining = "Ferry does not train; convert merges a trained adapter";
constexpr std::string_view kNoList = "Ferry keeps no list of models; hf cache ls shows the cache";

constexpr std::pair<Tool, std::string_view> kVerbOfTool[] = {
    {kLlamaCli, "run"},
    {kLlamaQuantize, "convert"},
    {kLlamaConvert, "convert"},
    {kLlamaBench, "run"},
    {kLlamaPerplexity, "verify"},
    {kLlamaEmbedding, "embed"},
    {kLlamaTokenize, "tokenize"},
    {kMlxGenerate, "run"},
    {kMlxConvert, "convert"},
    {kOptimum, "convert"},
    {kExportLlm, "convert"},
    {kLlmRunner, "run"},
    {kOllama, "run"},
    {kOllamaCreate, "convert"},
    {kHub, "inspect"},
    {kInspect, "inspect"},
    {kCheck, "check"},
};

constexpr OtherProgram kPrograms[] = {
    // llama.cpp
    {"llama-cli", kLlamaCli},
    {"llama-run", kLlamaCli},
    {"llama-simple", kLlamaCli},
    {"llama-completion", kLlamaCli},
    {"llama-mtmd-cli", kLlamaCli},
    {"llama-server", kLlamaCli, kNoServer},
    {"llama-quantize", kLlamaQuantize},
    {"quantize", kLlamaQuantize},
    {"quantise", kLlamaQuantize},
    {"convert_hf_to_gguf", kLlamaConvert},
    {"convert-hf-to-gguf", kLlamaConvert},
    {"llama-bench", kLlamaBench},
    {"bench", kLlamaBench},
    {"benchmark", kLlamaBench},
    {"llama-perplexity", kLlamaPerplexity},
    {"perplexity", kLlamaPerplexity},
    {"llama-embedding", kLlamaEmbedding},
    {"embedding", kLlamaEmbedding},
    {"embeddings", kLlamaEmbedding},
    {"llama-tokenize", kLlamaTokenize},
    {"llama-gguf", kInspect},
    {"gguf-dump", kInspect},
    {"gguf_dump", kInspect},
    {"llama-export-lora", kMlxConvert},
    // mlx_lm
    {"mlx_lm.generate", kMlxGenerate},
    {"mlx_lm generate", kMlxGenerate},
    {"generate", kLlamaCli | kMlxGenerate},
    {"mlx_lm.chat", kMlxGenerate},
    {"mlx_lm chat", kMlxGenerate},
    {"mlx_lm.server", kMlxGenerate, kNoServer},
    {"mlx_lm server", kMlxGenerate, kNoServer},
    {"mlx_lm.convert", kMlxConvert},
    {"mlx_lm convert", kMlxConvert},
    {"mlx_lm.lora", kMlxConvert, kNoTraining},
    {"mlx_lm lora", kMlxConvert, kNoTraining},
    {"mlx_lm.fuse", kMlxConvert},
    {"mlx_lm fuse", kMlxConvert},
    {"fuse", kMlxConvert},
    {"lora", kMlxConvert, kNoTraining},
    // optimum
    {"optimum-cli export executorch", kOptimum},
    {"optimum-cli export onnx", kOptimum, "Ferry writes programs of ExecuTorch, not ONNX"},
    {"optimum-cli export", kOptimum},
    {"export executorch", kOptimum},
    {"export onnx", kOptimum, "Ferry writes programs of ExecuTorch, not ONNX"},
    {"export", kOptimum},
    // executorch
    {"executorch.extension.llm.export.export_llm", kExportLlm},
    {"extension.llm.export.export_llm", kExportLlm},
    {"examples.models.llama.export_llama", kExportLlm},
    {"export_llm", kExportLlm},
    {"export_llama", kExportLlm},
    {"llama_main", kLlmRunner},
    // hf, transformers
    {"hf download", kHub},
    {"huggingface-cli download", kHub},
    {"hf cache", kHub, kNoList},
    {"huggingface-cli scan-cache", kHub, kNoList},
    {"download", kHub},
    {"transformers chat", kOllama},
    {"transformers-cli chat", kOllama},
    {"transformers serve", kOllama, kNoServer},
    {"transformers-cli serve", kOllama, kNoServer},
    // ollama
    {"ollama run", kOllama},
    {"ollama pull", kHub},
    {"ollama show", kInspect},
    {"ollama list", kHub, kNoList},
    {"ollama ls", kHub, kNoList},
    {"ollama serve", kOllama, kNoServer},
    {"ollama create", kOllamaCreate},
    {"create", kOllamaCreate},
    {"pull", kHub},
    // what anybody may type
    {"chat", kLlamaCli | kOllama},
    {"serve", kLlamaCli | kOllama, kNoServer},
    {"server", kLlamaCli | kOllama, kNoServer},
    {"list", kHub, kNoList},
    {"ls", kHub, kNoList},
    {"ps", kHub, kNoList},
    {"info", kInspect},
    {"show", kInspect},
    {"describe", kInspect},
    {"dump", kInspect},
    {"validate", kCheck},
    {"test", kCheck},
};

constexpr unsigned kRuns = kLlamaCli | kMlxGenerate | kLlmRunner | kOllama;
constexpr unsigned kLlama =
    kLlamaCli | kLlamaBench | kLlamaPerplexity | kLlamaEmbedding | kLlamaTokenize;
constexpr unsigned kWrites = kLlamaConvert | kMlxConvert | kOptimum | kExportLlm | kOllamaCreate;

using enum Becomes;

constexpr OtherOption kOptions[] = {
    // the model
    {kMlxGenerate | kLlamaCli, "-m", kModelOrTokens, "--max-new"},
    {kLlama | kOptimum | kInspect, "-m", kSource},
    {kEveryTool, "--model", kSource},
    {kLlmRunner, "--model_path", kSource},
    {kOllama, "--model_name_or_path", kSource},
    {kOllama, "--model_name_or_path_or_address", kSource},
    {kLlama, "-hf", kSource},
    {kLlama, "-hfr", kSource},
    {kLlama, "--hf-repo", kSource},
    {kLlama, "-hff", kFile},
    {kLlama, "--hf-file", kFile},
    {kMlxConvert, "--hf-path", kSource},
    {kExportLlm, "-c", kSource},
    {kExportLlm, "--checkpoint", kSource},
    {kExportLlm, "--checkpoint_dir", kSource},
    {kExportLlm, "base.checkpoint", kSource},
    {kExportLlm, "base.checkpoint_dir", kSource},
    {kExportLlm, "base.model_class", kSource},
    {kHub | kOptimum | kLlamaConvert, "--revision", kRevision},
    // where the output goes
    {kLlamaConvert, "--outfile", kOut, "--out"},
    {kMlxConvert, "--mlx-path", kOut},
    {kMlxConvert, "--save-path", kOut},
    {kWrites, "--output_dir", kOut},
    {kWrites, "--output-dir", kOut},
    {kWrites, "--output", kOut, "--out"},
    {kExportLlm, "--output_name", kOut},
    {kExportLlm, "export.output_name", kOut},
    {kLlamaQuantize, "--imatrix", kOption, "--imatrix"},
    // prompts
    {kRuns, "-p", kPrompt, "--prompt"},
    {kRuns, "--prompt", kPrompt, "--prompt"},
    {kLlamaEmbedding, "-p", kOption, "--text"},
    {kLlamaEmbedding, "--prompt", kOption, "--text"},
    {kLlamaTokenize, "-p", kNothingValue},
    {kLlamaTokenize, "--prompt", kNothingValue},
    {kLlamaCli, "-f", kOption, "--prompt-file"},
    {kLlamaCli, "--file", kOption, "--prompt-file"},
    {kLlamaPerplexity, "-f", kText, "--perplexity"},
    {kLlamaPerplexity, "--file", kText, "--perplexity"},
    {kLlamaCli, "-sys", kOption, "--system"},
    {kRuns, "--system-prompt", kOption, "--system"},
    {kRuns, "--system_prompt", kOption, "--system"},
    {kLlamaCli, "-cnv", kFlag, "--interactive"},
    {kLlamaCli, "--conversation", kFlag, "--interactive"},
    {kLlamaCli, "-i", kFlag, "--interactive"},
    {kLlamaCli, "-r", kOption, "--stop"},
    {kLlamaCli, "--reverse-prompt", kOption, "--stop"},
    {kMlxGenerate, "--extra-eos-token", kOption, "--stop"},
    {kRuns, "--image_path", kOption, "--image"},
    // lengths
    {kRuns | kLlamaBench, "-n", kOption, "--max-new"},
    {kLlamaCli, "--predict", kOption, "--max-new"},
    {kLlamaCli, "--n-predict", kOption, "--max-new"},
    {kLlamaBench, "--n-gen", kOption, "--max-new"},
    {kRuns, "--max-tokens", kOption, "--max-new"},
    {kRuns, "--max_tokens", kOption, "--max-new"},
    {kRuns, "--max-new-tokens", kOption, "--max-new"},
    {kRuns, "--max_new_tokens", kOption, "--max-new"},
    {kRuns, "--max-length", kOption, "--max-new"},
    {kLlmRunner, "--seq_len", kOption, "--max-new"},
    {kLlama, "-c", kNothingValue, "--context-length"},
    {kLlama, "--ctx-size", kNothingValue, "--context-length"},
    {kWrites, "--ctx-size", kOption, "--context-length"},
    {kOptimum, "--max_seq_len", kOption, "--context-length"},
    {kExportLlm, "--max_context_length", kOption, "--context-length"},
    {kExportLlm, "export.max_context_length", kOption, "--context-length"},
    {kExportLlm, "--use_attention_sink", kOption, "--attention-sink"},
    {kExportLlm, "model.use_attention_sink", kOption, "--attention-sink"},
    {kExportLlm, "--max_seq_length", kOption, "--prefill-length"},
    {kExportLlm, "export.max_seq_length", kOption, "--prefill-length"},
    // sampling
    {kRuns, "-s", kOption, "--seed"},
    {kRuns, "--temp", kOption, "--temperature"},
    {kRuns, "--top_k", kOption, "--top-k"},
    {kRuns, "--top_p", kOption, "--top-p"},
    {kRuns, "--min_p", kOption, "--min-p"},
    {kRuns, "--repeat-penalty", kOption, "--repetition-penalty"},
    {kRuns, "--repetition_penalty", kOption, "--repetition-penalty"},
    {kRuns, "--no_repeat_ngram_size", kNothingValue},
    {kRuns, "--do-sample", kNothing},
    {kRuns, "--do_sample", kNothing},
    // threads
    {kLlama | kLlamaQuantize | kRuns, "-t", kOption, "--threads"},
    {kLlmRunner, "--cpu_threads", kOption, "--threads"},
    // dtypes and quantisation
    {kLlamaConvert, "--outtype", kOutType, "--outtype"},
    {kWrites, "--dtype", kDType, "--dtype"},
    {kExportLlm, "-d", kDType},
    {kExportLlm, "--dtype-override", kDType},
    {kExportLlm, "model.dtype_override", kDType},
    {kMlxConvert, "-q", kQuantize},
    {kMlxConvert, "--quantize", kQuantize},
    {kMlxConvert, "--q-bits", kBits},
    {kMlxConvert, "--q-group-size", kGroup},
    {kMlxConvert, "--adapter-path", kOption, "--lora"},
    {kMlxGenerate, "--adapter-path", kNothingValue},
    {kLlamaCli, "--lora", kNothingValue},
    {kOllamaCreate, "-q", kOutType},
    {kOllamaCreate, "--quantize", kOutType},
    {kOllamaCreate, "-f", kNothingValue},
    {kOllamaCreate, "--file", kNothingValue},
    {kOptimum, "--qlinear", kScheme},
    {kOptimum, "--qlinear_group_size", kGroup},
    {kOptimum, "--qembedding", kEmbedding},
    {kOptimum, "--qembedding_group_size", kNothingValue},
    {kExportLlm, "-qmode", kScheme},
    {kExportLlm, "--quantization_mode", kScheme},
    {kExportLlm, "quantization.qmode", kScheme},
    {kExportLlm, "-G", kGroup},
    {kExportLlm, "--group_size", kGroup},
    {kExportLlm, "quantization.group_size", kGroup},
    {kExportLlm, "-E", kEmbedding},
    {kExportLlm, "--embedding-quantize", kEmbedding},
    {kExportLlm, "quantization.embedding_quantize", kEmbedding},
    // files and names
    {kLlamaConvert, "--model-name", kOption, "--name"},
    {kLlamaConvert, "--split-max-size", kOption, "--max-file-size"},
    {kLlamaConvert, "--split-max-tensors", kOption, "--max-file-tensors"},
    {kLlamaQuantize, "--dry-run", kFlag, "--dry-run"},
    // what the backend, the machine or the template decides
    {kLlama, "-ngl", kNothingValue},
    {kLlama, "--gpu-layers", kNothingValue},
    {kLlama, "--n-gpu-layers", kNothingValue},
    {kLlama, "-b", kNothingValue},
    {kLlama, "--batch-size", kNothingValue},
    {kLlama, "-ub", kNothingValue},
    {kLlama, "--ubatch-size", kNothingValue},
    {kLlama, "-fa", kNothingMaybe},
    {kLlama, "--flash-attn", kNothingMaybe},
    {kLlama, "-ctk", kKvBits, "--kv-bits"},
    {kLlama, "-ctv", kKvBits, "--kv-bits"},
    {kLlama, "--cache-type-k", kKvBits, "--kv-bits"},
    {kLlama, "--cache-type-v", kKvBits, "--kv-bits"},
    {kLlama, "-dev", kNothingValue},
    {kLlama, "--device", kNothingValue},
    {kLlama, "--mlock", kNothing},
    {kLlama, "--no-mmap", kNothing},
    {kLlama, "--mmproj", kNothingValue},
    {kLlama, "--chat-template", kNothingValue},
    {kLlama, "--jinja", kNothing},
    {kLlama, "--color", kNothingMaybe},
    {kLlama, "-e", kNothing},
    {kLlama, "--escape", kNothing},
    {kLlama, "--no-display-prompt", kNothing},
    {kLlama, "--simple-io", kNothing},
    {kLlama, "--log-disable", kNothing},
    {kLlama, "-no-cnv", kNothing},
    {kLlama, "-st", kNothing},
    {kLlama, "--single-turn", kNothing},
    {kLlama, "--host", kNothingValue},
    {kLlama, "--port", kNothingValue},
    {kLlama, "--pooling", kNothingValue},
    {kLlama, "--embd-normalize", kNothingValue},
    {kLlamaBench, "-p", kNothingValue},
    {kLlamaBench, "--n-prompt", kNothingValue},
    {kLlamaBench, "-r", kNothingValue},
    {kLlamaBench, "--repetitions", kNothingValue},
    {kLlamaBench, "-o", kNothingValue},
    {kLlamaPerplexity, "--chunks", kNothingValue},
    {kLlamaQuantize, "--allow-requantize", kNothing},
    {kLlamaQuantize, "--leave-output-tensor", kNothing},
    {kLlamaQuantize, "--pure", kNothing},
    {kLlamaConvert, "--vocab-only", kNothing},
    {kLlamaConvert, "--use-temp-file", kNothing},
    {kLlamaConvert, "--no-lazy", kNothing},
    {kLlamaConvert, "--remote", kNothing},
    {kMlxGenerate, "--host", kNothingValue},
    {kMlxGenerate, "--port", kNothingValue},
    {kMlxGenerate, "--max-kv-size", kNothingValue},
    {kMlxGenerate, "--kv-bits", kNothingValue},
    {kMlxGenerate, "--draft-model", kNothingValue},
    {kMlxGenerate, "--use-default-chat-template", kNothing},
    {kMlxGenerate | kMlxConvert, "--trust-remote-code", kNothing},
    {kMlxGenerate, "--ignore-chat-template", kNothing},
    {kMlxConvert, "--upload-repo", kNothingValue},
    {kMlxConvert, "--q-mode", kNothingValue},
    {kMlxConvert, "--train", kNothing},
    {kMlxConvert, "--data", kNothingValue},
    {kMlxConvert, "--iters", kNothingValue},
    {kMlxConvert, "--batch-size", kNothingValue},
    {kMlxConvert, "--num-layers", kNothingValue},
    {kOptimum, "--task", kNothingValue},
    {kOptimum, "--recipe", kNothingValue},
    {kOptimum, "--use_custom_sdpa", kNothing},
    {kOptimum, "--use_custom_kv_cache", kNothing},
    {kOptimum, "--device", kNothingValue},
    {kOptimum, "--opset", kNothingValue},
    {kOptimum, "--optimize", kNothingValue},
    {kOptimum, "--trust-remote-code", kNothing},
    {kExportLlm, "-p", kNothingValue},
    {kExportLlm, "--params", kNothingValue},
    {kExportLlm, "base.params", kNothingValue},
    {kExportLlm, "base.tokenizer_path", kNothingValue},
    {kExportLlm, "base.metadata", kNothingValue},
    {kExportLlm, "--metadata", kNothingValue},
    {kExportLlm, "-kv", kNothing},
    {kExportLlm, "--use_kv_cache", kNothing},
    {kExportLlm, "--use_sdpa_with_kv_cache", kNothing},
    {kExportLlm, "-X", kNothing},
    {kExportLlm, "--xnnpack", kNothing},
    {kExportLlm, "--xnnpack-extended-ops", kNothing},
    {kExportLlm, "model.use_kv_cache", kNothingValue},
    {kExportLlm, "model.use_sdpa_with_kv_cache", kNothingValue},
    {kExportLlm, "backend.xnnpack.enabled", kNothingValue},
    {kExportLlm, "backend.xnnpack.extended_ops", kNothingValue},
    {kExportLlm, "debug.verbose", kNothingValue},
    {kLlmRunner, "--tokenizer_path", kTokenizer},
    {kLlmRunner, "--data_paths", kNothingValue},
    {kHub, "--local-dir", kNothingValue},
    {kHub, "--include", kNothingValue},
    {kHub, "--exclude", kNothingValue},
    {kHub, "--token", kNothingValue},
    {kHub, "--repo-type", kNothingValue},
    {kOllama, "--verbose", kFlag, "--verbose"},
    {kOllama, "--keepalive", kNothingValue},
    {kOllama, "--think", kNothingMaybe},
    {kOllama, "--nowordwrap", kNothing},
};

struct ModelClass {
  std::string_view name, hub;
};
constexpr ModelClass kClasses[] = {
    {"qwen2_5_0_5b", "Qwen/Qwen2.5-0.5B"},
    {"qwen2_5_1_5b", "Qwen/Qwen2.5-1.5B"},
    {"qwen3_0_6b", "Qwen/Qwen3-0.6B"},
    {"qwen3_1_7b", "Qwen/Qwen3-1.7B"},
    {"qwen3_4b", "Qwen/Qwen3-4B"},
    {"phi_4_mini", "microsoft/Phi-4-mini-instruct"},
    {"smollm2", "HuggingFaceTB/SmolLM2-135M"},
};

}  // namespace

std::string_view verb_of(Tool tool) {
  for (const auto& [known, verb] : kVerbOfTool) {
    if (known == tool) return verb;
  }
  return {};
}

std::span<const OtherProgram> other_programs() { return kPrograms; }
std::span<const OtherOption> other_options() { return kOptions; }

std::vector<std::string_view> our_names(std::string_view other) {
  std::vector<std::string_view> names;
  if (other == "version") names.emplace_back("--version");
  for (const OtherProgram& program : kPrograms) {
    if (program.words != other) continue;
    for (const auto& [tool, verb] : kVerbOfTool) {
      if ((program.tools & tool) != 0) names.push_back(verb);
    }
  }
  for (const OtherOption& option : kOptions) {
    if (option.name == other && !option.ours.empty()) names.push_back(option.ours);
  }
  return names;
}

std::string_view hub_name_of_class(std::string_view model_class) {
  const auto* found = std::ranges::find(kClasses, model_class, &ModelClass::name);
  return found == std::end(kClasses) ? std::string_view() : found->hub;
}

}  // namespace ferry::cli
