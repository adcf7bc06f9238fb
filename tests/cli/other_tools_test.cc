// Lines that users of other tools type. Every line of an answer is tried with our own parser.
#include "cli/other_tools.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string_view>

#include "tests/cli/ferry_process.h"

namespace ferry::other_tools_test {
namespace {

using Line = std::vector<std::string>;

// Splits words as a shell does; single quotes are the only quotes.
Line words_of(const std::string& text) {
  Line words;
  bool inside = false, quoted = false;
  for (const char c : text) {
    if (c == ' ' && !quoted) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (c == '\'') {
      quoted = !quoted;
    } else {
      words.back() += c;
    }
  }
  return words;
}

// Returns the commands of an answer, without "ferry ".
Line commands_of(const std::string& err) {
  constexpr std::string_view kMarks[] = {"  did you mean: ferry ", "  and then: ferry "};
  Line commands;
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    for (const std::string_view mark : kMarks) {
      if (line.starts_with(mark)) commands.push_back(line.substr(mark.size()));
    }
  }
  return commands;
}

struct Case {
  std::string typed;  // behind "ferry "
  Line meant;         // behind "ferry "
};

const Case kCases[] = {
    // llama.cpp
    {"-m m.gguf -p Hello -n 32", {"run m.gguf --max-new 32 --prompt Hello"}},
    {"run -hf org/m-GGUF:Q8_0 -p Hello", {"run org/m-GGUF:Q8_0 --prompt Hello"}},
    {"run -m m.gguf -p 'Why is it?' -n 32 -ngl 99 -c 4096",
     {"run m.gguf --max-new 32 --prompt 'Why is it?'"}},
    {"llama-cli -m m.gguf -p Hello --temp 0.7 --top-k 40 -s 1 -t 8 -fa on",
     {"run m.gguf --temperature 0.7 --top-k 40 --seed 1 --threads 8 --prompt Hello"}},
    {"llama-cli -hf ggml-org/gemma-3-1b-it-GGUF:Q4_K_M -cnv -p 'You are kind'",
     {"run ggml-org/gemma-3-1b-it-GGUF:Q4_K_M --interactive --system 'You are kind'"}},
    {"./build/bin/llama-cli -m m.gguf", {"run m.gguf --interactive"}},
    {"llama-server -m m.gguf --port 8080 -c 8192", {"run m.gguf --interactive"}},
    {"llama-quantize in.gguf out.gguf Q4_K_M",
     {"convert in.gguf --to gguf --outtype q4_k_m -o out.gguf"}},
    {"quantize in.gguf Q8_0", {"convert in.gguf --to gguf --outtype q8_0 -o in-q8_0.gguf"}},
    {"quantize in.gguf out.gguf q5_k_m 8",
     {"convert in.gguf --threads 8 --to gguf --outtype q5_k_m -o out.gguf"}},
    {"llama-quantize --imatrix i.gguf in.gguf out.gguf IQ4_XS",
     {"convert in.gguf --imatrix i.gguf --to gguf --outtype iq4_xs -o out.gguf"}},
    {"quantize x", {"convert x --to gguf --outtype q4_k_m -o x-q4_k_m.gguf"}},
    {"python convert_hf_to_gguf.py models/qwen --outfile q.gguf --outtype q8_0",
     {"convert models/qwen --to gguf --outtype q8_0 -o q.gguf"}},
    {"convert_hf_to_gguf.py models/qwen --outtype bf16 --split-max-size 2G",
     {"convert models/qwen --max-file-size 2G --to gguf --outtype bf16 -o qwen-bf16.gguf"}},
    {"convert models/qwen --outfile q.gguf --outtype f16",
     {"convert models/qwen --to gguf --outtype f16 -o q.gguf"}},
    {"llama-bench -m m.gguf -p 512 -n 128 -r 5",
     {"run m.gguf --max-new 128 --prompt Hello --ignore-eos"}},
    {"llama-perplexity -m m.gguf -f wiki.txt",
     {"convert m.gguf -o m", "verify m --perplexity wiki.txt --text"}},
    {"llama-cli -m m.gguf -p Hello -ctk q8_0 -ctv q4_0",
     {"run m.gguf --kv-bits 8,4 --prompt Hello"}},
    {"perplexity -m bundle -f wiki.txt", {"verify bundle --perplexity wiki.txt --text"}},
    {"llama-embedding -m bge.gguf -p 'a text'",
     {"convert bge.gguf -o bge --program encoder", "embed bge --text 'a text'"}},
    {"llama-tokenize -m m.gguf -p Hello", {"tokenize m.gguf"}},
    {"gguf_dump.py m.gguf", {"inspect m.gguf"}},
    // mlx_lm
    {"mlx_lm.generate --model Qwen/Qwen3-0.6B --prompt Hello --max-tokens 100 --temp 0.6",
     {"convert Qwen/Qwen3-0.6B -o Qwen3-0.6B",
      "run Qwen3-0.6B --max-new 100 --temperature 0.6 --chat Hello"}},
    {"mlx_lm generate --model bundle -p Hello -m 64", {"run bundle --max-new 64 --chat Hello"}},
    {"mlx_lm.convert --hf-path Qwen/Qwen3-0.6B -q --q-bits 4 --q-group-size 32 --mlx-path q",
     {"convert Qwen/Qwen3-0.6B --quantize 8da4w-g32 -o q"}},
    {"convert --hf-path Qwen/Qwen3-0.6B -q",
     {"convert Qwen/Qwen3-0.6B --quantize 8da4w-g64 -o Qwen3-0.6B"}},
    {"convert --hf-path Qwen/Qwen3-0.6B --mlx-path q --dtype float16",
     {"convert Qwen/Qwen3-0.6B --dtype f16 -o q"}},
    {"mlx_lm.fuse --model Qwen/Qwen3-0.6B --adapter-path adapters --save-path fused",
     {"convert Qwen/Qwen3-0.6B --lora adapters -o fused"}},
    {"mlx_lm.lora --model Qwen/Qwen3-0.6B --train --data data --iters 600",
     {"convert Qwen/Qwen3-0.6B -o Qwen3-0.6B"}},
    {"mlx_lm.chat --model bundle", {"run bundle --interactive"}},
    // optimum
    {"optimum-cli export executorch --model HuggingFaceTB/SmolLM2-135M --task text-generation "
     "--recipe xnnpack --qlinear 8da4w --qembedding 8w --use_custom_sdpa --output_dir smol",
     {"convert HuggingFaceTB/SmolLM2-135M --quantize 8da4w --quantize-embedding 8 -o smol"}},
    {"optimum-cli export onnx -m Qwen/Qwen3-0.6B out", {"convert Qwen/Qwen3-0.6B -o out"}},
    {"export executorch --model m --output_dir out --dtype bfloat16 --max_seq_len 2048",
     {"convert m --context-length 2048 --dtype bf16 -o out"}},
    // executorch
    {"export_llm base.model_class=qwen3_0_6b base.params=p.json quantization.qmode=8da4w "
     "quantization.group_size=128 export.max_context_length=2048 export.output_name=q.pte "
     "backend.xnnpack.enabled=True",
     {"convert Qwen/Qwen3-0.6B --context-length 2048 --quantize 8da4w-g128 -o q"}},
    {"export_llm base.model_class=qwen3_0_6b model.use_attention_sink=4,252 "
     "export.max_context_length=2048 export.max_seq_length=252",
     {"convert Qwen/Qwen3-0.6B --attention-sink 4,252 --prefill-length 252 -o Qwen3-0.6B"}},
    {"python -m examples.models.llama.export_llama --checkpoint model.pth -p params.json -kv "
     "--use_sdpa_with_kv_cache -X -qmode 8da4w --group_size 128 -d fp32 --embedding-quantize 4,32 "
     "--output_name llama.pte",
     {"convert model.pth --dtype f32 --quantize 8da4w-g128 --quantize-embedding 4,32 -o llama"}},
    {"llama_main --model_path=llama.pte --tokenizer_path=tok/tokenizer.json --prompt=Hello "
     "--temperature=0",
     {"run --text-decoder llama.pte --tokenizer tok --temperature 0 --prompt Hello"}},
    // hf and transformers
    {"hf download Qwen/Qwen3-0.6B --revision v1", {"inspect Qwen/Qwen3-0.6B@v1"}},
    {"huggingface-cli download Qwen/Qwen3-0.6B config.json", {"inspect Qwen/Qwen3-0.6B"}},
    {"transformers chat Qwen/Qwen3-0.6B",
     {"convert Qwen/Qwen3-0.6B -o Qwen3-0.6B", "run Qwen3-0.6B --interactive"}},
    {"transformers-cli serve", {"run BUNDLE --interactive"}},
    // ollama
    {"run bundle 'Why is the sky blue?'", {"run bundle --chat 'Why is the sky blue?'"}},
    {"ollama run hf.co/bartowski/Qwen3-GGUF:Q4_K_M Hello",
     {"run hf.co/bartowski/Qwen3-GGUF:Q4_K_M --chat Hello"}},
    {"pull Qwen/Qwen3-0.6B", {"inspect Qwen/Qwen3-0.6B"}},
    {"show m.gguf", {"inspect m.gguf"}},
    {"list", {"inspect PATH"}},
    {"ollama create mine -f Modelfile --quantize q4_K_M",
     {"convert SRC --to gguf --outtype q4_k_m -o SRC-q4_k_m.gguf"}},
    // what anybody may type
    {"chat bundle", {"run bundle --interactive"}},
    {"generate bundle Hello --max-tokens 5", {"run bundle --max-new 5 --chat Hello"}},
    {"serve bundle", {"run bundle --interactive"}},
    {"info bundle", {"inspect bundle"}},
    {"validate bundle", {"check bundle"}},
    {"run bundle -p a --max-new-tokens 7", {"run bundle --max-new 7 --prompt a"}},
    {"--json quantize in.gguf Q8_0",
     {"convert in.gguf --json --to gguf --outtype q8_0 -o in-q8_0.gguf"}},
};

TEST(OtherTools, TheirLinesAreAnsweredWithOurs) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.typed);
    const Line line = words_of(c.typed);
    const Outcome outcome = c.typed.starts_with("--json") ? run_ferry_once(line) : run_ferry(line);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(commands_of(outcome.err), c.meant) << outcome.err;
  }
}

TEST(OtherTools, EveryAnswerIsALineOfOurs) {
  const TempDir dir;
  std::set<std::string> verbs;
  size_t commands = 0;
  for (const Case& c : kCases) {
    for (const std::string& command : commands_of(run_ferry_once(words_of(c.typed)).err)) {
      SCOPED_TRACE(command);
      ++commands;
      const Line line = words_of(command);
      verbs.insert(line.front());
      // The models are not there, or are not named: that is the error, not the words.
      const Outcome outcome =
          run_program(FERRY_BINARY, line, {"HF_HUB_CACHE=" + dir.path(), "HOME=" + dir.path()});
      EXPECT_EQ(outcome.err.find("not expected"), std::string::npos) << outcome.err;
      EXPECT_EQ(outcome.err.find("did you mean"), std::string::npos) << outcome.err;
      EXPECT_EQ(outcome.err.find("see ferry"), std::string::npos) << outcome.err;
      EXPECT_NE(outcome.code, 2) << outcome.err;
      EXPECT_NE(outcome.code, 70) << outcome.err;
    }
  }
  EXPECT_GE(commands, 50U);
  EXPECT_GE(verbs.size(), 6U);
}

// Answers are right for real files, not only in their words.
TEST(OtherTools, AnswersDoWhatWasMeant) {
  const TempDir dir;
  const std::string source = fixture("llama3_tied");
  const auto follow = [](const Line& typed) {
    for (const std::string& command : commands_of(run_ferry_once(typed).err)) {
      const Outcome outcome = run_ferry_once(words_of(command));
      EXPECT_EQ(outcome.code, 0) << command << "\n" << outcome.err;
    }
  };
  follow({"convert_hf_to_gguf.py", source, "--outfile", dir / "m.gguf", "--outtype", "f16"});
  EXPECT_TRUE(read_bytes(dir / "m.gguf").starts_with("GGUF"));
  follow({"llama-quantize", dir / "m.gguf", dir / "q.gguf", "Q8_0"});
  EXPECT_TRUE(read_bytes(dir / "q.gguf").starts_with("GGUF"));
  follow({"mlx_lm.convert", "--hf-path", source, "-q", "--q-group-size", "32", "--mlx-path",
          dir / "b"});
  follow({"info", dir / "b"});
  follow({"validate", dir / "b"});
}

TEST(OtherTools, WhatHasNoEquivalentIsSaid) {
  const Outcome gpu = run_ferry({"run", "m.gguf", "-p", "a", "-ngl", "99", "--mlock"});
  EXPECT_NE(gpu.err.find("\n  without an equivalent: -ngl 99 --mlock\n"), std::string::npos)
      << gpu.err;
  const Outcome pull = run_ferry({"ollama", "pull", "Qwen/Qwen3-0.6B"});
  EXPECT_NE(pull.err.find("\n  Ferry downloads nothing; this does: hf download Qwen/Qwen3-0.6B\n"),
            std::string::npos)
      << pull.err;
  const Outcome serve = run_ferry({"serve", "m.gguf"});
  EXPECT_NE(serve.err.find("\n  there is no server; this is a chat in the terminal\n"),
            std::string::npos)
      << serve.err;
  const Outcome type = run_ferry({"quantize", "a.gguf", "IQ3_XS"});
  EXPECT_NE(type.err.find("iq3_xs is not written; of Ferry's types q3_k_m is next to it"),
            std::string::npos)
      << type.err;
}

TEST(OtherTools, NothingIsGuessedFromWordsThatNobodyKnows) {
  for (const Line& line : {Line{"frobnicate", "x"}, Line{"run", "x", "--frobnicate", "-p", "a"},
                           Line{"convert", "x", "y", "z"}, Line{"quantize", "a\x1b[31m", "Q8_0"},
                           Line{"run", "x", "-p"}, Line{"quantize"}, Line{"python"}}) {
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err.find("\x1b"), std::string::npos);
    const bool is_empty =
        line == Line{"quantize"};  // the verb is known, and SRC stands for the file
    EXPECT_EQ(commands_of(outcome.err).empty(), !is_empty) << outcome.err;
  }
}

}  // namespace
}  // namespace ferry::other_tools_test
