#include "tests/mutation/trial.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>

#include "tests/cli/ferry_process.h"

namespace ferry::mutation {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// An unchanged checkpoint of the test data, and its facts.
struct Right {
  Checkpoint checkpoint;
  Facts facts;
  explicit Right(const Model& model)
      : checkpoint(read_checkpoint(model.directory)), facts(checkpoint) {
    for (const auto& [name, tensor] : read_tensors(model.reference)) {
      if (name.ends_with(".key")) facts.reference_has_keys = true;
      if (name != "short.hidden_states.0") continue;
      const auto count = static_cast<size_t>(tensor.rows()) * tensor.row_bytes() / sizeof(float);
      for (size_t i = 0; i < count; ++i) {
        const double value = tensor.value(i);
        facts.embedded_square += value * value / static_cast<double>(count);
      }
    }
  }
};

const Right& right_of(const Model& model) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Right>> known;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Right>& right = known[model.name];
  if (!right) right = std::make_unique<Right>(model);
  return *right;
}

// Runs ferry, or ferry with a wrong shard().
struct Tool {
  std::string wrong = {};
  Outcome run(const std::vector<std::string>& args) const {
    if (wrong.empty()) return run_program(FERRY_BINARY, args);
    return run_program(FERRY_WRONG_BINARY, args, {"FERRY_WRONG=" + wrong});
  }
};

struct Target {
  std::string dtype;
  int shards = 1;
};

std::vector<std::string> precision(const std::string& dtype) {
  if (!is_quantized(dtype)) return {"--dtype", dtype};
  std::vector<std::string> args = {"--dtype", "f32", "--quantize-embedding", "8"};
  // Rows of tiny models are rarely whole groups of 32.
  if (dtype == "8da4w") {
    args.insert(args.end(), {"--quantize", "8da8w", "--quantize-rule", "*.feed_forward.w1*=8da4w"});
  } else {
    args.insert(args.end(), {"--quantize", dtype});
  }
  return args;
}

// Converts, and returns whether the model supports the precision: its rows may not be whole groups.
bool convert(const Tool& tool, const std::string& checkpoint, const std::string& bundle,
             const Target& target) {
  std::vector<std::string> args = {
      "convert", checkpoint, "-o", bundle, "--shards", std::to_string(target.shards), "--quiet"};
  for (const std::string& word : precision(target.dtype)) args.push_back(word);
  const Outcome done = tool.run(args);
  constexpr int kUsage = 2;
  if (done.code == kUsage && is_quantized(target.dtype)) return false;
  if (done.code != 0) throw std::runtime_error("convert: " + done.err);
  return true;
}

Outcome verify(const Tool& tool, const std::string& bundle, const std::string& checkpoint,
               const std::string& reference) {
  return tool.run({"verify", bundle, "--checkpoint", checkpoint, "--reference", reference, "--json",
                   "--threads", "1"});
}

// Returns whether two bundles have equal program files.
bool same_programs(const std::string& a, const std::string& b) {
  for (const auto& entry : fs::directory_iterator(a)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".pte")) continue;
    if (read_bytes(entry.path()) != read_bytes(b + "/" + name)) return false;
  }
  return true;
}

// -- what a report names

// The expected error. `keys` are wrong keys of the checkpoint; none where only config or program is
// wrong. `layer` is the first layer that they belong to: -1 for the embedding, the number of layers
// for what follows the last layer. With a wrong config, other rows may be taken from right tensors.
struct Wrong {
  bool config = false;
  bool codes = false;  // every quantised weight has wrong codes
  std::set<std::string> keys = {};
  std::optional<int64_t> layer = {};
};

Wrong wrong_parts(const Right& right, const Checkpoint& changed) {
  Wrong wrong{.config = changed.config != right.checkpoint.config,
              .keys = changed_keys(right.checkpoint, changed)};
  const Facts& f = right.facts;
  for (const std::string& key : wrong.keys) {
    int64_t layer = key == f.embedding ? -1 : f.layers;
    for (int64_t i = 0; i < f.layers; ++i) {
      if (key.starts_with(f.layer(i))) layer = i;
    }
    wrong.layer = std::min(wrong.layer.value_or(layer), layer);
  }
  return wrong;
}

std::vector<std::string> lines_of(const Json& report, const char* part) {
  return report.value(part, Json::object()).value("different", std::vector<std::string>());
}

// A line about a weight names its source key. A head that only one of the two models has is named
// by itself.
bool names_one_of(const std::string& line, const Wrong& wrong, const Facts& f) {
  if (wrong.codes || (wrong.config && wrong.keys.empty())) return true;
  if (wrong.keys.contains(f.head) && line.starts_with("'output.weight'")) return true;
  return std::ranges::any_of(
      wrong.keys, [&](const std::string& key) { return line.find("'" + key + "'") != line.npos; });
}

// Returns whether all lines about weights name wrong ones.
bool judge_weights(const std::vector<std::string>& lines, const Wrong& wrong, const Facts& f,
                   Verdict& verdict) {
  for (const std::string& line : lines) {
    verdict.said = line;
    if (!names_one_of(line, wrong, f)) return false;
  }
  return true;
}

// Parses "FILE: layer 3, instruction ...", "FILE: before layer 0, ...".
void judge_program(const std::string& line, Verdict& verdict) {
  verdict.said = line;
  const size_t place = line.find(": ");
  verdict.named = place != line.npos && (line.compare(place + 2, 6, "layer ") == 0 ||
                                         line.compare(place + 2, 14, "before layer 0") == 0);
  verdict.placed = verdict.named;
}

// The outputs cannot differ before the first wrong layer.
void judge_divergence(const Json& report, const Wrong& wrong, Verdict& verdict) {
  const Json found = report.value("first_divergence", Json());
  if (!found.is_object()) return;
  const int64_t layer = found.value("layer", int64_t{-9});
  verdict.said = "layer " + std::to_string(layer) + " (" + found.value("tensor", "") + ")";
  verdict.named = !found.value("tensor", "").empty() && layer >= wrong.layer.value_or(-1);
  verdict.placed = verdict.named && layer == wrong.layer.value_or(layer);
}

void judge_names(const Json& report, const Wrong& wrong, const Facts& f, Verdict& verdict) {
  const std::vector<std::string> weights = lines_of(report, "tensors");
  const std::vector<std::string> programs = lines_of(report, "programs");
  if (verdict.mode == Mode::kConversion) {
    // The bundle is what the wrong conversion makes, so only the reference or the values of the
    // checkpoint can show the error.
    if (wrong.codes) {
      if (weights.empty()) return judge_divergence(report, wrong, verdict);
      verdict.named = verdict.placed = judge_weights(weights, wrong, f, verdict);
      return;
    }
    if (!weights.empty() || !programs.empty()) {
      verdict.said = "bundle and checkpoint agree, but it says " +
                     (weights.empty() ? programs : weights).front();
      return;
    }
    judge_divergence(report.value("f32_path", Json::object()), wrong, verdict);
  } else if (!weights.empty()) {
    verdict.named = verdict.placed = judge_weights(weights, wrong, f, verdict);
  } else if (!programs.empty()) {
    judge_program(programs.front(), verdict);
  } else {
    judge_divergence(report, wrong, verdict);
  }
}

// Returns whether the outputs of a quantised bundle show the error: with activations in f32 and its
// own weights, or compared with the model before quantisation.
bool outputs_differ(const Json& report) {
  const Json own = report.value("own_weights", Json::object());
  const Json in_f32 = own.value("in_f32", Json::object());
  return !in_f32.value("parity", true) || report.value("first_divergence", Json()).is_object();
}

void judge(const Outcome& outcome, const Wrong& wrong, const Facts& f, Verdict& verdict) {
  verdict.caught = outcome.code == 1;
  const Json report = Json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
  if (outcome.code != 0 && outcome.code != 1) {
    verdict.said = "exit " + std::to_string(outcome.code) + ": " + outcome.err;
  } else if (!report.is_object()) {
    verdict.said = "no report: " + outcome.err;
  } else if (verdict.caught) {
    judge_names(report, wrong, f, verdict);
    verdict.seen = outputs_differ(report);
  }
}

// Verifies both modes for one dtype.
void verify_both(const Kind& kind, const Model& model, const std::string& wrong_checkpoint,
                 const std::string& bundle, const Wrong& wrong, const Facts& facts, Trial& trial,
                 const std::string& dtype) {
  const Tool tool{kind.change ? "" : kind.name};
  Verdict verdict{.mode = Mode::kBundle, .dtype = dtype};
  judge(verify({}, bundle, model.directory, model.reference), wrong, facts, verdict);
  trial.verdicts.push_back(verdict);
  if (!trial.invisible.empty()) return;
  verdict = {.mode = Mode::kConversion, .dtype = dtype};
  judge(verify(tool, bundle, wrong_checkpoint, model.reference), wrong, facts, verdict);
  trial.verdicts.push_back(verdict);
}

void run_applicable(const Kind& kind, const Model& model, const Right& right,
                    const std::vector<std::string>& dtypes, Trial& trial) {
  const TempDir dir;
  Checkpoint changed = right.checkpoint;
  std::string source = model.directory;
  const Tool tool{kind.change ? "" : kind.name};
  if (kind.change) {
    kind.change(changed, right.facts);
    if (changed == right.checkpoint) throw std::runtime_error("nothing was changed");
    source = dir / "wrong";
    write_checkpoint(changed, model.directory, source);
  }
  Wrong wrong = wrong_parts(right, changed);
  wrong.codes = kind.codes;
  // Half of all trials cut the model in two shards.
  const int shards = 1 + static_cast<int>((kind.name.size() + model.name.size()) % 2);
  for (const std::string& dtype : dtypes) {
    if (kind.codes && !is_quantized(dtype)) continue;
    const std::string bundle = dir / dtype;
    if (!convert(tool, source, bundle, {dtype, shards})) continue;
    if (!kind.change && !kind.codes) {
      convert({}, source, bundle + "_right", {dtype, shards});
      // A quantised program may lack the node that the change is made to.
      const bool same = same_programs(bundle, bundle + "_right");
      if (same && is_quantized(dtype)) continue;
      if (same) {
        throw std::runtime_error("the program was not changed");
      }
    }
    verify_both(kind, model, source, bundle, wrong, right.facts, trial, dtype);
  }
}

// -- margins of right conversions

void add_margin(const Json& sqnr, const Json& floor, Margins& margins) {
  if (floor.is_number()) {
    margins.db = std::min(margins.db, sqnr.get<double>() - floor.get<double>());
  }
}

void add_share(const Json& difference, const Json& bound, double scale, Margins& margins) {
  if (!bound.is_number()) return;
  const double most = bound.get<double>() * std::max(scale, 1.0);
  margins.share = std::max(margins.share, difference.get<double>() / most);
}

// Adds the share of the bound that a ratio to the noise uses.
void add_noise(const Json& values, Margins& margins) {
  if (values.at("margin").is_number()) {
    margins.share = std::max(margins.share, 1 / values.at("margin").get<double>());
  }
}

// Adds the margins of one part of the report: of the bundle, or of f32 execution.
void add_margins(const Json& report, Margins& margins) {
  const Json& bounds = report.at("tolerance");
  const Json& metrics = report.at("metrics");
  add_margin(metrics.at("sqnr_db"), bounds.at("logits_floor_db"), margins);
  add_share(metrics.at("max_abs"), bounds.at("logits_max_abs"), 1, margins);
  add_noise(bounds, margins);
  for (const Json& layer : report.at("layers")) {
    add_noise(layer, margins);
    add_margin(layer.at("sqnr_db"), layer.at("floor_db"), margins);
    add_share(layer.at("max_abs"), bounds.at("layers_scaled"), layer.at("scale"), margins);
  }
}

std::string margins_text(const Margins& margins) {
  char text[120];
  std::snprintf(text, sizeof text,
                "differences at most %.1f %% of a bound, SQNR %.1f dB above a floor",
                100 * margins.share, margins.db);
  return text;
}

void judge_control(const Outcome& outcome, Verdict& verdict) {
  verdict.caught = outcome.code != 0;
  const Json report = Json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
  if (verdict.caught || !report.is_object()) {
    verdict.said = outcome.err;
    return;
  }
  Margins& margins = verdict.margins;
  add_margins(report, margins);
  add_margins(report.at("f32_path"), margins);
  if (report.contains("own_weights")) {
    add_margins(report.at("own_weights").at("in_f32"), margins);
    add_margins(report.at("own_weights").at("activations"), margins);
  }
  verdict.caught = margins.db < kLeastMargins.db || margins.share > kLeastMargins.share;
  verdict.said = margins_text(margins);
}

}  // namespace

const char* mode_name(Mode mode) { return mode == Mode::kBundle ? "bundle" : "conversion"; }

std::vector<Model> models() {
  std::vector<Model> all;
  const auto add = [&](const std::string& directory) {
    all.push_back({fs::path(directory).filename(), directory, directory + "/golden.safetensors"});
  };
  // Facts does not know the layouts of these families.
  const std::set<std::string> unknown = {"afmoe",
                                         "afmoe_fourth",
                                         "apertus",
                                         "bitnet",
                                         "bitnet_offline",
                                         "bitnet_online",
                                         "bitnet_packed",
                                         "bloom",
                                         "cohere2_moe",
                                         "dbrx",
                                         "deepseek_v2",
                                         "deepseek_v3",
                                         "doge",
                                         "dots1",
                                         "ernie4_5_moe",
                                         "ernie4_5_moe_plain",
                                         "exaone_moe",
                                         "falcon",
                                         "falcon_alibi",
                                         "falcon_multi_query",
                                         "flex_olmo",
                                         "gemma4",
                                         "gemma4_dense",
                                         "gemma4_moe",
                                         "glm4_moe",
                                         "glm4_moe_lite",
                                         "gpt_bigcode",
                                         "gpt_bigcode_heads",
                                         "gpt_neo",
                                         "gpt_oss",
                                         "gpt_oss_mxfp4",
                                         "gptj",
                                         "granitemoehybrid_mamba",
                                         "granitemoeshared",
                                         "hunyuan_v1_moe",
                                         "jetmoe",
                                         "lfm2_moe",
                                         "llama4_text",
                                         "mimo_v2_flash",
                                         "minicpm3",
                                         "minimax_m2",
                                         "mpt",
                                         "nanochat",
                                         "olmo",
                                         "olmo_hybrid",
                                         "openai_gpt",
                                         "persimmon",
                                         "phimoe",
                                         "recurrent_gemma",
                                         "vaultgemma",
                                         "xglm",
                                         "mamba2",
                                         "mamba",
                                         "falcon_mamba",
                                         "bamba",
                                         "falcon_h1",
                                         "nemotron_h",
                                         "zamba2",
                                         "jamba"};
  for (const auto& entry : fs::directory_iterator(fixture("golden"))) {
    if (!unknown.contains(entry.path().filename())) add(entry.path());
  }
  add(fixture("llama3_tied"));
  add(fixture("qwen3_5_text"));
  add(fixture("trained"));
  std::ranges::sort(all, {}, &Model::name);
  return all;
}

std::string excluded(const Kind& kind, const Model& model) {
  const Right& right = right_of(model);
  return kind.excluded(right.checkpoint, right.facts);
}

Trial run_trial(const Kind& kind, const Model& model, const std::vector<std::string>& dtypes) {
  Trial trial{.kind = kind.name, .model = model.name};
  try {
    const Right& right = right_of(model);
    trial.excluded = kind.excluded(right.checkpoint, right.facts);
    if (!trial.excluded.empty()) return trial;
    if (kind.invisible) trial.invisible = kind.invisible(right.facts);
    run_applicable(kind, model, right, dtypes, trial);
  } catch (const std::exception& e) {
    trial.broken = e.what();
  }
  return trial;
}

Trial run_control(const Model& model, const std::vector<std::string>& dtypes) {
  Trial trial{.kind = "unchanged", .model = model.name};
  try {
    const TempDir dir;
    for (const std::string& dtype : dtypes) {
      if (!convert({}, model.directory, dir / dtype, {dtype})) continue;
      Verdict verdict{.mode = Mode::kBundle, .dtype = dtype};
      judge_control(verify({}, dir / dtype, model.directory, model.reference), verdict);
      trial.verdicts.push_back(verdict);
    }
  } catch (const std::exception& e) {
    trial.broken = e.what();
  }
  return trial;
}

}  // namespace ferry::mutation
