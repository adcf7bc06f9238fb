// ferry embed computes vectors of texts with a text encoder.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/encoder_bundle.h"
#include "cli/line_reader.h"
#include "cli/option_values.h"
#include "cli/report_file.h"
#include "cli/run_prompt.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/file.h"
#include "core/json.h"
#include "core/json_writer.h"
#include "core/result.h"
#include "core/text.h"
#include "core/utf8.h"
#include "packer/bundle_reader.h"
#include "prompt/embedding_text.h"
#include "prompt/vector_codes.h"
#include "runner/text_batches.h"

namespace ferry::cli {
namespace {

// A VectorFile is the file of vectors that `ferry embed` writes.

// Writes vectors as the rows of one array in NumPy's file format (.npy, version 1.0).
class VectorFile {
 public:
  // Makes a new file, which is removed again unless finish() is called. Returns kUsage if the name
  // does not end in .npy, kExists if the file exists, and kIo if it cannot be made.
  // `type` is NumPy's name of the values: '<f4', '|i1' or '|u1'.
  static Result<VectorFile> create(const std::string& path, int64_t width, std::string_view type);

  // Requires that `row` has width() values.
  Status add(std::span<const std::byte> row);
  Status finish();
  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }

 private:
  VectorFile(AtomicFile file, int64_t width, std::string_view type)
      : file_(std::move(file)), type_(type), width_(width) {}

  AtomicFile file_;
  std::string_view type_;
  int64_t width_, rows_ = 0;
};

constexpr uint64_t kMostRangeBytes = uint64_t{256} << 20;

// The format requires a multiple of 64. 128 is enough for any number of rows.
constexpr size_t kHeaderBytes = 128;

std::string header_of(int64_t rows, int64_t width, std::string_view type) {
  constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
  const size_t length = kHeaderBytes - kMagic.size() - sizeof(uint16_t);
  std::string header(kMagic);
  header += static_cast<char>(length & 0xFFU);
  header += static_cast<char>(length >> 8U);
  header += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}", type,
                        rows, width);
  header.resize(kHeaderBytes - 1, ' ');
  return header + '\n';
}

Result<VectorFile> VectorFile::create(const std::string& path, int64_t width,
                                      std::string_view type) {
  if (!path.ends_with(".npy")) {
    return fail(ErrorCode::kUsage,
                fmt::format("--out {}: a file of vectors ends in .npy", printable(path)));
  }
  return VectorFile(FERRY_TRY(AtomicFile::create(path, IfExists::kRefuse, kHeaderBytes)), width,
                    type);
}

Status VectorFile::add(std::span<const std::byte> row) {
  const auto offset = kHeaderBytes + static_cast<uint64_t>(rows_) * row.size_bytes();
  rows_ += 1;
  return file_.write_at(offset, row);
}

Status VectorFile::finish() {
  const std::string header = header_of(rows_, width_, type_);
  FERRY_RETURN_IF_ERROR(file_.write_at(0, std::as_bytes(std::span(header))));
  return file_.publish();
}

struct EmbedLine {
  std::string bundle, config, adapter, tokens, out, precision, ranges;
  std::vector<std::string> texts;
  prompt::EmbeddingTextOptions text;
  bool plain = false, states = false, normalize = false;
  std::optional<int64_t> width, memory;
};

prompt::VectorPrecision precision_of(const EmbedLine& o) {
  return prompt::find_vector_precision(o.precision).value_or(prompt::VectorPrecision::kF32);
}

Status check_precision(const EmbedLine& o) {
  if (!o.precision.empty() && !prompt::find_vector_precision(o.precision)) {
    return fail(ErrorCode::kUsage, "--precision: must be f32, int8, uint8, binary or ubinary");
  }
  if (prompt::has_ranges(precision_of(o)) == !o.ranges.empty()) return {};
  return fail(ErrorCode::kUsage,
              o.ranges.empty()
                  ? fmt::format("--precision {}: needs --ranges, vectors that say how far values "
                                "reach",
                                o.precision)
                  : std::string("--ranges is for --precision int8 and uint8"));
}

// Returns what makes codes of vectors of `width` values; nullopt for f32.
Result<std::optional<prompt::VectorCoder>> coder_of(const EmbedLine& o, int64_t width) {
  const prompt::VectorPrecision precision = precision_of(o);
  if (precision == prompt::VectorPrecision::kF32) return std::optional<prompt::VectorCoder>();
  prompt::VectorRanges ranges;
  if (!o.ranges.empty()) {
    const InputFile file = FERRY_TRY(InputFile::open(o.ranges));
    const std::string bytes = FERRY_TRY(read_text(file, kMostRangeBytes));
    ranges = FERRY_TRY(
        prompt::read_vector_ranges(std::as_bytes(std::span(bytes)), printable(o.ranges), width));
  }
  return std::optional(prompt::VectorCoder(precision, std::move(ranges)));
}

std::string_view numpy_type(prompt::VectorPrecision precision) {
  const bool is_signed =
      precision == prompt::VectorPrecision::kInt8 || precision == prompt::VectorPrecision::kBinary;
  if (precision == prompt::VectorPrecision::kF32) return "<f4";
  return is_signed ? "|i1" : "|u1";
}

// Refuses options that belong to different kinds of input or output.
Status check_options(const EmbedLine& o) {
  if (!o.tokens.empty() && !o.texts.empty()) {
    return fail(ErrorCode::kUsage, "--text and --tokens are two inputs: give one of them");
  }
  const bool of_texts = !o.text.prompt_name.empty() || o.text.prompt || o.text.truncate;
  if (!o.tokens.empty() && of_texts) {
    return fail(ErrorCode::kUsage,
                "--prompt-name, --prompt and --truncate are for texts, not for --tokens");
  }
  if (o.text.prompt && !o.text.prompt_name.empty()) {
    return fail(ErrorCode::kUsage, "--prompt and --prompt-name are two prompts: give one of them");
  }
  if (o.plain && (!o.tokens.empty() || !o.texts.empty())) {
    return fail(ErrorCode::kUsage, "--plain is for the lines of standard input");
  }
  if (o.states && (o.width || o.normalize || !o.out.empty() || !o.precision.empty())) {
    return fail(ErrorCode::kUsage,
                "--truncate-dim, --normalize, --precision and --out are for vectors, not for "
                "--states");
  }
  FERRY_RETURN_IF_ERROR(check_precision(o));
  for (const std::string& text : o.texts) {
    if (!utf8::is_valid(text)) return fail(ErrorCode::kUsage, "--text: not UTF-8");
  }
  return {};
}

// Returns how many values of a vector are kept.
Result<int64_t> kept_width(const EmbedLine& o, int64_t width) {
  const int64_t kept = o.width.value_or(width);
  if (kept >= 1 && kept <= width) return kept;
  return fail(ErrorCode::kUsage,
              fmt::format("--truncate-dim {}: must be from 1 to the width, {}", kept, width));
}

// The encoder makes this of one text.
struct EmbeddedText {
  size_t tokens = 0;
  std::vector<float> values = {};  // the vector, or the states of all tokens
};

// Encodes texts, and writes vectors or hidden states as JSON or as rows of a file.
class Embedder {
 public:
  static Result<Embedder> make(runner::TextBatches batches, const EmbedLine& o) {
    const int64_t width = batches.sizes().embedding_width;
    Embedder embedder(std::move(batches), o);
    if (o.states) return embedder;
    embedder.width_ = FERRY_TRY(kept_width(o, width));
    embedder.coder_ = FERRY_TRY(coder_of(o, embedder.width_));
    if (!o.out.empty()) {
      FERRY_RETURN_IF_ERROR(check_directory_of("--out", o.out, o.bundle));
      const int64_t bytes =
          prompt::is_binary(precision_of(o)) ? (embedder.width_ + 7) / 8 : embedder.width_;
      embedder.file_ = FERRY_TRY(VectorFile::create(o.out, bytes, numpy_type(precision_of(o))));
    }
    return embedder;
  }

  Status open_texts(const packer::Bundle& bundle, const prompt::EmbeddingTextOptions& options) {
    const runner::TextEncoder::Sizes& sizes = batches_.sizes();
    input_ = FERRY_TRY(prompt::EmbeddingText::open(bundle, sizes.tokens,
                                                   /*is_stripped=*/sizes.embedding_width > 0));
    return input_->set(bundle, options);
  }

  Result<std::vector<int64_t>> tokens_of(const std::string& text) {
    return input_->tokens_of(text);
  }

  Result<std::vector<EmbeddedText>> embed(const std::vector<runner::TextTokens>& texts) {
    std::vector<EmbeddedText> out(texts.size());
    FERRY_RETURN_IF_ERROR(
        batches_.encode(texts, [&](size_t text, const runner::EncodedText& encoded) {
          std::vector<float>& values = out[text].values;
          out[text].tokens = texts[text].ids.size();
          if (states_) return values.assign(encoded.states.begin(), encoded.states.end());
          values.assign(encoded.embedding.begin(), encoded.embedding.begin() + width_);
          if (normalize_) prompt::normalize(values);
        }));
    return out;
  }

  // Writes one JSON value, a list or a list for each token, or a row of the file.
  Status write(const EmbeddedText& text, JsonWriter& out) {
    if (states_) {
      add_states(text.values, out);
      return {};
    }
    if (!coder_) {
      if (file_) return file_->add(std::as_bytes(std::span(text.values)));
      add_row(text.values, out);
      return {};
    }
    const std::vector<uint8_t> codes = coder_->codes_of(text.values);
    if (file_) return file_->add(std::as_bytes(std::span(codes)));
    out.begin_array();
    for (const uint8_t code : codes) {
      out.value(is_signed_ ? static_cast<int64_t>(static_cast<int8_t>(code)) : int64_t{code});
    }
    out.end_array();
    return {};
  }

  Status finish() { return file_ ? file_->finish() : Status(); }
  // Returns nullptr if vectors are printed.
  const VectorFile* file() const { return file_ ? &*file_ : nullptr; }

 private:
  Embedder(runner::TextBatches batches, const EmbedLine& o)
      : batches_(std::move(batches)),
        states_(o.states),
        normalize_(o.normalize),
        is_signed_(numpy_type(precision_of(o)) == "|i1") {}

  void add_states(std::span<const float> states, JsonWriter& out) const {
    const auto width = static_cast<size_t>(batches_.sizes().width);
    out.begin_array();
    for (size_t at = 0; at < states.size(); at += width) add_row(states.subspan(at, width), out);
    out.end_array();
  }
  static void add_row(std::span<const float> values, JsonWriter& out) {
    out.begin_array();
    for (const float value : values) out.value(static_cast<double>(value));
    out.end_array();
  }

  runner::TextBatches batches_;
  bool states_, normalize_, is_signed_;
  int64_t width_ = 0;
  std::optional<prompt::VectorCoder> coder_;
  std::optional<VectorFile> file_;
  std::optional<prompt::EmbeddingText> input_;
};

// Prints answers as they come, or with --json all together at the end.
class Answers {
 public:
  Answers(Context& context, const EmbedLine& options, Embedder& embedder)
      : context_(context), embedder_(embedder), out_(options.out) {
    if (!context.json) return;
    document_.begin_object().member("path", options.bundle);
    document_.key("texts").begin_array();
    if (out_.empty()) key_ = options.states ? "states" : "embedding";
  }

  Status add(const std::vector<runner::TextTokens>& texts) {
    for (const EmbeddedText& text : FERRY_TRY(embedder_.embed(texts))) {
      FERRY_RETURN_IF_ERROR(add(text));
    }
    if (!context_.json && out_.empty()) context_.flush();
    return {};
  }

  Status finish() {
    FERRY_RETURN_IF_ERROR(embedder_.finish());
    if (const VectorFile* file = embedder_.file()) {
      context_.note(
          fmt::format("{}: {} vectors of {}", printable(out_), file->rows(), file->width()));
    }
    if (!context_.json) return {};
    document_.end_array();
    if (!out_.empty()) document_.member("out", out_);
    document_.end_object();
    context_.print_result(document_.take(), 0);
    return {};
  }

 private:
  Status add(const EmbeddedText& text) {
    if (!context_.json) {
      JsonWriter line;
      FERRY_RETURN_IF_ERROR(embedder_.write(text, line));
      if (out_.empty()) context_.print(line.take());
      return {};
    }
    document_.begin_object();
    if (!key_.empty()) document_.key(key_);
    FERRY_RETURN_IF_ERROR(embedder_.write(text, document_));
    document_.member("tokens", text.tokens).end_object();
    return {};
  }

  Context& context_;
  Embedder& embedder_;
  JsonWriter document_;
  std::string out_, key_;
};

// Returns the line itself if `plain`, else the JSON string in it.
Result<std::string> text_of(const std::string& line, size_t number, bool plain) {
  const std::string where = fmt::format("line {}", number);
  if (plain)
    return utf8::is_valid(line) ? Result<std::string>(line) : bad_input(where + ": not UTF-8");
  const nlohmann::json value = FERRY_TRY(parse_json(line, where));
  return value.is_string() ? Result<std::string>(value.get<std::string>())
                           : bad_input(where + ": not a string");
}

// The most texts that are encoded together.
constexpr size_t kWindow = 1024;

// Texts that wait for their answers.
class Waiting {
 public:
  Waiting(Embedder& embedder, Answers& answers) : embedder_(embedder), answers_(answers) {}

  // Texts before one that is refused are answered.
  Status add(const std::string& text) {
    Result<std::vector<int64_t>> tokens = embedder_.tokens_of(text);
    if (!tokens) {
      FERRY_RETURN_IF_ERROR(answer());
      return Failure(tokens.error());
    }
    tokens_.push_back({.ids = *std::move(tokens)});
    return tokens_.size() < kWindow ? Status() : answer();
  }
  Status answer() { return answers_.add(std::exchange(tokens_, {})); }

 private:
  Embedder& embedder_;
  Answers& answers_;
  std::vector<runner::TextTokens> tokens_;
};

// Answers each line of standard input, as soon as no other line is there. With --plain an empty
// line is a text too.
Status answer_lines(Waiting& waiting, bool plain) {
  LineReader lines;
  for (size_t number = 1;; ++number) {
    if (!FERRY_TRY(lines.ready())) FERRY_RETURN_IF_ERROR(waiting.answer());
    const std::optional<std::string> line = FERRY_TRY(lines.next());
    if (!line) return waiting.answer();
    if (!plain && line->find_first_not_of(" \t\r") == std::string::npos) continue;
    const Result<std::string> text = text_of(*line, number, plain);
    if (!text) {
      FERRY_RETURN_IF_ERROR(waiting.answer());
      return Failure(text.error());
    }
    FERRY_RETURN_IF_ERROR(waiting.add(*text));
  }
}

Result<int> run(Context& context, const EmbedLine& o) {
  FERRY_RETURN_IF_ERROR(check_options(o));
  std::vector<int64_t> tokens;
  if (!o.tokens.empty()) {
    tokens = FERRY_TRY(parse_numbers("--tokens", o.tokens, kTokensExpected));
  }
  const runner::MethodOptions method = {.own_bf16 = true,
                                        .memory = FERRY_TRY(memory_limit(o.memory))};
  const packer::Bundle opened = FERRY_TRY(open_encoder(context, o.bundle, o.config));
  const packer::Bundle bundle = FERRY_TRY(opened.with_adapter(o.adapter));
  runner::TextBatches batches =
      FERRY_TRY(runner::TextBatches::load(bundle, context.pool(), method));
  if (batches.sizes().embedding_width == 0 && !o.states) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: makes no vector of a text, because its checkpoint had no "
                            "modules.json; give --states",
                            printable(o.bundle)));
  }
  Embedder embedder = FERRY_TRY(Embedder::make(std::move(batches), o));
  Answers answers(context, o, embedder);
  if (!tokens.empty()) {
    FERRY_RETURN_IF_ERROR(answers.add({{.ids = tokens}}));
  } else {
    FERRY_RETURN_IF_ERROR(embedder.open_texts(bundle, o.text));
    Waiting waiting(embedder, answers);
    for (const std::string& text : o.texts) FERRY_RETURN_IF_ERROR(waiting.add(text));
    FERRY_RETURN_IF_ERROR(o.texts.empty() ? answer_lines(waiting, o.plain) : waiting.answer());
  }
  FERRY_RETURN_IF_ERROR(answers.finish());
  return 0;
}

}  // namespace

void add_embed(CommandLine& line) {
  auto o = std::make_shared<EmbedLine>();
  line.verb("embed", "Vectors of texts, by a bundle of style encoder: a JSON list for each text")
      .positional("BUNDLE", o->bundle, "Bundle directory, or a GGUF file of an encoder")
      .option("--config", o->config,
              "Of a GGUF file: config.json, for what the metadata do not tell")
      .option("--text", o->texts,
              "Text; may be repeated. Without it and --tokens, every line of standard input is a "
              "text, as a JSON string")
      .option("--tokens", o->tokens, "Token ids of one text, separated by commas")
      .flag("--plain", o->plain, "Each line of standard input is a text as it is")
      .option("--prompt-name", o->text.prompt_name,
              "A prompt of config_sentence_transformers.json to put before each text; default: the "
              "one that it names as the default, if any")
      .option("--prompt", o->text.prompt, "This before each text instead; '' for none")
      .option("--adapter NAME", o->adapter, "Adapter of the bundle to compute the vectors with")
      .flag("--truncate", o->text.truncate,
            "Cut texts that are longer than the context, as the tokenizer of transformers does; "
            "otherwise they are refused")
      .option("--truncate-dim", o->width,
              "The first N values of each vector (of models trained for it: Matryoshka)")
      .flag("--normalize", o->normalize, "Vectors of length 1, behind --truncate-dim")
      .option(
          "--precision", o->precision,
          "Values of a vector: f32 (default); int8 or uint8, a byte each; binary or ubinary, a bit "
          "each, packed into bytes")
      .option(
          "--ranges FILE", o->ranges,
          "For int8 and uint8: .npy file, f32 [rows, values], of vectors like those to come, or of "
          "the least and the largest values; 256 steps lie between the least and the largest")
      .option("-o,--out FILE", o->out, "New .npy file [texts, values] instead of the answers")
      .flag("--states", o->states,
            "The last hidden state of each token instead of the vector of the text")
      .option("--memory SIZE", o->memory,
              "Bytes that planned memory may have, such as 4GB; default: what the system has "
              "available")
      .example("ferry embed bundle/ --prompt-name query --text 'Which planet is red?'",
               "The vector of a question, after the prompt that the model was trained with.")
      .example("ferry embed bundle/ < texts.jsonl > vectors.jsonl", "A line for each line.")
      .example(
          "ferry embed bundle/ --plain --truncate --truncate-dim 256 --normalize -o vectors.npy < "
          "texts.txt",
          "A row of a NumPy array for each line of a text file, for a vector index.")
      .action([o](Context& context) { return run(context, *o); });
}

}  // namespace ferry::cli
