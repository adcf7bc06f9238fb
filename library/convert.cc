#include <ferry/convert.h>

#include <filesystem>
#include <utility>

#include "convert/convert.h"
#include "convert/export.h"
#include "converters/assemble.h"
#include "library/internal.h"
#include "proof/calibration.h"

namespace ferry {
inline namespace v0 {

struct ConversionPlan::Impl {
  std::string source;
  // One of both.
  std::optional<plan::Conversion> bundle = {};
  std::optional<convert::Export> files = {};

  const plan::MappedCheckpoint& mapped() const {
    if (bundle) return *bundle;
    return *files;
  }
};

namespace {

using library::wrong;

constexpr int32_t kMaxShards = 10000;

DType dtype_of(ValueType type) {
  switch (type) {
    case ValueType::kF16:
      return DType::kF16;
    case ValueType::kBF16:
      return DType::kBF16;
    case ValueType::kU16:
      return DType::kU16;
    case ValueType::kU8:
      return DType::kU8;
    case ValueType::kI8:
      return DType::kI8;
    case ValueType::kF32:
      break;
  }
  return DType::kF32;
}

graph::WeightDType weight_dtype_of(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return graph::WeightDType::kF32;
    case WeightType::kF16:
      return graph::WeightDType::kF16;
    case WeightType::kBF16:
      return graph::WeightDType::kBF16;
    case WeightType::kKeep:
      break;
  }
  return graph::WeightDType::kKeep;
}

Result<graph::LinearQuantization> linear_of(const LinearQuantization& from,
                                            const std::string& field) {
  using Kind = graph::LinearQuantization::Kind;
  switch (from.scheme) {
    case LinearScheme::k8da4w:
      if (from.group < 32 || from.group > INT32_MAX || from.group % 32 != 0) {
        return wrong(field, "must have a group that is a multiple of 32");
      }
      return graph::LinearQuantization{Kind::k8da4w, from.group};
    case LinearScheme::k8da8w:
      return graph::LinearQuantization{Kind::k8da8w};
    case LinearScheme::kInt8:
      return graph::LinearQuantization{Kind::kInt8};
    case LinearScheme::kNone:
      break;
  }
  return graph::LinearQuantization{};
}

Result<graph::QuantizeOptions> quantize_options(const ConvertOptions& options) {
  graph::QuantizeOptions quantize;
  quantize.linears = FERRY_TRY(linear_of(options.quantize, "quantize"));
  for (const QuantizationRule& rule : options.quantize_rules) {
    if (rule.pattern.empty()) return wrong("quantize_rules", "must have patterns");
    quantize.rules.push_back({rule.pattern, FERRY_TRY(linear_of(rule.linear, "quantize_rules"))});
  }
  if (options.embedding_bits == 4) {
    const int64_t group = options.embedding_group;
    if (group < 2 || group > INT32_MAX || group % 2 != 0) {
      return wrong("embedding_group", "must be an even number, 2 or more");
    }
    quantize.embeddings = {4, group};
  } else if (options.embedding_bits == 8) {
    quantize.embeddings = {8, 0};
  } else if (options.embedding_bits != 0) {
    return wrong("embedding_bits", "must be 0, 4 or 8");
  }
  if (!options.hqq) return quantize;
  if (!quantize.quantizes()) return wrong("hqq", "must be false where nothing is quantised");
  quantize.method = graph::ScaleMethod::kHqq;
  return quantize;
}

// The members that programs of one kind only have.
Status check_program(const ConvertOptions& o) {
  const bool is_static = o.program == ProgramKind::kStatic;
  const bool only_static =
      o.kv_type == ValueType::kBF16 || o.kv_type == ValueType::kU16 || o.kv_type == ValueType::kU8;
  if (o.shards < 1 || o.shards > kMaxShards) {
    return wrong("shards", "must be from 1 to the number of layers");
  }
  if (is_static && o.kv_type == ValueType::kI8) {
    return wrong("kv_type", "must not be i8 with static programs");
  }
  if (is_static) {
    if (o.mask_type == ValueType::kI8) return wrong("mask_type", "must not be i8");
    if (o.logits_type == ValueType::kI8) return wrong("logits_type", "must not be i8");
    return {};
  }
  if (only_static) return wrong("kv_type", "must be f32, f16 or i8 unless programs are static");
  if (o.decode_length) return wrong("decode_length", "must be absent unless programs are static");
  if (o.mask_type != ValueType::kF32) {
    return wrong("mask_type", "must be f32 unless programs are static");
  }
  if (o.logits_type != ValueType::kF32) {
    return wrong("logits_type", "must be f32 unless programs are static");
  }
  return {};
}

// The members that other formats than bundles have nothing for. A bundled program is a stateful
// one.
Status check_format(const ConvertOptions& o) {
  if (o.format != OutputFormat::kGguf && o.gguf_type != "auto") {
    return wrong("gguf_type", "must be auto unless the format is GGUF");
  }
  if (o.format == OutputFormat::kGguf && o.dtype != WeightType::kKeep) {
    return wrong("dtype", "must be kKeep with the format GGUF, which has gguf_type");
  }
  if (o.format == OutputFormat::kBundle) return {};
  const bool has_program = o.format == OutputFormat::kBundledProgram;
  const std::pair<const char*, bool> refused[] = {
      {"quantize", o.quantize.scheme != LinearScheme::kNone},
      {"quantize_rules", !o.quantize_rules.empty()},
      {"embedding_bits", o.embedding_bits != 0},
      {"program", o.program != ProgramKind::kAuto && o.program != ProgramKind::kStateful},
      {"shards", o.shards != 1},
      {"reference", !has_program && !o.reference.empty()},
      {"context_length", !has_program && o.context_length},
      {"prefill_length", !has_program && o.prefill_length},
      {"kv_type", !has_program && o.kv_type != ValueType::kF32},
      {"all_logits", !has_program && o.all_logits}};
  for (const auto& [field, given] : refused) {
    if (given) return wrong(field, "must have its default with this format");
  }
  return {};
}

Result<plan::ConvertOptions> settle(const ConvertOptions& o) {
  if (o.source.empty()) return wrong("source", "must not be empty");
  FERRY_RETURN_IF_ERROR(check_program(o));
  FERRY_RETURN_IF_ERROR(check_format(o));
  const bool is_static = o.program == ProgramKind::kStatic;
  plan::ConvertOptions options;
  options.source = o.source;
  options.config = o.config;
  options.lora = o.lora;
  options.dtype = weight_dtype_of(o.dtype);
  options.quantize = FERRY_TRY(quantize_options(o));
  options.shards = o.shards;
  options.max_file_bytes = o.max_file_bytes;
  options.context_length = o.context_length;
  options.prefill_length = o.prefill_length;
  options.decode_length = o.decode_length;
  if (o.program == ProgramKind::kStateful) options.style = converters::ProgramStyle::kStateful;
  if (is_static) options.style = converters::ProgramStyle::kStatic;
  if (o.program == ProgramKind::kEncoder) options.style = converters::ProgramStyle::kEncoder;
  (is_static ? options.ports.cache : options.kv_cache) = dtype_of(o.kv_type);
  options.ports.mask = dtype_of(o.mask_type);
  options.ports.logits = dtype_of(o.logits_type);
  options.all_logits = o.all_logits;
  options.allow_unmapped = o.allow_unmapped;
  options.reference = o.reference;
  options.check_tokenizer = true;
  return options;
}

convert::ExportFormat export_format(OutputFormat format) {
  switch (format) {
    case OutputFormat::kHuggingFace:
      return convert::ExportFormat::kHuggingFace;
    case OutputFormat::kPyTorch:
      return convert::ExportFormat::kPth;
    case OutputFormat::kBundledProgram:
      return convert::ExportFormat::kBundled;
    case OutputFormat::kGguf:
      return convert::ExportFormat::kGguf;
    case OutputFormat::kBundle:
    case OutputFormat::kSafetensors:
      break;
  }
  return convert::ExportFormat::kSafetensors;
}

Status check_keys(const plan::MappedCheckpoint& checkpoint) {
  if (checkpoint.problems.empty()) return {};
  return Failure(converters::problems_error(checkpoint.problems, *checkpoint.source));
}

// What is read must not be replaced by what is written.
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

void add_files(const std::vector<packer::PlannedFile>& files, PlanSummary& summary) {
  for (const packer::PlannedFile& file : files) summary.files.push_back({file.path, file.bytes});
}

}  // namespace

ConversionPlan::ConversionPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConversionPlan::~ConversionPlan() = default;
ConversionPlan::ConversionPlan(ConversionPlan&&) noexcept = default;
ConversionPlan& ConversionPlan::operator=(ConversionPlan&&) noexcept = default;

Result<ConversionPlan> ConversionPlan::make(const ConvertOptions& options, const Engine& engine) {
  return library::run(engine, options.source, [&](ThreadPool& pool) -> Result<ConversionPlan> {
    auto impl = std::make_unique<Impl>(Impl{.source = options.source});
    plan::ConvertOptions settled = FERRY_TRY(settle(options));
    if (options.format == OutputFormat::kBundle) {
      if (proof::needs_calibration(settled)) {
        FERRY_RETURN_IF_ERROR(proof::calibrate(settled, {}, pool));
      }
      impl->bundle = FERRY_TRY(convert::prepare(settled, &pool));
    } else {
      convert::ExportOptions to;
      to.convert = std::move(settled);
      to.format = export_format(options.format);
      to.type = options.gguf_type;
      impl->files = FERRY_TRY(convert::plan_export(to, pool));
    }
    FERRY_RETURN_IF_ERROR(check_keys(impl->mapped()));
    return ConversionPlan(std::move(impl));
  });
}

PlanSummary ConversionPlan::summary() const {
  PlanSummary summary;
  const plan::MappedCheckpoint& mapped = impl_->mapped();
  summary.family = mapped.family;
  summary.notes = mapped.notes;
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
  return library::run(engine, options.path, [&](ThreadPool& pool) -> Status {
    if (options.path.empty()) return wrong("path", "must not be empty");
    if (options.resume && !options.sync) return wrong("sync", "must be true with resume");
    FERRY_RETURN_IF_ERROR(check_apart(impl_->source, options.path));
    ShowProgress show = library::show(progress, "writing");
    if (!show) show = [](uint64_t, uint64_t) {};
    if (impl_->bundle) {
      const packer::BundleTarget target{.directory = options.path,
                                        .overwrite = options.overwrite,
                                        .resume = options.resume,
                                        .synced = options.sync};
      FERRY_TRY(impl_->bundle->plan->write(target, pool, show));
      return {};
    }
    FERRY_TRY(impl_->files->plan->write({.path = options.path,
                                         .overwrite = options.overwrite,
                                         .resume = options.resume,
                                         .synced = options.sync},
                                        pool, show));
    return {};
  });
}

Status convert(const ConvertOptions& options, const WriteOptions& output, const Engine& engine,
               const OnProgress& progress) {
  const ConversionPlan plan = FERRY_TRY(ConversionPlan::make(options, engine));
  return plan.write(output, engine, progress);
}

}  // namespace v0
}  // namespace ferry
