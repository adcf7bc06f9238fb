// ferry convert turns a checkpoint into a bundle, or into files for other tools.

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>

#include "cli/convert_options.h"
#include "cli/convert_report.h"
#include "cli/verbs.h"
#include "conversion/convert.h"
#include "converters/assemble.h"
#include "core/atomic_file.h"
#include "core/text.h"
#include "packer/bundle_reader.h"
#include "packer/staging_directory.h"
#include "plan/quantize_plan.h"
#include "proof/calibration.h"
#include "proof/calibration_text.h"
#include "proof/weight_budget.h"
#include "proof/weight_calibration.h"
#include "signing/model_digest.h"
#include "signing/sign_model.h"

namespace ferry::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Prints the error for keys that do not fit, with the result of the conversion, which lists them.
int refuse_keys(Context& context, const plan::MappedCheckpoint& checkpoint,
                const std::string& json) {
  return context.refuse(converters::problems_error(checkpoint.problems, *checkpoint.source), json);
}

// Both files are read first, so that an error in the second one does not waste a calibration.
Status calibrate(ConvertLine& options, ThreadPool& pool) {
  proof::Prompts prompts, prefill;
  if (!options.calibrate.empty()) prompts = FERRY_TRY(proof::read_prompts(options.calibrate));
  if (!options.calibrate_prefill.empty()) {
    prefill = FERRY_TRY(proof::read_prompts(options.calibrate_prefill));
  }
  FERRY_RETURN_IF_ERROR(proof::calibrate(options.convert, prompts, pool));
  if (prefill.empty()) return {};
  return proof::calibrate_prefill(options.convert, prefill, pool);
}

// Adds the rules of a plan for the budget that the options name, and prints them.
Status choose_bits(Context& context, const proof::CalibrationText& text, ConvertLine& options) {
  const IfExists existing = options.overwrite ? IfExists::kReplace : IfExists::kRefuse;
  if (!options.quantize_plan.empty()) {  // errors that can be known before the work begins
    FERRY_TRY(AtomicFile::create(options.quantize_plan, existing, 0));
  }
  plan::ConvertOptions convert = options.convert;
  // The manifest of the bundle states the digest, which counts too.
  convert.quantize.calibration = text.digest;
  const proof::BudgetPlan plan =
      FERRY_TRY(proof::plan_budget(convert, *options.budget, text.sequences, context.pool(),
                                   context.progress("measuring what codes cost")));
  std::vector<graph::QuantizeRule>& rules = options.convert.quantize.rules;
  rules.insert(rules.end(), plan.rules.begin(), plan.rules.end());
  context.note(plan.line());
  for (const std::string& line : plan::summary_of(plan.rules)) context.note(line);
  if (options.quantize_plan.empty()) return {};
  return write_atomically(options.quantize_plan, proof::plan_text(plan), existing);
}

// Chooses the codes of weights for the text that the options name.
Status calibrate_weights(Context& context, ConvertLine& options) {
  if (!options.one_part && !options.dry_run) {
    FERRY_RETURN_IF_ERROR(packer::StagingDirectory::check_target(
        options.out, options.overwrite || options.if_changed));
  }
  graph::QuantizeOptions& quantize = options.convert.quantize;
  proof::CalibrationText text = FERRY_TRY(
      proof::read_calibration_text(options.convert, quantize.calibration, context.pool()));
  if (options.budget) {
    FERRY_RETURN_IF_ERROR(choose_bits(context, text, options));
    if (options.dry_run) return {};
  }
  quantize.calibrated = FERRY_TRY(proof::calibrate_weights(
      options.convert, text.sequences, context.pool(), context.progress("calibrating")));
  quantize.calibration = std::move(text.digest);
  if (quantize.calibrated->compared_tokens > 0) {
    context.note(proof::line_of(*quantize.calibrated));
  }
  return {};
}

// Returns whether the existing files are those that the plan would make.
Result<bool> is_up_to_date(Context& context, const packer::WeightFilesPlan& plan,
                           const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return false;  // writing will report other errors
  const std::string why = FERRY_TRY(
      plan.difference(path, context.pool(), context.progress("comparing with the checkpoint")));
  if (!why.empty()) context.note(fmt::format("{}: made again: {}", printable(path), why));
  return why.empty();
}

// Returns whether the existing bundle is the one that the plan would make.
Result<bool> is_up_to_date(Context& context, const packer::BundlePlan& plan,
                           const std::string& directory) {
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0) return false;  // writing will report other errors
  const auto bundle = packer::Bundle::open(directory, /*check_digests=*/false, context.pool());
  if (!bundle) {
    context.detail(bundle.error().message);
    return false;
  }
  const std::string why = FERRY_TRY(plan.difference(
      bundle->manifest(), context.pool(), context.progress("comparing with the checkpoint")));
  if (!why.empty()) context.note(fmt::format("{}: made again: {}", printable(directory), why));
  return why.empty();
}

void note_writing(const plan::MappedCheckpoint& checkpoint, const ConvertLine& options,
                  uint64_t resumed_bytes, uint64_t total_bytes,
                  std::vector<packer::NonFiniteWeight> non_finite, ConversionOutcome& outcome) {
  if (resumed_bytes > 0) {
    outcome.notes.push_back(
        fmt::format("{}: {} of {} were there",
                    options.join.empty() ? "went on with an earlier run" : "joined the parts",
                    human_bytes(resumed_bytes), human_bytes(total_bytes)));
  }
  std::ranges::copy(non_finite_notes(non_finite, checkpoint.source->path()),
                    std::back_inserter(outcome.notes));
  outcome.non_finite = std::move(non_finite);
  const std::vector<std::string>& unused = checkpoint.unused_config_keys;
  if (!unused.empty()) outcome.notes.push_back(unused_keys_note(unused));
}

// Signs the bundle at `directory`, which is or will be --out.
Status sign(Context& context, const ConvertLine& options, const std::string& directory,
            ConversionOutcome& outcome) {
  const std::string name(signing::kSignatureName);
  std::string out = options.out;
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  const signing::DigestOptions digest{.progress = context.progress("signing"),
                                      .name = base_name(out)};
  outcome.signature = FERRY_TRY(
      signing::sign_model(directory, options.key, directory + "/" + name, digest, context.pool()));
  outcome.signature->signature = out + "/" + name;
  return {};
}

// Signs a bundle that was there, after comparing every byte of it with its manifest.
Status sign_existing(Context& context, const ConvertLine& options, ConversionOutcome& outcome) {
  const auto bundle = packer::Bundle::open(options.out, /*check_digests=*/true, context.pool(),
                                           context.progress("checking"));
  if (!bundle) return Failure(bundle.error());
  return sign(context, options, options.out, outcome);
}

// Writes the bundle, and adds notes and non-finite weights to `outcome`.
Status write(Context& context, const plan::Conversion& conversion, const ConvertLine& options,
             ConversionOutcome& outcome) {
  std::function<Status(const std::string&)> finish;
  if (!options.key.private_key.empty()) {
    finish = [&](const std::string& directory) {
      return sign(context, options, directory, outcome);
    };
  }
  packer::WrittenBundle written =
      FERRY_TRY(conversion.plan->write({.directory = options.out,
                                        .overwrite = options.overwrite || options.if_changed,
                                        .resume = options.resume,
                                        .synced = !options.no_sync,
                                        .parts = options.join,
                                        .finish = finish},
                                       context.pool(), context.progress("writing")));
  note_writing(conversion.mapped, options, written.resumed_bytes, conversion.plan->total_bytes(),
               std::move(written.non_finite), outcome);
  return {};
}

// Writes the data files of one part of a bundle, without a manifest.
Status write_converted(Context& context, const plan::Conversion& conversion,
                       const ConvertLine& options, ConversionOutcome& outcome) {
  const packer::WrittenPart written = FERRY_TRY(
      conversion.plan->write_part({.directory = options.out, .overwrite = options.overwrite},
                                  *options.one_part, context.pool(), context.progress("writing")));
  note_writing(conversion.mapped, options, written.resumed_bytes, written.bytes, {}, outcome);
  outcome.notes.push_back(fmt::format(
      "part {} of {}: {} data files, {}; convert --join makes the bundle once all parts are there",
      options.one_part->number, options.one_part->count, written.files.size(),
      human_bytes(written.bytes)));
  return {};
}

std::string last_line(const ConvertLine& options, const ConversionOutcome& outcome) {
  if (options.dry_run) return "dry run: nothing was written\n";
  const std::string key = outcome.signature ? fmt::format("signed with the key {} ({})\n",
                                                          outcome.signature->signer.key,
                                                          outcome.signature->signer.curve)
                                            : std::string();
  if (outcome.up_to_date) return key + fmt::format("{}: up to date\n", printable(options.out));
  return key + fmt::format("wrote {} in {:.2f} s\n", printable(options.out), outcome.seconds);
}

Status write(Context& context, const conversion::Export& exported, const ConvertLine& options,
             ExportOutcome& outcome) {
  packer::WrittenFiles written =
      FERRY_TRY(exported.plan->write({.path = options.out,
                                      .overwrite = options.overwrite || options.if_changed,
                                      .resume = options.resume,
                                      .synced = !options.no_sync},
                                     context.pool(), context.progress("writing")));
  outcome.files = std::move(written.files);
  note_writing(exported.mapped, options, written.resumed_bytes, exported.plan->total_bytes(),
               std::move(written.non_finite), outcome);
  return {};
}

// Returns whether two paths lead to one file or directory.
bool is_same(const std::string& a, const std::string& b) {
  struct stat first {
  }, second{};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Refuses an output that would replace the checkpoint.
Status check_apart(const ConvertLine& options) {
  const std::string& source = options.convert.source;
  const size_t slash = source.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : source.substr(0, slash + 1);
  if (options.dry_run || (!is_same(options.out, source) && !is_same(options.out, folder)))
    return {};
  return fail(ErrorCode::kUsage,
              fmt::format("-o {}: that is where the checkpoint is", printable(options.out)));
}

// Converts to files of another format.
Result<int> export_files(Context& context, const ConvertLine& options,
                         const conversion::ExportOptions& to) {
  const auto start = Clock::now();
  FERRY_RETURN_IF_ERROR(check_apart(options));
  const conversion::Export exported = FERRY_TRY(conversion::plan_export(to, context.pool()));
  context.detail(fmt::format("read {} and planned in {:.2f} s", printable(options.convert.source),
                             seconds_since(start)));
  ExportOutcome outcome;
  outcome.source = options.convert.source;
  outcome.notes = exported.mapped.notes;
  outcome.dtype = plan::name_of(options.convert.dtype);
  outcome.format = options.to;
  if (!exported.mapped.problems.empty()) {
    return refuse_keys(context, exported.mapped,
                       context.json ? export_json(exported, outcome) : "");
  }
  if (!options.dry_run) outcome.path = options.out;
  if (options.if_changed) {
    outcome.up_to_date = FERRY_TRY(is_up_to_date(context, *exported.plan, options.out));
  }
  if (!options.dry_run && !outcome.up_to_date) {
    FERRY_RETURN_IF_ERROR(write(context, exported, options, outcome));
  }
  outcome.seconds = seconds_since(start);
  if (context.json) {
    context.print_result(export_json(exported, outcome), 0);
  } else if (!context.quiet) {
    if (!outcome.up_to_date) context.print(export_text(exported, /*table=*/options.dry_run));
    context.print(last_line(options, outcome));
  }
  if (!outcome.up_to_date) {
    for (const std::string& note : outcome.notes) context.note(note);
  }
  return 0;
}

// Adds a note if the name of a bundle looks like a file. This is no error, because batches name
// bundles after their inputs.
void note_name(const ConvertLine& options, ConversionOutcome& outcome) {
  constexpr std::pair<std::string_view, std::string_view> kEndings[] = {{".gguf", "gguf"},
                                                                        {".safetensors", "hf"},
                                                                        {".pth", "pth"},
                                                                        {".pt", "pth"},
                                                                        {".bpte", "bpte"}};
  for (const auto& [ending, format] : kEndings) {
    if (!options.out.ends_with(ending)) continue;
    outcome.notes.push_back(fmt::format("{}: a bundle, which is a directory; --to {} writes a file",
                                        printable(options.out), format));
  }
}

Result<int> convert(Context& context, ConvertLine& options) {
  const auto start = Clock::now();
  FERRY_RETURN_IF_ERROR(settle(options));
  if (const auto to = export_options(options)) return export_files(context, options, *to);
  // A dry run computes no encodings. Its plan has placeholders for them.
  if (options.dry_run) {
    if (!options.calibrate_prefill.empty()) options.convert.ports.prefill_keys.resize(1);
  } else if (proof::needs_calibration(options.convert)) {
    FERRY_RETURN_IF_ERROR(calibrate(options, context.pool()));
  }
  if (!options.convert.quantize.calibration.empty() && (!options.dry_run || options.budget)) {
    FERRY_RETURN_IF_ERROR(calibrate_weights(context, options));
  }
  const plan::Conversion conversion =
      FERRY_TRY(conversion::prepare(options.convert, &context.pool()));
  context.detail(fmt::format("read {} and planned in {:.2f} s", printable(options.convert.source),
                             seconds_since(start)));
  ConversionOutcome outcome = {.source = options.convert.source, .notes = conversion.mapped.notes};
  note_name(options, outcome);
  outcome.dtype = plan::name_of(options.convert.dtype);
  outcome.calibrated = options.convert.quantize.calibrated;
  if (!conversion.mapped.problems.empty()) {
    return refuse_keys(context, conversion.mapped,
                       context.json ? conversion_json(conversion, outcome) : "");
  }
  if (!options.dry_run) outcome.path = options.out;
  if (options.if_changed) {
    outcome.up_to_date = FERRY_TRY(is_up_to_date(context, *conversion.plan, options.out));
  }
  if (!options.dry_run && !outcome.up_to_date) {
    FERRY_RETURN_IF_ERROR(options.one_part ? write_converted(context, conversion, options, outcome)
                                           : write(context, conversion, options, outcome));
  }
  if (outcome.up_to_date && !options.dry_run && !options.key.private_key.empty()) {
    FERRY_RETURN_IF_ERROR(sign_existing(context, options, outcome));
  }
  outcome.seconds = seconds_since(start);
  if (context.json) {
    context.print_result(conversion_json(conversion, outcome), 0);
  } else if (!context.quiet) {
    if (!outcome.up_to_date) {
      context.print(conversion_text(conversion, /*table=*/options.dry_run));
    }
    context.print(last_line(options, outcome));
  }
  if (!outcome.up_to_date) {
    for (const std::string& note : outcome.notes) context.note(note);
  }
  return 0;
}

}  // namespace

void add_convert(CommandLine& line) {
  auto options = std::make_shared<ConvertLine>();
  options->convert.check_tokenizer = true;
  Verb verb = line.verb("convert",
                        "Turn a checkpoint into a program bundle, or into files for other tools");
  add_convert_options(verb, *options);
  verb.example("ferry convert checkpoint/ -o bundle/ --reference golden.safetensors",
               "Makes a bundle, with the outputs that `ferry verify` will compare it with.")
      .example("ferry convert checkpoint/ -n --quantize 8da4w-g32",
               "Shows what becomes of each key, and the size of every file; writes nothing.")
      .example("ferry convert checkpoint/ -o bundle/ --if-changed",
               "In a job that runs often: done at once where nothing has changed.")
      .example("ferry convert checkpoint/ --to safetensors -o weights/ --max-file-size 4GiB",
               "Writes the weights of the bundle as safetensors files.")
      .exit_codes({{"6", "the output exists; see --overwrite and --if-changed"}})
      .action([options](Context& context) { return convert(context, *options); });
}

}  // namespace ferry::cli
