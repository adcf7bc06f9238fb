#include <ferry/convert.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "checkpoint/hub_cache.h"
#include "conversion/convert.h"
#include "conversion/export.h"
#include "converters/assemble.h"
#include "library/internal.h"
#include "plan/options.h"
#include "proof/calibration.h"
#include "proof/calibration_text.h"
#include "proof/weight_budget.h"
#include "proof/weight_calibration.h"

namespace ferry {
inline namespace v0 {

struct ConversionPlan::Impl {
  std::string source;
  std::string output;                   // ConvertOptions::output
  std::vector<std::string> notes = {};  // of the calibration
  // Exactly one of `bundle` and `files` is set.
  std::optional<plan::Conversion> bundle = {};
  std::optional<conversion::Export> files = {};

  const plan::MappedCheckpoint& mapped() const {
    if (bundle) return bundle->mapped;
    return files->mapped;
  }
  // Checks that the plan, which depends on ConvertOptions::output, fits the path to write.
  Status check_planned(const std::string& path) const;
};

namespace {

using library::wrong;

// Members of ConvertOptions whose names differ from those of their options.
constexpr std::pair<std::string_view, const char*> kMembers[] = {
    {"kv-dtype", "kv_type"},
    {"mask-dtype", "mask_type"},
    {"logits-dtype", "logits_type"},
    {"logits", "all_logits"},
    {"inputs", "images"},
    {"max-file-size", "max_file_bytes"},
    {"adapter-dtype", "int8_adapters"},
    {"layout", "one_program"},
    {"sink-positions", "sink_text_positions"},
    {"quantize-rule", "quantize_rules"},
    {"quantize-embedding", "embedding_bits"},
    {"quantize-method", "hqq"},
    {"outtype", "gguf_type"},
    {"imatrix", "gguf_imatrix"}};

// Returns `error` with the member of ConvertOptions that the option stands for as its field.
Failure about_member(Error error) {
  const std::string option = error.field;
  if (option.empty()) return Failure(std::move(error));
  std::ranges::replace(error.field, '-', '_');
  for (const auto& [name, member] : kMembers) {
    if (name == option) error.field = member;
  }
  if (error.message.starts_with(option)) error.message.replace(0, option.size(), error.field);
  return Failure(std::move(error));
}

const char* text_of(WeightType type) {
  constexpr const char* kTexts[] = {"keep", "f32", "f16", "bf16"};
  return kTexts[static_cast<int>(type)];
}
const char* text_of(ValueType type) {
  constexpr const char* kTexts[] = {"f32", "f16", "bf16", "u16", "u8", "i8"};
  return kTexts[static_cast<int>(type)];
}
std::string text_of(const LinearQuantization& linear) {
  switch (linear.scheme) {
    case LinearScheme::k8da4w:
      return "8da4w-g" + std::to_string(linear.group);
    case LinearScheme::k8da8w:
      return "8da8w";
    case LinearScheme::kInt8:
      return "int8";
    case LinearScheme::kNone:
      break;
  }
  return "none";
}

// Returns the options that differ from their defaults as texts. plan/options.h describes the
// accepted values.
plan::OptionTexts texts_of(const ConvertOptions& o) {
  plan::OptionTexts texts;
  const auto add = [&texts](const char* name, bool given, const std::string& text) {
    if (given) texts.push_back({name, text});
  };
  const auto number = [&add](const char* name, const std::optional<int64_t>& value) {
    add(name, value.has_value(), std::to_string(value.value_or(0)));
  };
  add("config", !o.config.empty(), o.config);
  add("lora", !o.lora.empty(), o.lora);
  add("mmproj", !o.mmproj.empty(), o.mmproj);
  std::string adapters;
  for (const AdapterSource& adapter : o.adapters) {
    adapters += (adapters.empty() ? "" : ",") + adapter.name + "=" + adapter.directory;
  }
  add("adapters", !o.adapters.empty(), adapters);
  add("adapter-dtype", o.int8_adapters, "int8");
  add("reference", !o.reference.empty(), o.reference);
  add("dtype", o.dtype != WeightType::kKeep, text_of(o.dtype));
  add("quantize", o.quantize.scheme != LinearScheme::kNone, text_of(o.quantize));
  for (const QuantizationRule& rule : o.quantize_rules) {
    add("quantize-rule", true, rule.pattern + "=" + text_of(rule.linear));
  }
  add("quantize-embedding", o.embedding_bits != 0,
      o.embedding_bits == 4 ? "4," + std::to_string(o.embedding_group)
                            : std::to_string(o.embedding_bits));
  add("quantize-method", o.hqq, "hqq");
  add("calibrate-weights", !o.calibrate_weights.empty(), o.calibrate_weights);
  add("max-file-size", o.max_file_bytes != 0, std::to_string(o.max_file_bytes));
  for (const std::string& glob : o.allow_unmapped) add("allow-unmapped", true, glob);
  constexpr const char* kPrograms[] = {"", "stateful", "static", "encoder"};
  const bool images = o.images.value_or(false), sounds = o.sounds.value_or(false);
  add("inputs", o.images || o.sounds,
      images ? (sounds ? "images,sounds" : "images") : (sounds ? "sounds" : "text"));
  add("program", o.program != ProgramKind::kAuto, kPrograms[static_cast<int>(o.program)]);
  number("max-patches", o.max_patches);
  if (o.image_size) {
    add("image-size", true,
        std::to_string(o.image_size->width) + "x" + std::to_string(o.image_size->height));
  }
  number("max-sound", o.max_sound);
  number("max-source", o.max_source);
  number("context-length", o.context_length);
  if (o.attention_sink) {
    add("attention-sink", true,
        std::to_string(o.attention_sink->sink) + "," + std::to_string(o.attention_sink->window));
  }
  add("sink-positions", o.sink_text_positions, "text");
  number("prefill-length", o.prefill_length);
  number("decode-length", o.decode_length);
  add("kv-dtype", o.kv_type != ValueType::kF32, text_of(o.kv_type));
  add("mask-dtype", o.mask_type != ValueType::kF32, text_of(o.mask_type));
  add("logits-dtype", o.logits_type != ValueType::kF32, text_of(o.logits_type));
  add("logits", o.all_logits && o.program != ProgramKind::kStatic, "all");
  add("layout", o.one_program, "one-program");
  add("shards", o.shards != 1, std::to_string(o.shards));
  return texts;
}

unsigned output_of(OutputFormat format) {
  switch (format) {
    case OutputFormat::kBundle:
      return plan::kBundles;
    case OutputFormat::kBundledProgram:
      return plan::kBundledPrograms;
    case OutputFormat::kGguf:
    case OutputFormat::kMmproj:
      return plan::kGgufFiles;
    case OutputFormat::kSafetensors:
    case OutputFormat::kHuggingFace:
    case OutputFormat::kPyTorch:
      break;
  }
  return plan::kWeightFiles;
}

// Fills in what a budget sets where the caller does not.
ConvertOptions with_budget(ConvertOptions o) {
  if (o.quantize_budget.empty()) return o;
  if (o.quantize.scheme == LinearScheme::kNone) o.quantize.scheme = LinearScheme::k8da4w;
  if (o.embedding_bits == 0) o.embedding_bits = 8;
  if (o.calibrate_weights.empty()) o.calibrate_weights = proof::kDefaultCalibration;
  return o;
}

// Chooses the codes of the weights for the text that the options name, and for a budget the schemes
// of matrices. Returns lines that say what came of it.
Result<std::vector<std::string>> choose_codes(const std::string& budget,
                                              plan::ConvertOptions& options, ThreadPool& pool) {
  graph::QuantizeOptions& quantize = options.quantize;
  std::vector<std::string> lines;
  if (quantize.calibration.empty()) return lines;
  proof::CalibrationText text =
      FERRY_TRY(proof::read_calibration_text(options, quantize.calibration, pool));
  if (!budget.empty()) {
    const auto limit = proof::read_budget(budget);
    if (!limit) return wrong("quantize_budget", limit.error().message);
    plan::ConvertOptions planned = options;
    planned.quantize.calibration = text.digest;
    const proof::BudgetPlan plan =
        FERRY_TRY(proof::plan_budget(planned, *limit, text.sequences, pool, {}));
    quantize.rules.insert(quantize.rules.end(), plan.rules.begin(), plan.rules.end());
    lines.push_back(plan.line());
  }
  quantize.calibrated = FERRY_TRY(proof::calibrate_weights(options, text.sequences, pool));
  quantize.calibration = std::move(text.digest);
  if (quantize.calibrated->compared_tokens > 0) {
    lines.push_back(proof::line_of(*quantize.calibrated));
  }
  return lines;
}

Result<plan::ConvertOptions> settle(const ConvertOptions& o) {
  if (o.source.empty()) return wrong("source", "must not be empty");
  const bool is_gguf = o.format == OutputFormat::kGguf || o.format == OutputFormat::kMmproj;
  if (!is_gguf && o.gguf_type != "auto") {
    return wrong("gguf_type", "must be auto unless the format is GGUF or a projector");
  }
  if (o.format != OutputFormat::kBundle && !o.quantize_budget.empty()) {
    return wrong("quantize_budget", "must be empty unless the format is a bundle");
  }
  if (o.format != OutputFormat::kGguf && !o.gguf_imatrix.empty()) {
    return wrong("gguf_imatrix", "must be empty unless the format is GGUF");
  }
  const plan::OptionTexts texts = texts_of(o);
  plan::ConvertOptions options;
  options.source = FERRY_TRY(checkpoint::find_source(o.source));
  options.check_tokenizer = true;
  plan::OptionReader reader(texts, plan::OptionReader::From::kCaller);
  describe(reader, options);
  Status status = reader.take();
  if (status) {
    plan::OptionChecker checker(texts, options.style.value_or(converters::ProgramStyle::kStateful),
                                output_of(o.format), "this format");
    describe(checker, options);
    status = checker.take();
  }
  FERRY_RETURN_IF_ERROR(std::move(status));
  if (o.hqq && !options.quantize.quantizes()) {
    return wrong("hqq", "must be false where nothing is quantised");
  }
  return options;
}

conversion::ExportFormat export_format(OutputFormat format) {
  switch (format) {
    case OutputFormat::kHuggingFace:
      return conversion::ExportFormat::kHuggingFace;
    case OutputFormat::kPyTorch:
      return conversion::ExportFormat::kPth;
    case OutputFormat::kBundledProgram:
      return conversion::ExportFormat::kBundled;
    case OutputFormat::kGguf:
      return conversion::ExportFormat::kGguf;
    case OutputFormat::kMmproj:
      return conversion::ExportFormat::kMmproj;
    case OutputFormat::kBundle:
    case OutputFormat::kSafetensors:
      break;
  }
  return conversion::ExportFormat::kSafetensors;
}

Status check_keys(const plan::MappedCheckpoint& checkpoint) {
  if (checkpoint.problems.empty()) return {};
  return Failure(converters::problems_error(checkpoint.problems, *checkpoint.source));
}

// Checks that the output does not replace the input.
Status check_apart(const std::string& source, const std::string& path) {
  std::error_code none;
  const std::filesystem::path from(source);
  const std::filesystem::path folder = from.has_parent_path() ? from.parent_path() : ".";
  if (!std::filesystem::equivalent(path, from, none) &&
      !(std::filesystem::is_regular_file(from, none) &&
        std::filesystem::equivalent(path, folder, none))) {
    return {};
  }
  return wrong("path", "must not be where the checkpoint is");
}

bool names_weight_file(std::string_view path) {
  return std::ranges::any_of(std::array{".safetensors", ".gguf", ".pth", ".pt"},
                             [&](const char* ending) { return path.ends_with(ending); });
}

void add_files(const std::vector<packer::PlannedFile>& files, PlanSummary& summary) {
  for (const packer::PlannedFile& file : files) summary.files.push_back({file.path, file.bytes});
}

}  // namespace

Status ConversionPlan::Impl::check_planned(const std::string& path) const {
  if (path.empty()) return wrong("path", "must not be empty");
  if (!output.empty() && path != output) return wrong("path", "must be the output of the plan");
  if (output.empty() && files && files->plan->input().is_directory && names_weight_file(path)) {
    return wrong("path", "must not name a file: the plan is a directory, because output is empty");
  }
  return {};
}

ConversionPlan::ConversionPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConversionPlan::~ConversionPlan() = default;
ConversionPlan::ConversionPlan(ConversionPlan&&) noexcept = default;
ConversionPlan& ConversionPlan::operator=(ConversionPlan&&) noexcept = default;

Result<ConversionPlan> ConversionPlan::make(const ConvertOptions& options, const Engine& engine) {
  const auto plan = [&](ThreadPool& pool) -> Result<std::unique_ptr<Impl>> {
    auto impl = std::make_unique<Impl>(Impl{.source = options.source, .output = options.output});
    plan::ConvertOptions settled = FERRY_TRY(settle(with_budget(options)));
    if (options.format == OutputFormat::kBundle) {
      if (proof::needs_calibration(settled)) {
        FERRY_RETURN_IF_ERROR(proof::calibrate(settled, {}, pool));
      }
      impl->notes = FERRY_TRY(choose_codes(options.quantize_budget, settled, pool));
      impl->bundle = FERRY_TRY(conversion::prepare(settled, &pool));
    } else {
      conversion::ExportOptions to;
      to.convert = std::move(settled);
      to.format = export_format(options.format);
      to.type = options.gguf_type;
      to.imatrix = options.gguf_imatrix;
      to.out = options.output;
      impl->files = FERRY_TRY(conversion::plan_export(to, pool));
    }
    FERRY_RETURN_IF_ERROR(check_keys(impl->mapped()));
    return impl;
  };
  return library::run(engine, options.source, [&](ThreadPool& pool) -> Result<ConversionPlan> {
    Result<std::unique_ptr<Impl>> impl = plan(pool);
    if (!impl) return about_member(std::move(impl).error());
    return ConversionPlan(std::move(*impl));
  });
}

PlanSummary ConversionPlan::summary() const {
  PlanSummary summary;
  const plan::MappedCheckpoint& mapped = impl_->mapped();
  summary.family = mapped.family;
  summary.notes = mapped.notes;
  summary.notes.insert(summary.notes.end(), impl_->notes.begin(), impl_->notes.end());
  for (const converters::MappedEntry& entry : mapped.mapping.entries) {
    summary.keys.push_back({entry.source, entry.targets, entry.rule, entry.reason});
  }
  if (impl_->bundle) {
    add_files(impl_->bundle->plan->files(), summary);
    summary.total_bytes = impl_->bundle->plan->total_bytes();
    summary.activation_bytes = impl_->bundle->activation_bytes;
    summary.state_bytes = impl_->bundle->state_bytes;
  } else {
    add_files(impl_->files->plan->files(), summary);
    summary.total_bytes = impl_->files->plan->total_bytes();
  }
  return summary;
}

Status ConversionPlan::write(const WriteOptions& options, const Engine& engine,
                             const OnProgress& progress) const {
  const std::string& path = options.path.empty() ? impl_->output : options.path;
  return library::run(engine, path, [&](ThreadPool& pool) -> Status {
    FERRY_RETURN_IF_ERROR(impl_->check_planned(path));
    if (options.resume && !options.sync) return wrong("sync", "must be true with resume");
    FERRY_RETURN_IF_ERROR(check_apart(impl_->source, path));
    const ShowProgress show = library::show(progress, "writing");
    if (impl_->bundle) {
      const packer::BundleTarget target{.directory = path,
                                        .overwrite = options.overwrite,
                                        .resume = options.resume,
                                        .synced = options.sync};
      FERRY_TRY(impl_->bundle->plan->write(target, pool, show));
      return {};
    }
    FERRY_TRY(impl_->files->plan->write({.path = path,
                                         .overwrite = options.overwrite,
                                         .resume = options.resume,
                                         .synced = options.sync},
                                        pool, show));
    return {};
  });
}

Status convert(const ConvertOptions& options, const WriteOptions& output, const Engine& engine,
               const OnProgress& progress) {
  if (!options.output.empty() && options.output != output.path) {
    return wrong("output", "must be empty or the path to write");
  }
  ConvertOptions planned = options;
  planned.output = output.path;
  const ConversionPlan plan = FERRY_TRY(ConversionPlan::make(planned, engine));
  return plan.write(output, engine, progress);
}

}  // namespace v0
}  // namespace ferry
