#include "cli/other_draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

#include "conversion/export.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr std::string_view kGguf = ".gguf";

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_path_there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool names_gguf(const std::string& source) {
  return lower_case(source).find("gguf") != std::string::npos;
}

// Whether the model must be converted before it can run.
bool needs_bundle(const std::string& source) {
  std::error_code error;
  if (is_path_there(source)) {
    const bool is_bundle = is_path_there(source + "/manifest.json");
    return source.ends_with(".safetensors") ||
           (is_path_there(source + "/config.json") && !is_bundle);
  }
  // A name on the hub, not a path into a folder that is there.
  const size_t slash = source.find('/');
  return slash != std::string::npos && slash > 0 && slash == source.rfind('/') &&
         source[0] != '.' && !names_gguf(source) && !source.ends_with(".pte") &&
         !fs::is_directory(source.substr(0, slash), error);
}

// Returns a name for what is made of the source: "Qwen3-0.6B" for "Qwen/Qwen3-0.6B@main".
std::string name_of(const std::string& source) {
  std::string path = source;
  while (path.ends_with('/')) path.pop_back();
  std::string name = base_name(path);
  name = name.substr(0, name.find_first_of("@:"));
  for (const std::string_view end : {".gguf", ".safetensors", ".pte", ".pth", ".pt"}) {
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  }
  if (name.empty() || name == "." || name == "..") name = "model";
  return is_path_there(name) ? name + "-ferry" : name;
}

// Whether a word is a type of llama-quantize, such as Q4_K_M.
bool is_quantized_type(const std::string& word) {
  const std::string type = lower_case(word);
  if (type == "f16" || type == "bf16" || type == "f32" || type == "copy") return true;
  const size_t q = type.find('q');
  return q <= 1 && q + 1 < type.size() && std::isdigit(static_cast<unsigned char>(type[q + 1])) &&
         (q == 0 || type[0] == 'i' || type[0] == 't') && type.find('.') == std::string::npos &&
         type.find('/') == std::string::npos;
}

// Returns the number of bits in a name such as "q5_k_m".
int bits_of(const std::string& type) {
  const size_t digit = type.find_first_of("0123456789");
  return digit == std::string::npos ? 0 : type[digit] - '0';
}

// Returns the type that convert --to gguf writes, with a note where it writes another one.
std::string out_type(const std::string& given, std::vector<std::string>& notes) {
  std::string type = lower_case(given);
  if (type == "copy") return "auto";
  if (type == "q3_k" || type == "q4_k" || type == "q5_k") return type + "_m";
  if (std::ranges::count(conversion::gguf_type_words(), type) > 0) return type;
  const int bits = bits_of(type);
  const char* near = bits == 0 || bits > 4 ? "q8_0"
                     : bits > 3            ? "q4_k_m"
                     : bits > 2            ? "q3_k_m"
                                           : "q2_k";
  notes.push_back(fmt::format("{} is not written; of Ferry's types {} is next to it", type, near));
  return near;
}

std::string dtype(const std::string& given) {
  const std::string name = lower_case(given);
  if (name == "float32" || name == "fp32" || name == "float") return "f32";
  if (name == "float16" || name == "fp16" || name == "half") return "f16";
  if (name == "bfloat16") return "bf16";
  return name == "auto" ? "keep" : name;
}

// Returns "8da4w-g64" for a scheme of 4 bits; XNNPACK wants groups of a multiple of 32.
std::string scheme_of(const OtherDraft& d) {
  constexpr int kMultiple = 32;
  std::string scheme = lower_case(d.scheme);
  std::string group = d.group;
  if (scheme.empty()) {
    if (!d.quantizes && d.bits.empty() && group.empty()) return {};
    scheme = d.bits.empty() || bits_of(d.bits) <= 4 ? "8da4w" : "8da8w";
    // mlx_lm has groups of 64 unless told otherwise.
    if (group.empty() && d.is(kMlxConvert)) group = "64";
  }
  if (scheme == "none" || scheme.find('4') == std::string::npos) {
    return scheme == "8w" ? "int8" : scheme == "none" || scheme == "int8" ? scheme : "8da8w";
  }
  int size = 0;
  std::from_chars(group.data(), group.data() + group.size(), size);
  return size > 0 && size % kMultiple == 0 ? fmt::format("8da4w-g{}", size) : "8da4w";
}

// Returns the scheme of --quantize-embedding for "4w", "8w", "4,32" or "8,0".
std::string embedding_of(const std::string& given) {
  if (given.starts_with('8')) return "8";
  if (!given.starts_with('4')) return "none";
  return given.size() > 2 && given[1] == ',' && given != "4,0" ? given : "4";
}

void add(Words& words, std::initializer_list<std::string_view> more) {
  words.insert(words.end(), more.begin(), more.end());
}
void add(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

std::string take_first(Words& words) {
  if (words.empty()) return {};
  std::string first = std::move(words.front());
  words.erase(words.begin());
  return first;
}

void settle_source(OtherDraft& d, std::string_view placeholder) {
  if (d.source.empty()) d.source = take_first(d.positionals);
  if (d.source.empty()) d.source = placeholder;
  if (!d.revision.empty()) d.source += "@" + d.revision;
  if (!d.file.empty()) d.source += ":" + d.file;
}

// Adds the conversion that makes the bundle of the line, if it needs one. Returns the bundle.
std::string add_bundle(OtherDraft& d, bool is_needed, std::initializer_list<std::string_view> how) {
  if (!is_needed) return d.source;
  const std::string bundle = name_of(d.source);
  Words convert = {"convert", d.source, "-o", bundle};
  add(convert, how);
  d.meant.commands.push_back(std::move(convert));
  return bundle;
}

bool has_prompt(const OtherDraft& d) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{"--prompt", "--prompt-file", "--chat", "--messages",
                                         "--tokens", "--interactive"},
      [&](const char* name) { return d.has(name); });
}

void add_prompt(OtherDraft& d) {
  const bool is_positional = d.prompt.empty() && !d.positionals.empty();
  if (is_positional) {
    for (const std::string& word : d.positionals) d.prompt += (d.prompt.empty() ? "" : " ") + word;
  }
  if (!d.prompt.empty()) {
    const bool chats = is_positional || d.is(kMlxGenerate);
    const char* option = d.has("--interactive") ? "--system" : chats ? "--chat" : "--prompt";
    if (!d.has(option)) add(d.options, {option, d.prompt});
  } else if (d.is(kLlamaBench)) {
    add(d.options, {"--prompt", "Hello", "--ignore-eos"});
  } else if (!has_prompt(d)) {
    add(d.options, {"--interactive"});
  }
  d.positionals.clear();
}

void add_run(OtherDraft& d) {
  settle_source(d, "BUNDLE");
  add_prompt(d);
  Words line = {"run"};
  if (d.source.ends_with(".pte")) {
    add(line, {"--text-decoder", d.source});
    if (!d.tokenizer.empty()) {
      const std::string parent = fs::path(d.tokenizer).parent_path().string();
      add(line, {"--tokenizer", parent.empty() ? "." : parent});
    }
  } else {
    line.push_back(add_bundle(d, needs_bundle(d.source), {}));
  }
  add(line, d.options);
  d.meant.commands.push_back(std::move(line));
}

// Takes the type and the number of threads of llama-quantize out of the positional words.
void take_quantized_type(OtherDraft& d) {
  if (d.positionals.size() > 2 && is_number(d.positionals.back())) {
    add(d.options, {"--threads", d.positionals.back()});
    d.positionals.pop_back();
  }
  if (d.positionals.empty() || !is_quantized_type(d.positionals.back())) return;
  if (d.positionals.size() == 1 && d.source.empty()) return;
  d.out_type = d.positionals.back();
  d.positionals.pop_back();
}

void add_weights(OtherDraft& d) {
  constexpr unsigned kToGguf = kLlamaQuantize | kLlamaConvert | kOllamaCreate;
  if (!d.out_type.empty() || (!d.is_own && d.is(kToGguf))) {
    const char* otherwise = d.is(kLlamaQuantize) ? "q4_k_m" : "auto";
    d.out_type = out_type(d.out_type.empty() ? otherwise : d.out_type, d.meant.notes);
    if (!d.has("--to")) add(d.options, {"--to", "gguf"});
    add(d.options, {"--outtype", d.out_type});
    return;
  }
  if (!d.dtype.empty()) add(d.options, {"--dtype", dtype(d.dtype)});
  if (const std::string scheme = scheme_of(d); !scheme.empty()) {
    add(d.options, {"--quantize", scheme});
  }
  if (!d.embedding.empty()) add(d.options, {"--quantize-embedding", embedding_of(d.embedding)});
}

void add_out(OtherDraft& d) {
  if (d.has("-o") || d.has("--out") || d.has("-n") || d.has("--dry-run")) return;
  if (d.out.empty()) d.out = take_first(d.positionals);
  if (d.out.empty()) {
    d.out = name_of(d.source);
    if (!d.out_type.empty()) d.out += fmt::format("-{}{}", d.out_type, kGguf);
  }
  // export_llm names a program; Ferry makes a bundle, which is a folder.
  if (d.out.ends_with(".pte")) d.out.resize(d.out.size() - std::string_view(".pte").size());
  add(d.options, {"-o", d.out});
}

// With an attention sink the length of the context follows from it.
void drop_context(OtherDraft& d) {
  constexpr const char* kContext = "--context-length";
  const auto found = std::ranges::find(d.options, kContext);
  if (!d.has("--attention-sink") || found == d.options.end()) return;
  d.options.erase(found, found + 2);
  d.meant.notes.emplace_back("the context has no end with --attention-sink");
}

void add_convert(OtherDraft& d) {
  if (d.is(kOllamaCreate)) d.positionals.clear();  // its name for the model
  take_quantized_type(d);
  settle_source(d, "SRC");
  drop_context(d);
  add_weights(d);
  add_out(d);
  Words line = {"convert", d.source};
  add(line, d.positionals);  // what is left makes the line wrong
  add(line, d.options);
  d.meant.commands.push_back(std::move(line));
}

void add_verify(OtherDraft& d) {
  settle_source(d, "BUNDLE");
  const bool measures = !d.text.empty();
  const std::string bundle =
      add_bundle(d, measures && (needs_bundle(d.source) || names_gguf(d.source)), {});
  Words line = {"verify", bundle};
  if (measures) add(line, {"--perplexity", d.text, "--text"});
  add(line, d.positionals);
  add(line, d.options);
  d.meant.commands.push_back(std::move(line));
}

void add_embed(OtherDraft& d) {
  settle_source(d, "BUNDLE");
  Words line = {"embed", add_bundle(d, needs_bundle(d.source) || names_gguf(d.source),
                                    {"--program", "encoder"})};
  for (const std::string& text : d.positionals) add(line, {"--text", text});
  add(line, d.options);
  d.meant.commands.push_back(std::move(line));
}

void add_tokenize(OtherDraft& d) {
  settle_source(d, "PATH");
  d.meant.commands.push_back({"tokenize", d.source});
  add(d.meant.commands.back(), d.options);
  d.meant.notes.emplace_back("texts are lines of standard input, each a JSON string");
}

void add_inspect(OtherDraft& d) {
  const bool is_named = !d.source.empty() || !d.positionals.empty();
  settle_source(d, "PATH");
  if (d.is(kHub) && is_named && d.meant.notes.empty()) {
    std::string download = "hf download " + d.source.substr(0, d.source.find('@'));
    if (!d.revision.empty()) download += " --revision " + d.revision;
    d.meant.notes.push_back("Ferry downloads nothing; this does: " + download);
  }
  // "hf download ORG/NAME FILE..." names files of the model.
  if (d.is(kHub)) d.positionals.clear();
  d.meant.commands.push_back({d.verb, d.source});
  add(d.meant.commands.back(), d.positionals);
  add(d.meant.commands.back(), d.options);
}

}  // namespace

bool OtherDraft::has(const std::string& option) const {
  return std::ranges::count(options, option) > 0;
}

void add_commands(OtherDraft& draft) {
  if (draft.verb == "run") return add_run(draft);
  if (draft.verb == "convert") return add_convert(draft);
  if (draft.verb == "verify") return add_verify(draft);
  if (draft.verb == "embed") return add_embed(draft);
  if (draft.verb == "tokenize") return add_tokenize(draft);
  add_inspect(draft);
}

}  // namespace ferry::cli
