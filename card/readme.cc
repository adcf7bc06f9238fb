#include "card/card.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "card/licences.h"
#include "card/texts.h"
#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::card {
namespace {

// -- front matter

void add_scalar(std::string& out, std::string_view key, std::string_view value) {
  if (!value.empty()) out += fmt::format("{}: {}\n", key, yaml_scalar(value));
}

void add_list(std::string& out, std::string_view key, const std::vector<std::string>& values) {
  if (values.empty()) return;
  out += fmt::format("{}:\n", key);
  for (const std::string& value : values) out += fmt::format("- {}\n", yaml_scalar(value));
}

// The repository's own base model is the checkpoint. Without its name, the card's base models are
// the nearest that is known.
std::vector<std::string> base_models(const Facts& facts) {
  if (!facts.checkpoint_name.empty()) return {facts.checkpoint_name};
  return facts.card.base_models;
}

// Tags of the checkpoint that name its own files or library would be wrong here.
std::vector<std::string> tags(const Facts& facts) {
  constexpr std::array<std::string_view, 8> kOfFiles = {"safetensors",  "pytorch", "gguf", "onnx",
                                                        "transformers", "tf",      "jax",  "keras"};
  std::vector<std::string> all = {"executorch", "ferry", facts.manifest.model_type};
  for (const std::string& tag : facts.card.tags) {
    const bool is_known = std::ranges::count(all, tag) + std::ranges::count(kOfFiles, tag) > 0;
    if (!is_known) all.push_back(tag);
  }
  return all;
}

// Returns the task that the checkpoint's card states, or the one that the programs do.
std::string task(const Facts& facts) {
  if (!facts.card.pipeline_tag.empty()) return facts.card.pipeline_tag;
  if (facts.manifest.find(kVisionEncoderRole) != nullptr) return "image-text-to-text";
  if (packer::row_encoder(facts.manifest, kAudioEncoderRole) != nullptr) {
    return "audio-text-to-text";
  }
  if (facts.manifest.find(kAudioEncoderRole) != nullptr) return "automatic-speech-recognition";
  if (facts.manifest.find(kSourceEncoderRole) != nullptr) return "text2text-generation";
  return facts.manifest.find(kTextDecoderRole) != nullptr ? "text-generation"
                                                          : "feature-extraction";
}

std::string front_matter(const Facts& facts) {
  std::string out = "---\n";
  const CheckpointCard& card = facts.card;
  if (card.licenses.size() == 1) {
    add_scalar(out, "license", card.licenses.front());
  } else {
    add_list(out, "license", card.licenses);
  }
  add_scalar(out, "license_name", card.license_name);
  add_scalar(out, "license_link", card.license_link);
  add_list(out, "base_model", base_models(facts));
  const bool is_quantised = !quantization_of(facts.manifest).empty();
  if (is_quantised && !base_models(facts).empty()) out += "base_model_relation: quantized\n";
  add_list(out, "datasets", card.datasets);
  add_list(out, "language", card.languages);
  add_scalar(out, "pipeline_tag", task(facts));
  out += "library_name: executorch\n";
  add_list(out, "tags", tags(facts));
  return out + "---\n\n";
}

// -- text

std::string hub_link(const std::string& name, const char* below = "") {
  if (!is_hub_name(name)) return markdown(name);
  return fmt::format("[{}](https://huggingface.co/{}{})", markdown(name), below, name);
}

std::string hub_links(const std::vector<std::string>& names, const char* below = "") {
  std::string out;
  for (const std::string& name : names) {
    out += fmt::format("{}{}", out.empty() ? "" : ", ", hub_link(name, below));
  }
  return out;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ", ") + markdown(text);
  return out;
}

std::string licence_text(const CheckpointCard& card) {
  std::string out;
  for (const std::string& licence : card.licenses) {
    std::string name = licence_name(licence);
    if (const auto id = spdx_id(licence)) name = std::string(*id);
    if (licence == "other" && !card.license_name.empty()) name = card.license_name;
    const bool has_link = is_web_address(card.license_link) && card.licenses.size() == 1;
    const std::string shown =
        has_link ? fmt::format("[{}](<{}>)", markdown(name), card.license_link) : markdown(name);
    out += (out.empty() ? "" : ", ") + shown;
  }
  return out;
}

void add_row(std::string& out, std::string_view name, std::string_view value) {
  if (!value.empty()) out += fmt::format("| {} | {} |\n", name, value);
}

std::string weights_text(const packer::Manifest& manifest) {
  std::string out;
  for (const packer::ManifestComponent& component : manifest.components) {
    std::string how = component.quantization;
    if (how.empty()) how = component.weight_dtype;
    if (how.empty()) how = manifest.weight_dtype;
    out += (out.empty() ? "" : ", ") + markdown(how);
    if (manifest.components.size() > 1) out += fmt::format(" ({})", markdown(component.role));
  }
  return out;
}

std::string backends_text(const packer::Manifest& manifest) {
  std::vector<std::string> names;
  for (const packer::ManifestProgram* program : manifest.programs()) {
    for (const std::string& name : program->backends) {
      if (!std::ranges::count(names, name)) names.push_back(name);
    }
  }
  return names.empty() ? "none: operators of ExecuTorch's kernels" : joined(names);
}

std::string model_table(const Facts& facts) {
  const packer::Manifest& m = facts.manifest;
  std::string out = "| | |\n|---|---|\n";
  add_row(out, "Architecture",
          fmt::format("{}, {} layers, hidden size {}, vocabulary of {}", markdown(m.model_type),
                      m.num_layers, m.hidden_size, m.vocab_size));
  const std::string context =
      m.attention_sink ? fmt::format("without an end: the first {} and the last {} tokens",
                                     m.attention_sink->sink, m.attention_sink->window)
                       : fmt::format("{} tokens", m.context_length);
  add_row(out, "Context", fmt::format("{}, at most {} in one call", context, m.prefill_length));
  add_row(out, "Programs", fmt::format("{}, {}", markdown(m.program_style), m.programs().size()));
  add_row(out, "Weights", weights_text(m));
  add_row(out, "Backends", backends_text(m));
  add_row(out, "Size", human_bytes(facts.bytes));
  add_row(out, "Checkpoint", hub_link(facts.checkpoint_name));
  add_row(out, "Base model", hub_links(facts.card.base_models));
  add_row(out, "Licence", licence_text(facts.card));
  add_row(out, "Data sets", hub_links(facts.card.datasets, "datasets/"));
  add_row(out, "Languages", joined(facts.card.languages));
  return out + "\n";
}

bool has_tokenizer(const Facts& facts) {
  return std::ranges::any_of(facts.files, [](const FactFile& file) {
    return file.name.starts_with("tokenizer.") || file.name.ends_with(".tiktoken") ||
           file.name == "tekken.json" || file.name == "vocab.json" || file.name == "vocab.txt";
  });
}

// Returns a name as a word of a shell, inside of a block of code.
std::string shell_word(const std::string& name) {
  const bool is_safe = printable(name) == name && !name.starts_with('-');
  if (!is_safe) return "BUNDLE";
  return is_hub_name(name) ? name : "'" + name + "'";
}

std::string run_section(const Facts& facts) {
  const std::string name = shell_word(facts.bundle);
  std::string line = fmt::format("ferry run {} --tokens 1,2,3", name);
  if (facts.manifest.find(kTextEncoderRole) != nullptr) {
    line = fmt::format("ferry embed {} {}", name,
                       has_tokenizer(facts) ? "--text \"A sentence.\"" : "--tokens 1,2,3");
  } else if (packer::row_encoder(facts.manifest, kAudioEncoderRole) != nullptr) {
    line = fmt::format("ferry run {} --audio talk.wav --chat \"What is said?\"", name);
  } else if (facts.manifest.find(kAudioEncoderRole) != nullptr) {
    line = fmt::format("ferry transcribe {} talk.wav", name);
  } else if (has_tokenizer(facts)) {
    const bool sees = facts.manifest.find(kVisionEncoderRole) != nullptr;
    const bool reads = facts.manifest.find(kSourceEncoderRole) != nullptr;
    line = fmt::format("ferry run {} {}--prompt \"{}\"", name, sees ? "--image photo.jpg " : "",
                       sees    ? "What is in the picture?"
                       : reads ? "The house is wonderful."
                               : "The capital of France is");
  }
  return fmt::format(
      "## How to run\n\n"
      "```sh\nferry check {}   # the files are complete and undamaged\n{}\n```\n\n"
      "The `.pte` files are programs of ExecuTorch, and the `.ptd` files their weights; any "
      "ExecuTorch runtime with the backends above and the operators that they name loads "
      "them.\n\n",
      name, line);
}

std::string bound_text(const ProvedFigure& f) {
  std::string out;
  if (f.max_abs_bound) out = fmt::format("at most {:.3g} apart", *f.max_abs_bound);
  if (f.source == "noise") out = "noise of f32";
  if (f.floor) out += fmt::format("{}SQNR {:.1f} dB", out.empty() ? "" : ", ", *f.floor);
  return out.empty() ? "measured" : out;
}

std::string figure_text(std::optional<double> value, const char* unit = "") {
  return value ? fmt::format("{:.3g}{}", *value, unit) : std::string("-");
}

std::string proof_table(const ProofFigures& proof) {
  std::string out =
      "| what | beside | largest difference | SQNR | KL (nats) | same top token | greedy tokens | "
      "bound |\n|---|---|---|---|---|---|---|---|\n";
  for (const ProvedFigure& f : proof.figures) {
    const auto share = f.top1_agreement ? std::optional(*f.top1_agreement * 100) : std::nullopt;
    const std::string greedy =
        f.greedy_total > 0 ? fmt::format("{} of {}", f.greedy_match, f.greedy_total) : "-";
    out += fmt::format("| {}: {} | {} | {} | {} | {} | {} | {} | {} |\n", markdown(f.output),
                       markdown(f.ours), markdown(f.expected), figure_text(f.max_abs),
                       figure_text(f.sqnr_db, " dB"), figure_text(f.kl_mean),
                       figure_text(share, " %"), greedy, bound_text(f));
  }
  return out + "\n";
}

std::string list(const char* heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return {};
  std::string out = fmt::format("{}\n\n", heading);
  for (const std::string& line : lines) out += fmt::format("- {}\n", markdown(line));
  return out + "\n";
}

std::string proof_section(const Facts& facts) {
  std::string out = "## Proof\n\n";
  if (!facts.proof) {
    return out +
           "No proof came with this card. `ferry verify` compares a bundle with its "
           "checkpoint and with outputs of the original implementation.\n\n";
  }
  const ProofFigures& proof = *facts.proof;
  out += proof.attested ? fmt::format("The bundle {}.\n\n", markdown(proof.claim))
                        : fmt::format("Verdict: {}.\n\n", markdown(proof.claim));
  out += proof_table(proof);
  out += list("Proved:", proof.proves) + list("Not proved:", proof.does_not_prove);
  if (!proof.attested) {
    return out + fmt::format("The figures are those of {}, a report that is not signed.\n\n",
                             markdown(proof.name));
  }
  out += fmt::format("They are those of {}, a signed attestation", markdown(proof.name));
  if (proof.signer) {
    out += fmt::format("; the key that signed it ({}) has the SHA-256 {}", proof.signer->curve,
                       proof.signer->key);
  }
  return out + fmt::format(
                   ". Whoever trusts the key checks it so:\n\n```sh\nferry check {} "
                   "--attestation {} --public-key KEY\n```\n\n",
                   shell_word(facts.bundle), shell_word(proof.name));
}

std::string files_section(const Facts& facts) {
  std::string out = "## Files\n\n| file | bytes | SHA-256 |\n|---|---|---|\n";
  for (const FactFile& file : facts.files) {
    out += fmt::format("| {} | {} | `{}` |\n", markdown(file.name), file.bytes, file.sha256);
  }
  return out + "\n";
}

std::string making_section(const Facts& facts) {
  std::string out = "## How it was made\n\n";
  const packer::ManifestTool& tool = facts.manifest.tool;
  if (!tool.name.empty()) {
    out += fmt::format("By {} {}", markdown(tool.name), markdown(tool.version));
    out += facts.manifest.options.empty() ? ".\n\n" : ", with these options:\n\n";
  }
  if (!facts.manifest.options.empty()) {
    out += "| option | value |\n|---|---|\n";
    for (const packer::ManifestOption& option : facts.manifest.options) {
      out += fmt::format("| {} | {} |\n", markdown(option.name), markdown(option.value));
    }
    out += "\n";
  }
  return out +
         "`bom.cdx.json` is the bill of materials (CycloneDX 1.7), and `provenance.json` "
         "says of which files the bundle was made (SLSA Provenance v1).";
}

}  // namespace

std::string readme(const Facts& facts) {
  std::string out = front_matter(facts);
  out += fmt::format("# {}\n\n", markdown(facts.bundle));
  const std::string of =
      facts.checkpoint_name.empty()
          ? fmt::format("a model of the type {}", markdown(facts.manifest.model_type))
          : hub_link(facts.checkpoint_name);
  out += fmt::format("This is {} as ExecuTorch programs, in a Ferry bundle.\n\n", of);
  out += model_table(facts) + run_section(facts) + proof_section(facts) + files_section(facts) +
         making_section(facts);
  out += facts.is_signed ? " The bundle has a signature, `model.sig` (OpenSSF Model Signing).\n"
                         : "\n";
  return out;
}

}  // namespace ferry::card
