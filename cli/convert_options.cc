#include "cli/convert_options.h"

#include <fmt/format.h>

#include <charconv>
#include <initializer_list>
#include <utility>

#include "cli/option_values.h"
#include "conversion/export.h"
#include "core/text.h"
#include "plan/quantize_plan.h"
#include "proof/calibration.h"
#include "proof/calibration_text.h"

namespace ferry::cli {
namespace {

using plan::Option;
using plan::OptionField;
using plan::OptionTexts;
using plan::OptionVisitor;

// Describes the options about the output, which no other part of Ferry needs.
void describe_output(OptionVisitor& v, ConvertLine& o) {
  v.value({.name = "out",
           .letter = 'o',
           .value = "OUT",
           .help = "Bundle directory to make; with --to also a file"},
          o.out);
  v.words({.name = "to",
           .help = "What is made: programs and weights, or files of weights for other tools "
                   "(docs/exporting.md)",
           .otherwise = "bundle"},
          o.to, {"bundle", "safetensors", "hf", "pth", "bpte", "gguf", "mmproj"});
  v.value({.name = "dry-run", .letter = 'n', .help = "Plan only; --json prints the plan"},
          o.dry_run);
  v.value({.name = "overwrite", .help = "Replace an existing bundle, or what --to makes"},
          o.overwrite);
  v.value({.name = "resume",
           .help = "Keep what is done when stopped or killed, and go on with what such a run has "
                   "left"},
          o.resume);
  v.value({.name = "no-sync",
           .help = "Do not wait until the output is on the disk: the end of the process leaves all "
                   "of it or nothing, a power failure may leave a part"},
          o.no_sync);
  v.value({.name = "part",
           .value = "I/N",
           .help = "Write only the data files of one of N parts, to a directory of its own; for "
                   "several hosts (docs/scale.md)"},
          o.part);
  v.value({.name = "join",
           .value = "DIR",
           .help = "Make the bundle of the parts in DIR: moves their data files, checks all "
                   "digests and writes the rest"},
          o.join);
  v.value({.name = "if-changed",
           .help = "Leave an output as it is that converting again would make the same, and "
                   "replace any other; reads the checkpoint to know, and files of other formats"},
          o.if_changed);
}

void describe_signature(OptionVisitor& v, ConvertLine& o) {
  v.value({.name = "sign",
           .value = "FILE",
           .help = "Private key, PEM, that signs the bundle before it appears (docs/signing.md)",
           .outputs = plan::kBundles},
          o.key.private_key);
  v.value({.name = "passphrase-file",
           .value = "FILE",
           .help = "Of --sign: file whose first line decrypts the key",
           .outputs = plan::kBundles},
          o.key.passphrase_file);
  v.value({.name = "certificate",
           .value = "FILE",
           .help = "Of --sign: certificate of the key, PEM",
           .outputs = plan::kBundles},
          o.key.certificate);
  v.value({.name = "chain",
           .value = "FILE",
           .help = "Of --sign: certificates of its issuers, PEM; may be repeated",
           .outputs = plan::kBundles},
          o.key.chain);
}

void describe_gguf(OptionVisitor& v, ConvertLine& o) {
  v.words({.name = "outtype",
           .help = "Of --to gguf and mmproj: how matrices are stored; auto: as in the checkpoint",
           .otherwise = "auto",
           .outputs = plan::kGgufFiles},
          o.outtype, conversion::gguf_type_words());
  v.value({.name = "imatrix",
           .value = "FILE",
           .help = "Of --to gguf: an importance matrix, as llama-imatrix and ferry imatrix write "
                   "it, for the types that llama-quantize writes with one",
           .outputs = plan::kGgufFiles},
          o.imatrix);
  v.value({.name = "name",
           .value = "NAME",
           .help = "Of --to gguf and mmproj: general.name",
           .outputs = plan::kGgufFiles},
          o.name);
  v.value({.name = "tokenizer-pre",
           .value = "NAME",
           .help = "Of --to gguf: tokenizer.ggml.pre, where the tokenizer is none that is known",
           .outputs = plan::kGgufFiles},
          o.tokenizer_pre);
  v.value({.name = "max-file-tensors",
           .value = "N",
           .help = "Of --to gguf: tensors of a file",
           .otherwise = "0",
           .outputs = plan::kGgufFiles,
           .least = 0,
           .range = "0 or more"},
          o.max_file_tensors);
}

void describe_calibration(OptionVisitor& v, ConvertLine& o) {
  v.value({.name = "calibrate",
           .value = "FILE",
           .help = "Prompts that the encodings of u16 and u8 are found with, a text file with the "
                   "token ids of one prompt in each line; default: 4 fixed prompts",
           .programs = plan::kStaticPrograms},
          o.calibrate);
  v.value({.name = "calibrate-prefill",
           .value = "FILE",
           .help = "Prompts for the u8 or u16 caches of prefill_forward, which then have encodings "
                   "of their own; default: those of kv_forward",
           .programs = plan::kStaticPrograms},
          o.calibrate_prefill);
}

void describe_bits(OptionVisitor& v, ConvertLine& o) {
  v.value({.name = "quantize-budget",
           .value = "SIZE",
           .help = "The most that the whole bundle may have, such as 105MB, or 4.6bpw (bits per "
                   "weight of the model): measures what codes cost, and chooses 8da4w of groups of "
                   "32, 64 or 128, 8da8w or none for each matrix; unless given, it sets --quantize "
                   "8da4w, --quantize-embedding 8 and --calibrate-weights default",
           .outputs = plan::kBundles},
          o.quantize_budget);
  v.value({.name = "quantize-plan",
           .value = "FILE",
           .help = "A file of rules, one in each line: written with --quantize-budget, else read, "
                   "behind those of --quantize-rule",
           .outputs = plan::kBundles},
          o.quantize_plan);
}

// Describes all options of the verb, in the order of its help.
void describe(OptionVisitor& v, ConvertLine& o) {
  describe_output(v, o);
  describe_signature(v, o);
  plan::describe_files(v, o.convert);
  describe_gguf(v, o);
  plan::describe_weights(v, o.convert);
  describe_bits(v, o);
  plan::describe_programs(v, o.convert);
  plan::describe_static_programs(v, o.convert);
  describe_calibration(v, o);
  plan::describe_checkpoint(v, o.convert);
}

// Declares every visited option to the parser.
class Declarer : public OptionVisitor {
 public:
  Declarer(Verb& verb, ConvertLine& line) : verb_(verb), line_(line) {}
  void group(std::string_view title) override { verb_.group(std::string(title)); }

 private:
  void visit(const Option& option, const OptionField& field) override {
    ConvertLine::Given& given = line_.given[option.name];
    given.text = option.otherwise;
    std::string name = fmt::format("--{}", option.name);
    if (option.letter != 0) name = fmt::format("-{},{}", option.letter, name);
    if (!option.value.empty()) name += fmt::format(" {}", option.value);
    const std::string help(option.help);
    switch (field.type) {
      case OptionField::Type::kFlag:
        verb_.flag(name, given.flag, help);
        break;
      case OptionField::Type::kInteger:
        if (option.otherwise.empty()) {
          verb_.option(name, given.integer, help);
        } else {
          given.integer_or_default = *parse_integer(option.otherwise);
          verb_.option(name, given.integer_or_default, help);
        }
        break;
      case OptionField::Type::kList:
        verb_.option(name, given.list, help);
        break;
      case OptionField::Type::kText:
        if (option.words.empty()) {
          verb_.option(name, given.text, help).notes_if_given(given.is_given);
          if (option.is_model) verb_.finds_models();
        } else {
          std::vector<std::string> words;
          for (const plan::OptionWord& word : option.words) words.emplace_back(word.text);
          verb_.choice(name, given.text, words, help);
        }
    }
  }

  Verb& verb_;
  ConvertLine& line_;
};

// Collects the options on the line. An option with its default value counts as absent.
class Collector : public OptionVisitor {
 public:
  explicit Collector(const ConvertLine& line) : line_(line) {}
  OptionTexts texts;

 private:
  void visit(const Option& option, const OptionField& field) override {
    const ConvertLine::Given& given = line_.given.at(option.name);
    if (given.flag) add(option, "true");
    if (given.integer) add(option, fmt::format("{}", *given.integer));
    if (field.type == OptionField::Type::kInteger && !option.otherwise.empty()) {
      add(option, fmt::format("{}", given.integer_or_default));
    }
    if (field.type == OptionField::Type::kText) add(option, given.text);
    for (const std::string& text : given.list) add(option, text);
  }
  void add(const Option& option, const std::string& text) {
    if (text != option.otherwise) texts.push_back({std::string(option.name), text});
  }

  const ConvertLine& line_;
};

// Parses a text such as "2/8".
std::optional<packer::BundlePart> part_of(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto number_in = [](std::string_view digits) -> size_t {
    size_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() ? value : 0;
  };
  const std::string_view view = text;
  const packer::BundlePart part{.number = number_in(view.substr(0, slash)),
                                .count = number_in(view.substr(slash + 1))};
  constexpr size_t kMostParts = 65536;
  const bool is_part = part.number > 0 && part.number <= part.count && part.count <= kMostParts;
  return is_part ? std::optional(part) : std::nullopt;
}

// Returns kUsage if one of `others` is given beside the option `name`.
Status check_beside(std::string_view name,
                    std::initializer_list<std::pair<const char*, bool>> others) {
  for (const auto& [other, given] : others) {
    if (given) return fail(ErrorCode::kUsage, fmt::format("{}: not with {}", name, other));
  }
  return {};
}

Status settle_parts(ConvertLine& o) {
  if (o.part.empty() && o.join.empty()) return {};
  FERRY_RETURN_IF_ERROR(check_beside(o.part.empty() ? "--join" : "--part",
                                     {{"--join", !o.part.empty() && !o.join.empty()},
                                      {"--dry-run", o.dry_run},
                                      {"--if-changed", o.if_changed},
                                      {"--to", o.to != "bundle"}}));
  if (o.part.empty()) return {};
  o.one_part = part_of(o.part);
  if (o.one_part) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("--part {}: expected I/N, such as 1/8 to 8/8", quoted(o.part, 40)));
}

// Files that a later run continues, and parts for another host, must be synced to the disk.
Status check_no_sync(const ConvertLine& o) {
  if (!o.no_sync) return {};
  return check_beside("--no-sync", {{"--dry-run", o.dry_run},
                                    {"--resume", o.resume},
                                    {"--part", !o.part.empty()},
                                    {"--join", !o.join.empty()}});
}

// A key that cannot be used is an error before anything is read.
Status check_key(const ConvertLine& o) {
  const signing::SigningKey& key = o.key;
  if (key.private_key.empty()) {
    return key.passphrase_file.empty() && key.certificate.empty() && key.chain.empty()
               ? Status()
               : fail(ErrorCode::kUsage,
                      "--passphrase-file, --certificate and --chain belong to --sign");
  }
  FERRY_RETURN_IF_ERROR(check_beside("--sign", {{"--part", !o.part.empty()}}));
  const auto signer = signing::signer_of(key);
  return signer ? Status() : Failure(signer.error());
}

// Returns kUsage for prompts of calibration if the programs have no encoding to calibrate.
Status check_calibration(const ConvertLine& o) {
  if (!o.calibrate_prefill.empty() && !is_encoded(o.convert.ports.cache)) {
    return fail(ErrorCode::kUsage, "--calibrate-prefill: --kv-dtype is not u8 or u16");
  }
  if (o.calibrate.empty() || proof::needs_calibration(o.convert)) return {};
  return fail(ErrorCode::kUsage, "--calibrate: no --kv-dtype or --logits-dtype is u8 or u16");
}

// Reads the budget, or the plan that replaces it.
Status settle_bits(ConvertLine& o) {
  graph::QuantizeOptions& quantize = o.convert.quantize;
  if (o.quantize_budget.empty()) {
    if (o.quantize_plan.empty()) return {};
    if (quantize.linears.kind == graph::LinearQuantization::Kind::kNone) {
      return fail(
          ErrorCode::kUsage,
          "--quantize-plan: needs --quantize, the scheme of matrices that the plan does not "
          "name");
    }
    const auto rules = FERRY_TRY(plan::read_quantize_plan(o.quantize_plan));
    quantize.rules.insert(quantize.rules.end(), rules.begin(), rules.end());
    return {};
  }
  const auto budget = proof::read_budget(o.quantize_budget);
  if (!budget) {
    return fail(budget.error().code, fmt::format("--quantize-budget {}", budget.error().message));
  }
  o.budget = *budget;
  FERRY_RETURN_IF_ERROR(check_beside("--quantize-plan FILE of a budget",
                                     {{"--dry-run", o.dry_run && !o.quantize_plan.empty()}}));
  const auto is_given = [&](std::string_view name) { return o.given.at(name).is_given; };
  if (!is_given("quantize")) quantize.linears = {graph::LinearQuantization::Kind::k8da4w};
  if (!is_given("quantize-embedding")) quantize.embeddings = {.bits = 8};
  if (!is_given("calibrate-weights")) quantize.calibration = proof::kDefaultCalibration;
  return {};
}

unsigned output_of(std::string_view to) {
  if (to == "bundle") return plan::kBundles;
  if (to == "bpte") return plan::kBundledPrograms;
  return to == "gguf" || to == "mmproj" ? plan::kGgufFiles : plan::kWeightFiles;
}

}  // namespace

std::optional<conversion::ExportOptions> export_options(const ConvertLine& line) {
  const auto format = conversion::export_format_of(line.to);
  if (!format) return std::nullopt;
  return conversion::ExportOptions{.convert = line.convert,
                                   .format = *format,
                                   .out = line.out,
                                   .type = line.outtype,
                                   .imatrix = line.imatrix,
                                   .model_name = line.name,
                                   .pre_tokenizer = line.tokenizer_pre,
                                   .max_tensors = static_cast<uint64_t>(line.max_file_tensors)};
}

Status settle(ConvertLine& options) {
  Collector collector(options);
  describe(collector, options);
  plan::OptionReader reader(collector.texts, plan::OptionReader::From::kCaller);
  describe(reader, options);
  FERRY_RETURN_IF_ERROR(reader.take());
  if (options.out.empty() && !options.dry_run) {
    return fail(ErrorCode::kUsage, "-o OUT is required, unless with --dry-run");
  }
  if (options.resume && options.dry_run) {
    return fail(ErrorCode::kUsage, "--resume: a dry run writes nothing");
  }
  FERRY_RETURN_IF_ERROR(settle_parts(options));
  FERRY_RETURN_IF_ERROR(settle_bits(options));
  FERRY_RETURN_IF_ERROR(check_no_sync(options));
  if (options.if_changed && options.out.empty()) {
    return fail(ErrorCode::kUsage, "--if-changed needs -o OUT");
  }
  // Without --program the checker refuses options of static programs, whatever the model is.
  plan::OptionChecker checker(collector.texts,
                              options.convert.style.value_or(converters::ProgramStyle::kStateful),
                              output_of(options.to), options.to, "--");
  describe(checker, options);
  FERRY_RETURN_IF_ERROR(checker.take());
  if (!options.given.at("quantize-method").text.empty() && !options.convert.quantize.quantizes()) {
    return fail(ErrorCode::kUsage, "--quantize-method: nothing is quantised; give --quantize");
  }
  FERRY_RETURN_IF_ERROR(check_key(options));
  return check_calibration(options);
}

void add_convert_options(Verb& verb, ConvertLine& o) {
  verb.positional("SRC", o.convert.source,
                  "Checkpoint: a directory, an index, or a tensor file: safetensors, PyTorch, "
                  "GGUF, Keras HDF5")
      .finds_models();
  Declarer declarer(verb, o);
  describe(declarer, o);
}

}  // namespace ferry::cli
