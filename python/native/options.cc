#include "native/options.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "native/call.h"

namespace nb = nanobind;

namespace ferry::python {
namespace {

// Options as a dictionary. None counts as absent. done() raises TypeError for names that nothing
// has read.
class Options {
 public:
  explicit Options(const nb::dict& options) : left_(nb::borrow<nb::dict>(options.attr("copy")())) {}

  template <class T>
  Options& read(const char* name, T& field) {
    if (const nb::object value = left_.attr("pop")(name, nb::none()); !value.is_none()) {
      try {
        field = nb::cast<T>(value);
      } catch (const std::bad_cast&) {
        throw nb::type_error((std::string(name) + ": a value of another type").c_str());
      }
    }
    return *this;
  }
  template <class T, size_t N>
  Options& read(const char* name, T& field,
                const std::array<std::pair<std::string_view, T>, N>& words) {
    std::string word;
    if (read(name, word); word.empty()) return *this;
    const auto found = std::ranges::find(words, word, &std::pair<std::string_view, T>::first);
    if (found == words.end()) {
      std::string known;
      for (const auto& [text, value] : words)
        known += (known.empty() ? "" : ", ") + std::string(text);
      raise({ErrorCode::kUsage,
             std::string(name) + ": '" + word + "' is none of " + known,
             {},
             name});
    }
    field = found->second;
    return *this;
  }
  void done() const {
    if (left_.size() == 0) return;
    throw nb::type_error(("unexpected option: " + nb::cast<std::string>(left_.keys()[0])).c_str());
  }

 private:
  nb::dict left_;
};

constexpr std::array<std::pair<std::string_view, OutputFormat>, 7> kFormats = {
    {{"bundle", OutputFormat::kBundle},
     {"safetensors", OutputFormat::kSafetensors},
     {"hf", OutputFormat::kHuggingFace},
     {"pth", OutputFormat::kPyTorch},
     {"bpte", OutputFormat::kBundledProgram},
     {"gguf", OutputFormat::kGguf},
     {"mmproj", OutputFormat::kMmproj}}};
constexpr std::array<std::pair<std::string_view, WeightType>, 4> kWeightTypes = {
    {{"keep", WeightType::kKeep},
     {"f32", WeightType::kF32},
     {"f16", WeightType::kF16},
     {"bf16", WeightType::kBF16}}};
constexpr std::array<std::pair<std::string_view, ValueType>, 6> kValueTypes = {
    {{"f32", ValueType::kF32},
     {"f16", ValueType::kF16},
     {"bf16", ValueType::kBF16},
     {"u16", ValueType::kU16},
     {"u8", ValueType::kU8},
     {"i8", ValueType::kI8}}};
constexpr std::array<std::pair<std::string_view, ProgramKind>, 4> kProgramKinds = {
    {{"auto", ProgramKind::kAuto},
     {"stateful", ProgramKind::kStateful},
     {"static", ProgramKind::kStatic},
     {"encoder", ProgramKind::kEncoder}}};
constexpr std::array<std::pair<std::string_view, DecodeMode>, 4> kModes = {
    {{"default", DecodeMode::kDefault},
     {"kv", DecodeMode::kKv},
     {"hybrid", DecodeMode::kHybrid},
     {"lookahead", DecodeMode::kLookahead}}};
constexpr std::array<std::pair<std::string_view, LinearScheme>, 4> kSchemes = {
    {{"none", LinearScheme::kNone},
     {"8da4w", LinearScheme::k8da4w},
     {"8da8w", LinearScheme::k8da8w},
     {"int8", LinearScheme::kInt8}}};

// Parses "8da4w", "8da4w-g64" and the like.
LinearQuantization quantization_of(const std::string& text, const char* field) {
  LinearQuantization linear;
  const size_t dash = text.find("-g");
  const auto found = std::ranges::find(kSchemes, text.substr(0, dash),
                                       &std::pair<std::string_view, LinearScheme>::first);
  bool good = found != kSchemes.end();
  if (good) linear.scheme = found->second;
  if (good && dash != std::string::npos) {
    const std::string digits = text.substr(dash + 2);
    good = !digits.empty() && digits.size() < 7 &&
           std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
    if (good) linear.group = std::stoll(digits);
  }
  if (!good) {
    raise({ErrorCode::kUsage,
           std::string(field) + ": '" + text + "' is none of none, 8da4w, 8da4w-gN, 8da8w, int8",
           {},
           field});
  }
  return linear;
}

// Returns the values of an array. Integers are refused, because nothing says what their greatest
// value is.
std::vector<float> samples_of(const nb::object& given) {
  using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::device::cpu>;
  using Floats = nb::ndarray<const float, nb::ndim<1>, nb::device::cpu>;
  const auto read = [](const auto& array) {
    std::vector<float> samples;
    samples.reserve(array.shape(0));
    for (size_t i = 0; i < array.shape(0); ++i) samples.push_back(static_cast<float>(array(i)));
    return samples;
  };
  Floats floats;
  if (nb::try_cast(given, floats, /*convert=*/false)) return read(floats);
  Doubles doubles;
  if (nb::try_cast(given, doubles, /*convert=*/false)) return read(doubles);
  throw nb::type_error("samples: expected an array of one dimension, float32 or float64");
}

}  // namespace

ConvertOptions convert_options(const nb::dict& given) {
  ConvertOptions o;
  Options options(given);
  std::string quantize = "none";
  nb::list rule_list;
  options.read("source", o.source).read("config", o.config).read("lora", o.lora);
  options.read("mmproj", o.mmproj);
  options.read("format", o.format, kFormats)
      .read("gguf_type", o.gguf_type)
      .read("gguf_imatrix", o.gguf_imatrix);
  options.read("dtype", o.dtype, kWeightTypes).read("quantize", quantize);
  options.read("quantize_rules", rule_list).read("embedding_bits", o.embedding_bits);
  options.read("embedding_group", o.embedding_group).read("hqq", o.hqq);
  options.read("calibrate_weights", o.calibrate_weights);
  options.read("quantize_budget", o.quantize_budget);
  options.read("max_file_bytes", o.max_file_bytes).read("allow_unmapped", o.allow_unmapped);
  options.read("program", o.program, kProgramKinds).read("context_length", o.context_length);
  options.read("prefill_length", o.prefill_length).read("decode_length", o.decode_length);
  options.read("kv_type", o.kv_type, kValueTypes).read("mask_type", o.mask_type, kValueTypes);
  options.read("logits_type", o.logits_type, kValueTypes).read("all_logits", o.all_logits);
  nb::list adapters;
  options.read("adapters", adapters).read("int8_adapters", o.int8_adapters);
  std::optional<std::pair<int64_t, int64_t>> image_size;
  std::optional<std::pair<int64_t, int64_t>> attention_sink;
  options.read("attention_sink", attention_sink);
  options.read("sink_text_positions", o.sink_text_positions);
  options.read("image_size", image_size).read("one_program", o.one_program);
  options.read("images", o.images)
      .read("sounds", o.sounds)
      .read("max_patches", o.max_patches)
      .read("max_sound", o.max_sound)
      .read("max_source", o.max_source)
      .read("shards", o.shards)
      .read("reference", o.reference)
      .read("output", o.output);
  options.done();
  for (const nb::handle adapter : adapters) {
    const auto [name, directory] = nb::cast<std::pair<nb::str, nb::str>>(adapter);
    o.adapters.push_back({name.c_str(), directory.c_str()});
  }
  if (attention_sink) {
    o.attention_sink = SinkAndWindow{attention_sink->first, attention_sink->second};
  }
  if (image_size) o.image_size = ImageSize{image_size->first, image_size->second};
  o.quantize = quantization_of(quantize, "quantize");
  for (const nb::handle rule : rule_list) {
    const auto [pattern, scheme] = nb::cast<std::pair<nb::str, nb::str>>(rule);
    o.quantize_rules.push_back(
        {pattern.c_str(), quantization_of(scheme.c_str(), "quantize_rules")});
  }
  return o;
}

Sound sound_of(const nb::dict& given) {
  Sound sound;
  nb::object samples = nb::none();
  Options options(given);
  options.read("path", sound.path).read("rate", sound.rate).read("samples", samples).done();
  if (!samples.is_none()) sound.samples = samples_of(samples);
  return sound;
}

TranscribeOptions transcribe_options(const nb::dict& given) {
  TranscribeOptions o;
  Options options(given);
  options.read("language", o.language).read("task", o.task);
  options.read("timestamps", o.timestamps).done();
  return o;
}

Prompt prompt_of(const nb::dict& given) {
  Prompt prompt;
  std::vector<nb::dict> sounds;
  std::vector<std::pair<std::string, double>> videos;
  Options options(given);
  options.read("tokens", prompt.tokens).read("text", prompt.text);
  options.read("chat_json", prompt.chat_json).read("images", prompt.images);
  options.read("sounds", sounds).read("videos", videos).done();
  for (const auto& [path, fps] : videos) prompt.videos.push_back({path, fps});
  for (const nb::dict& sound : sounds) prompt.sounds.push_back(sound_of(sound));
  return prompt;
}

GenerateOptions generate_options(const nb::dict& given) {
  GenerateOptions o;
  Options options(given);
  SamplingOptions& s = o.sampling;
  options.read("max_new_tokens", o.max_new_tokens).read("stops", o.stops);
  options.read("ignore_end_tokens", o.ignore_end_tokens).read("temperature", s.temperature);
  options.read("top_k", s.top_k).read("top_p", s.top_p).read("min_p", s.min_p);
  options.read("repetition_penalty", s.repetition_penalty).read("seed", s.seed).done();
  return o;
}

EmbedOptions embed_options(const nb::dict& given) {
  EmbedOptions o;
  std::string prompt;
  Options options(given);
  if (given.contains("prompt") && !given["prompt"].is_none()) o.prompt.emplace();
  options.read("prompt", prompt).read("prompt_name", o.prompt_name);
  options.read("truncate", o.truncate).read("width", o.width).read("normalize", o.normalize).done();
  if (o.prompt) o.prompt = prompt;
  return o;
}

WriteOptions write_options(const nb::dict& given) {
  WriteOptions o;
  Options options(given);
  options.read("path", o.path).read("overwrite", o.overwrite);
  options.read("resume", o.resume).read("sync", o.sync).done();
  return o;
}

OpenOptions open_options(const nb::dict& given) {
  OpenOptions o;
  Options options(given);
  options.read("path", o.path).read("config", o.config).read("mmproj", o.mmproj);
  options.read("check_digests", o.check_digests).read("exact", o.exact);
  options.read("all_logits", o.all_logits).done();
  return o;
}

GeneratorOptions generator_options(const nb::dict& given) {
  GeneratorOptions o;
  Options options(given);
  options.read("mode", o.mode, kModes)
      .read("memory", o.memory)
      .read("lookup", o.lookup)
      .read("parallel", o.parallel)
      .read("kv_bits", o.kv_bits)
      .done();
  return o;
}

VerifyOptions verify_options(const nb::dict& given) {
  VerifyOptions o;
  Options options(given);
  options.read("reference", o.reference).read("checkpoint", o.checkpoint);
  options.read("config", o.config).read("lora", o.lora).read("against", o.against);
  options.read("mmproj", o.mmproj);
  options.read("calibrate_weights", o.calibrate_weights);
  options.read("images", o.images).read("tolerance", o.tolerance).read("memory", o.memory).done();
  return o;
}

AdapterEdit adapter_edit(const nb::dict& given) {
  AdapterEdit o;
  Options options(given);
  options.read("bundle", o.bundle).read("name", o.name).read("adapter", o.adapter);
  options.read("overwrite", o.overwrite).read("private_key", o.private_key);
  options.read("passphrase_file", o.passphrase_file).read("certificate", o.certificate);
  options.read("chain", o.chain).done();
  return o;
}

SignOptions sign_options(const nb::dict& given) {
  SignOptions o;
  Options options(given);
  options.read("path", o.path).read("private_key", o.private_key);
  options.read("passphrase_file", o.passphrase_file).read("certificate", o.certificate);
  options.read("chain", o.chain).read("signature", o.signature);
  options.read("ignore_paths", o.ignore_paths).read("shard_bytes", o.shard_bytes).done();
  return o;
}

SignatureCheckOptions signature_check_options(const nb::dict& given) {
  SignatureCheckOptions o;
  Options options(given);
  options.read("path", o.path).read("signature", o.signature).read("public_key", o.public_key);
  options.read("root_certificates", o.root_certificates).read("at", o.at);
  options.read("ignore_unsigned_files", o.ignore_unsigned_files).done();
  return o;
}

}  // namespace ferry::python
