// ferry imatrix measures the importance matrix of a checkpoint, which convert --to gguf takes.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/hub_cache.h"
#include "cli/context.h"
#include "cli/verbs.h"
#include "conversion/importance_file.h"
#include "core/atomic_file.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "proof/calibration_text.h"

namespace ferry::cli {
namespace {

struct ImatrixLine {
  std::string source, out, config, lora;
  std::string text = std::string(proof::kDefaultCalibration);
  bool overwrite = false;
};

Result<int> run(Context& context, const ImatrixLine& o) {
  if (o.out.empty()) return fail(ErrorCode::kUsage, "--out is required");
  conversion::ImportanceOptions options;
  options.convert.source = FERRY_TRY(checkpoint::find_source(o.source));
  options.convert.config = o.config;
  options.convert.lora = o.lora;
  options.text = o.text;
  options.records = o.out.ends_with(".dat");
  const conversion::ImportanceFile file = FERRY_TRY(conversion::make_importance_file(
      options, context.pool(), context.progress("measuring", ProgressUnit::kItems)));
  FERRY_RETURN_IF_ERROR(
      write_atomically(o.out, file.bytes, o.overwrite ? IfExists::kReplace : IfExists::kRefuse));
  for (const std::string& note : file.notes) context.note(note);
  if (context.json) {
    JsonWriter json;
    json.begin_object().member("path", o.out).member("format", options.records ? "dat" : "gguf");
    json.member("entries", file.entries).member("sequences", file.sequences);
    json.member("tokens", file.tokens).member("bytes", file.bytes.size()).end_object();
    context.print_result(json.take(), 0);
  } else if (!context.quiet) {
    context.print(
        fmt::format("{}: {} entries of {} tokens\n", printable(o.out), file.entries, file.tokens));
  }
  return 0;
}

}  // namespace

void add_imatrix(CommandLine& line) {
  auto o = std::make_shared<ImatrixLine>();
  line.verb("imatrix", "Measure an importance matrix, for convert --to gguf --imatrix")
      .positional("SRC", o->source, "Checkpoint, as for convert")
      .finds_models()
      .option("-o,--out FILE", o->out,
              "New file, as llama-imatrix writes it: .dat has the older format, any other ending "
              "GGUF")
      .option("--text FILE", o->text,
              "A text, token ids or chats, as --calibrate-weights of convert takes them; default: "
              "the text that is in the program")
      .option("--config FILE", o->config, "As for convert")
      .option("--lora DIR", o->lora, "An adapter that is merged, as for convert")
      .finds_models()
      .flag("--overwrite", o->overwrite, "Replace a file that exists")
      .example("ferry imatrix checkpoint/ -o imatrix.gguf", "On the text in the program.")
      .example(
          "ferry convert checkpoint/ --to gguf --outtype iq4_xs --imatrix imatrix.gguf -o "
          "model-iq4_xs.gguf",
          "The file that llama-quantize makes with it.")
      .action([o](Context& context) { return run(context, *o); });
}

}  // namespace ferry::cli
