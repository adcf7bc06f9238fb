#include "plan/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "converters/keys/row_layouts.h"
#include "core/attention_sink.h"
#include "core/dtype.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "core/tiled_picture.h"

namespace ferry::plan {
namespace {

using converters::PackedLayout;
using converters::ProgramStyle;
using converters::Rotation;
using converters::SoftmaxStyle;
using graph::BufferInit;
using graph::WeightDType;

// Attention takes time and memory in proportion to the square of the length.
constexpr int64_t kMostSoundSeconds = 600;

constexpr std::string_view kWholeText =
    "an encoder takes a whole text in one call, and has neither caches nor logits";

const std::vector<WordOf<WeightDType>> kWeightDTypes = {{{"keep"}, WeightDType::kKeep},
                                                        {{"f32"}, WeightDType::kF32},
                                                        {{"f16"}, WeightDType::kF16},
                                                        {{"bf16"}, WeightDType::kBF16}};

template <class... Arguments>
Failure usage(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  return fail(ErrorCode::kUsage, fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Parses "640x480", width before height.
Status read_image_size(const std::string& text, std::optional<Extent>& size) {
  const size_t cross = std::min(text.find('x'), text.size());
  const auto width = number_after(text.substr(0, cross), "");
  const auto height = number_after(text, text.substr(0, cross) + "x");
  const auto is_side = [](const std::optional<int64_t>& side) {
    return side && *side >= 1 && *side <= kMaxResolutionSide;
  };
  if (!is_side(width) || !is_side(height)) {
    return usage("{}: expected WIDTHxHEIGHT, 1 to {} pixels each", quoted(text),
                 kMaxResolutionSide);
  }
  size = Extent{*height, *width};
  return {};
}

// Parses "4,252", the tokens of the sink before those of the window.
Status read_attention_sink(const std::string& text, std::optional<AttentionSink>& sink) {
  const size_t comma = std::min(text.find(','), text.size());
  const auto first = number_after(text.substr(0, comma), "");
  const auto window = number_after(text, text.substr(0, comma) + ",");
  const auto fits = [](const std::optional<int64_t>& count) {
    return count && *count >= 1 && *count <= kMostSinkTokens;
  };
  if (!fits(first) || !fits(window)) {
    return usage("{}: expected SINK,WINDOW, 1 to {} tokens each", quoted(text), kMostSinkTokens);
  }
  sink = AttentionSink{*first, *window};
  return {};
}

// Calls `read` with the name and the value of each item of a list such as "a=1,b=2". `expected`
// says in messages what the list is made of.
Status read_pairs(const std::string& text, std::string_view expected,
                  const std::function<Status(const std::string&, std::string_view)>& read) {
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::string_view item = rest.substr(0, rest.find(','));
    more = item.size() < rest.size();
    rest.remove_prefix(item.size() + (more ? 1 : 0));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size()) {
      return usage("{}: expected {}, separated by commas", quoted(text), expected);
    }
    FERRY_RETURN_IF_ERROR(read(std::string(item.substr(0, equals)), item.substr(equals + 1)));
  }
  return {};
}

// Parses a list such as "vision_encoder=f16,text_decoder=bf16". plan_conversion() checks the roles.
Status read_component_dtypes(const std::string& text, std::map<std::string, WeightDType>& dtypes) {
  constexpr std::string_view kExpected = "ROLE=keep|f32|f16|bf16";
  return read_pairs(
      text, kExpected, [&](const std::string& role, std::string_view value) -> Status {
        const auto dtype = weight_dtype_of(value);
        if (!dtype) return usage("{}: expected {}, separated by commas", quoted(text), kExpected);
        if (!dtypes.emplace(role, *dtype).second) return usage("{} is given twice", quoted(role));
        return {};
      });
}

// Parses a list such as "formal=adapters/formal,short=adapters/short".
Status read_adapters(const std::string& text, std::vector<AdapterChoice>& adapters) {
  return read_pairs(text, "NAME=DIR",
                    [&](const std::string& name, std::string_view path) -> Status {
                      if (!packer::is_adapter_name(name)) {
                        return usage("{} is no name: letters, digits, '-', '_' and '.', at most 64",
                                     quoted(name));
                      }
                      if (std::ranges::count(adapters, name, &AdapterChoice::name) > 0) {
                        return usage("{} is given twice", quoted(name));
                      }
                      adapters.push_back({name, std::string(path)});
                      return {};
                    });
}

std::vector<WordOf<DType>> dtype_words(std::initializer_list<OptionWord> words) {
  std::vector<WordOf<DType>> all;
  for (const OptionWord& word : words) all.push_back({word, *dtype_from_name(word.text)});
  return all;
}

}  // namespace

std::string_view name_of(WeightDType dtype) {
  return std::ranges::find(kWeightDTypes, dtype, &WordOf<WeightDType>::value)->word.text;
}

std::optional<WeightDType> weight_dtype_of(std::string_view name) {
  for (const auto& [word, dtype] : kWeightDTypes) {
    if (word.text == name) return dtype;
  }
  return std::nullopt;
}

namespace {

// Records the values that the fields hold.
class FieldTexts : public OptionVisitor {
 public:
  std::vector<std::pair<Option, std::vector<std::string>>> all;

 private:
  void visit(const Option& option, const OptionField& field) override {
    all.emplace_back(option, field.texts());
  }
};

FieldTexts texts_of(ConvertOptions options) {
  FieldTexts texts;
  describe(texts, options);
  return texts;
}

}  // namespace

Status read_recorded_options(const OptionTexts& texts, ConvertOptions& options) {
  OptionReader reader(texts, OptionReader::From::kManifest);
  describe(reader, options);
  return reader.take();
}

Status check_encoder_options(const ConvertOptions& options) {
  ConvertOptions fresh;
  fresh.style = ProgramStyle::kEncoder;
  const FieldTexts usual = texts_of(fresh), has = texts_of(options);
  for (size_t i = 0; i < has.all.size(); ++i) {
    const auto& [option, texts] = has.all[i];
    if (texts == usual.all[i].second || texts.empty()) continue;
    if (takes(option, texts[0], kEncoderPrograms)) continue;
    return fail_field(ErrorCode::kUsage, std::string(option.name), fmt::format(": {}", kWholeText));
  }
  return {};
}

OptionTexts recorded_options(const ConvertOptions& options, const converters::BuildOptions& build) {
  ConvertOptions settled = options;
  settled.style = build.style;
  settled.context_length = build.context_length;
  settled.prefill_length = build.prefill_length;
  settled.decode_length = build.decode_length;
  settled.max_patches = build.image_patches > 0 ? std::optional(build.image_patches) : std::nullopt;
  settled.max_sound.reset();
  if (build.sound_samples > 0) settled.max_sound = build.sound_samples / converters::kSampleRate;
  if (build.sound_frames > 0) settled.max_sound = build.sound_frames / build.frame_rate;
  settled.max_source = build.source_length > 0 ? std::optional(build.source_length) : std::nullopt;
  if (settled.layout == ProgramLayout::kComponents) settled.layout.reset();
  if (!settled.text_positions.value_or(false)) settled.text_positions.reset();
  FieldTexts fields = texts_of(std::move(settled));
  std::ranges::stable_sort(fields.all, {}, [](const auto& field) { return field.first.place; });
  OptionTexts out;
  for (const auto& [option, texts] : fields.all) {
    if (option.place == 0 || (option.recorded_for & program_bit(build.style)) == 0) continue;
    for (const std::string& text : texts) out.push_back({std::string(option.name), text});
  }
  return out;
}

// -- the options

void describe(OptionVisitor& v, ConvertOptions& o) {
  describe_files(v, o);
  describe_weights(v, o);
  describe_programs(v, o);
  describe_static_programs(v, o);
  describe_checkpoint(v, o);
}

void describe_files(OptionVisitor& v, ConvertOptions& o) {
  v.value({.name = "reference",
           .value = "FILE",
           .help = "Reference to embed, for verify (safetensors or HDF5)",
           .outputs = kBundles | kBundledPrograms},
          o.reference);
  v.text(
      {.name = "max-file-size",
       .value = "SIZE",
       .help = "Split weight files: 500MB, 2GiB, ...",
       .place = 9},
      [&o](const std::string& text) -> Status {
        const std::optional<uint64_t> bytes = parse_size(text);
        if (!bytes) return usage("{}: expected {}", quoted(text), kSizeSyntax);
        o.max_file_bytes = *bytes;
        return {};
      },
      [&o] {
        return o.max_file_bytes > 0 ? std::vector{std::to_string(o.max_file_bytes)}
                                    : std::vector<std::string>();
      });
}

void describe_weights(OptionVisitor& v, ConvertOptions& o) {
  v.group("Weights");
  v.words<WeightDType>({.name = "dtype",
                        .help = "Dtype of the matrices",
                        .otherwise = "keep",
                        .outputs = kAllOutputs & ~kGgufFiles,
                        .instead = "outtype",
                        .place = 1},
                       o.dtype, kWeightDTypes);
  v.text(
      {.name = "component-dtype",
       .value = "ROLE=DTYPE,...",
       .help = "Dtypes of single components: vision_encoder=f16,text_decoder=bf16",
       .outputs = kBundles,
       .place = 2},
      [&o](const std::string& text) { return read_component_dtypes(text, o.component_dtypes); },
      [&o] {
        std::vector<std::string> texts;
        for (const auto& [role, dtype] : o.component_dtypes) {
          texts.push_back(fmt::format("{}={}", role, name_of(dtype)));
        }
        return texts;
      });
  describe_quantization(v, o.quantize);
}

void describe_programs(OptionVisitor& v, ConvertOptions& o) {
  constexpr unsigned kDecoders = kStatefulPrograms | kStaticPrograms;
  constexpr unsigned kWithPrograms = kBundles | kBundledPrograms;
  v.group("Programs");
  // A bundled program is always stateful.
  v.words<std::optional<ProgramStyle>>(
      {.name = "program",
       .help = "Caches inside of the program, or fixed shapes with caches, masks and positions as "
               "inputs and outputs, or states of a whole text instead of logits; default: encoder "
               "for models whose tokens attend to later ones, else stateful",
       .place = 7},
      o.style,
      {{{.text = kStatefulStyle}, ProgramStyle::kStateful},
       {{.text = kStaticStyle, .outputs = kBundles}, ProgramStyle::kStatic},
       {{.text = kEncoderStyle, .outputs = kBundles}, ProgramStyle::kEncoder}});
  using converters::Inputs;
  v.words<std::optional<Inputs>>(
      {.name = "inputs",
       .help = "Of a model with a vision tower or an audio encoder: text alone (gemma3, gemma3n, "
               "gemma4, Qwen-VL), or images or sounds too; default: what the checkpoint has "
               "encoders for",
       .outputs = kBundles,
       .place = 26},
      o.inputs,
      {{{"text"}, Inputs{}},
       {{"images"}, Inputs{.images = true}},
       {{"sounds"}, Inputs{.sounds = true}},
       {{"images,sounds"}, Inputs{.images = true, .sounds = true}}});
  v.value({.name = "max-patches",
           .help = "Most patches of an image, where the vision tower takes images of any shape; "
                   "default: 4096, or what fills the context",
           .outputs = kBundles,
           .least = 1,
           .most = 1 << 18,
           .place = 27},
          o.max_patches);
  v.text(
      {.name = "image-size",
       .value = "WIDTHxHEIGHT",
       .help = "Pixels of the pictures that one program of all components takes, where the "
               "vision tower takes pictures of any shape: 448x448",
       .outputs = kBundles,
       .place = 29},
      [&o](const std::string& text) { return read_image_size(text, o.image_size); },
      [&o] {
        if (!o.image_size) return std::vector<std::string>();
        return std::vector{fmt::format("{}x{}", o.image_size->columns, o.image_size->rows)};
      });
  v.value(
      {.name = "max-sound",
       .help =
           "Most seconds of a sound, where the audio encoder takes samples or frames of any "
           "number (moonshine, parakeet_ctc, granite_speech, gemma3n, gemma4); default: 60 (the "
           "last two: 30)",
       .outputs = kBundles,
       .least = 1,
       .most = kMostSoundSeconds,
       .place = 28},
      o.max_sound);
  v.value({.name = "max-source",
           .help = "Most tokens of a text that the encoder of an encoder-decoder takes (t5); "
                   "default: the smaller of the config and 512",
           .outputs = kBundles,
           .least = 1,
           .most = 1 << 16,
           .place = 30},
          o.max_source);
  v.value({.name = "context-length",
           .help = "Positions of the caches, or tokens of a text; default: the smaller of the "
                   "config and 4096 (encoder: 2048)",
           .outputs = kWithPrograms,
           .place = 10},
          o.context_length);
  v.value({.name = "prefill-length",
           .help = "Tokens in one call; default: the smaller of the context and 512 (static: of "
                   "half the context and 128)",
           .programs = kDecoders,
           .outputs = kWithPrograms,
           .refusals = {{kEncoderPrograms, kWholeText}},
           .place = 11},
          o.prefill_length);
  v.text(
      {.name = "attention-sink",
       .value = "SINK,WINDOW",
       .help = "Sequences without an end: every token attends to the first SINK tokens and to the "
               "last WINDOW (4,252); the caches have SINK + 2 WINDOW positions",
       .programs = kStatefulPrograms,
       .outputs = kWithPrograms,
       .refusals = {{kStaticPrograms, "the caller keeps the caches of a static program"},
                    {kEncoderPrograms, kWholeText}},
       .place = 31},
      [&o](const std::string& text) { return read_attention_sink(text, o.attention_sink); },
      [&o] {
        if (!o.attention_sink) return std::vector<std::string>();
        return std::vector{fmt::format("{},{}", o.attention_sink->sink, o.attention_sink->window)};
      });
  v.words<std::optional<bool>>(
      {.name = "sink-positions",
       .help = "What RoPE turns by with --attention-sink: the places in the caches, as in "
               "ExecuTorch (default), or the positions in the text, so that distances in "
               "the window are true",
       .programs = kStatefulPrograms,
       .outputs = kWithPrograms,
       .refusals = {{kStaticPrograms, "the caller keeps the caches of a static program"},
                    {kEncoderPrograms, kWholeText}},
       .place = 32},
      o.text_positions,
      {{{"caches", kStatefulPrograms}, false}, {{"text", kStatefulPrograms}, true}});
  v.words<DType>(
      {.name = "kv-dtype",
       .help = "Dtype of the KV caches: f32, f16 or i8 (stateful); f32, f16, bf16, u16 or u8 "
               "(static)",
       .outputs = kWithPrograms,
       .refusals = {{kEncoderPrograms, kWholeText}},
       .place = 17,
       .recorded_for = kDecoders},
      o.style == ProgramStyle::kStatic ? o.ports.cache : o.kv_cache,
      dtype_words({{"f32"},
                   {"f16", kDecoders},
                   {"bf16", kStaticPrograms},
                   {"u16", kStaticPrograms},
                   {"u8", kStaticPrograms},
                   {"i8", kStatefulPrograms}}));
  v.words<bool>(
      {.name = "logits",
       .help = "Logits of the last token (default) or of all; static programs give those of all",
       .programs = kDecoders,
       .outputs = kWithPrograms,
       .refusals = {{kEncoderPrograms, "encoders give states"},
                    {kStaticPrograms, "static programs give the logits of every token"}},
       .place = 18,
       .recorded_for = kStatefulPrograms},
      o.all_logits, {{{"last", kStatefulPrograms}, false}, {{"all", kDecoders}, true}});
  v.words<BufferInit>({.name = "init-buffers",
                       .help = "Mutable buffers whose initial contents are stored; default: none",
                       .outputs = kWithPrograms,
                       .refusals = {{kStaticPrograms, "static programs have no mutable buffers"},
                                    {kEncoderPrograms, kWholeText}},
                       .place = 19,
                       .recorded_for = kStatefulPrograms},
                      o.buffers.mode,
                      {{{"none", kStatefulPrograms | kEncoderPrograms}, BufferInit::kNone},
                       {{"state", kStatefulPrograms}, BufferInit::kState},
                       {{"all", kStatefulPrograms}, BufferInit::kAll}});
  v.value({.name = "shards",
           .help = "Programs to cut the decoder into",
           .otherwise = "1",
           .outputs = kBundles,
           .least = 1,
           .most = 10000,
           .range = "from 1 to the number of layers",
           .place = 8},
          o.shards);
  v.words<std::optional<ProgramLayout>>(
      {.name = "layout",
       .help = "Programs of their own for the components of a model, or one program of all, "
               "model.pte, with the method names of ExecuTorch's runners; default: components",
       .outputs = kBundles,
       .place = 25},
      o.layout,
      {{{"components"}, ProgramLayout::kComponents},
       {{"one-program"}, ProgramLayout::kOneProgram}});
}

void describe_static_programs(OptionVisitor& v, ConvertOptions& o) {
  const std::vector<WordOf<DType>> dtypes =
      dtype_words({{"f32"}, {"f16"}, {"bf16"}, {"u16"}, {"u8"}});
  v.group("Static programs");
  v.value({.name = "shards-in-one-file",
           .help = "The shards are parts of one program, with llama::fallback between them",
           .programs = kStaticPrograms,
           .place = 12,
           .recorded_for = kStaticPrograms},
          o.shards_in_one_file);
  v.words<bool>({.name = "attention",
                 .help = "All heads in one projection, or a projection for each head",
                 .otherwise = "mha",
                 .place = 13,
                 .recorded_for = kStaticPrograms},
                o.single_head_attention, {{{"mha"}, false}, {{"sha", kStaticPrograms}, true}});
  v.words<SoftmaxStyle>(
      {.name = "softmax",
       .help = "The mask is added to scores, or masked scores are 20 below the smallest one of "
               "their row",
       .otherwise = "plain",
       .place = 14,
       .recorded_for = kStaticPrograms},
      o.softmax,
      {{{"plain"}, SoftmaxStyle::kPlain}, {{"masked", kStaticPrograms}, SoftmaxStyle::kMasked}});
  v.words<Rotation>(
      {.name = "rotate",
       .help = "Multiply queries and keys by a Hadamard matrix after RoPE (SpinQuant's R3)",
       .otherwise = "none",
       .place = 15,
       .recorded_for = kStaticPrograms},
      o.rotation, {{{"none"}, Rotation::kNone}, {{"r3", kStaticPrograms}, Rotation::kR3}});
  v.value({.name = "decode-length",
           .help = "Tokens in one call of kv_forward; default: 1; more for lookahead decoding",
           .programs = kStaticPrograms,
           .place = 16,
           .recorded_for = kStaticPrograms},
          o.decode_length);
  v.words<DType>({.name = "mask-dtype",
                  .help = "Dtype of the attention masks",
                  .programs = kStaticPrograms,
                  .place = 20,
                  .recorded_for = kStaticPrograms},
                 o.ports.mask, dtypes);
  v.words<DType>({.name = "logits-dtype",
                  .help = "Dtype of the logits",
                  .programs = kStaticPrograms,
                  .place = 21,
                  .recorded_for = kStaticPrograms},
                 o.ports.logits, dtypes);
}

void describe_checkpoint(OptionVisitor& v, ConvertOptions& o) {
  v.group("The checkpoint");
  v.value(
      {.name = "config", .value = "FILE", .help = "config.json to use instead of the checkpoint's"},
      o.config);
  v.value({.name = "lora",
           .value = "DIR",
           .is_model = true,
           .help = "Adapter to merge into the weights: adapter_config.json and "
                   "adapter_model.safetensors as peft writes them"},
          o.lora);
  v.value({.name = "mmproj",
           .value = "FILE",
           .help = "Projector of a GGUF file: the vision encoder that llama.cpp keeps in a file of "
                   "its own (mmproj-*.gguf)",
           .outputs = kAllOutputs & ~kGgufFiles},
          o.mmproj);
  v.text(
      {.name = "adapters",
       .value = "NAME=DIR,...",
       .help = "Adapters as peft writes them that stay apart from the weights, each in a data file "
               "of its own, for run --adapter NAME",
       .outputs = kBundles},
      [&o](const std::string& text) { return read_adapters(text, o.adapters); },
      [&o] {
        std::vector<std::string> texts;
        for (const AdapterChoice& adapter : o.adapters) {
          texts.push_back(fmt::format("{}={}", adapter.name, adapter.path));
        }
        return texts;
      });
  v.words<std::optional<DType>>(
      {.name = "adapter-dtype",
       .help = "Factors of --adapters: in the dtype that the adapters have, or in codes of 8 bits "
               "with a scale for each row",
       .otherwise = "keep",
       .outputs = kBundles},
      o.adapter_dtype, {{{"keep"}, std::nullopt}, {{"int8"}, DType::kI8}});
  v.words<std::optional<PackedLayout>>(
      {.name = "packed-layout",
       .help = "Rows of packed q, k, v and gate, up: as the model family has them, part after "
               "part, or in turn per key-value head or row",
       .otherwise = "own",
       .place = 22},
      o.packed_layout,
      {{{"own"}, std::nullopt},
       {{"concatenated"}, converters::packed_layout_of("concatenated")},
       {{"interleaved"}, converters::packed_layout_of("interleaved")}});
  v.value({.name = "allow-unmapped",
           .value = "GLOB",
           .help = "Keys that may stay unused (may be repeated)",
           .place = 23},
          o.allow_unmapped);
}

}  // namespace ferry::plan
