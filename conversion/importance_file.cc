#include "conversion/importance_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "conversion/gguf_files.h"
#include "converters/assemble.h"
#include "core/text.h"
#include "dialects/gguf/file/importance.h"
#include "dialects/gguf/model/architecture.h"
#include "plan/mapped_model.h"
#include "proof/calibration_text.h"
#include "proof/input_squares.h"

namespace ferry::conversion {
namespace {

// The elements of the source that the first row of a matrix has, in its order: the tensor, and the
// distance from the first of them.
using RowElements = std::vector<std::pair<size_t, int64_t>>;

RowElements first_row(const graph::Recipe& recipe, int64_t columns) {
  RowElements row;
  const StridedPiece wanted = run_piece(0, 0, columns);
  for (const StridedPiece& piece : select(recipe.pieces, std::span(&wanted, 1))) {
    for_each_run(piece, [&](int64_t offset, int64_t count) {
      for (int64_t i = 0; i < count; ++i) row.emplace_back(piece.tensor, offset + i);
    });
  }
  if (row.empty()) return row;
  const int64_t first = std::ranges::min(row, {}, &RowElements::value_type::second).second;
  for (auto& element : row) element.second -= first;
  return row;
}

// Returns for each column of `to` the column of `from` that has the same elements of the source;
// empty if there is none for one of them. Rows of a tensor may be in another order.
std::vector<size_t> columns_of(const graph::Recipe& to, const graph::Recipe& from,
                               int64_t columns) {
  std::map<RowElements::value_type, size_t> places;
  const RowElements have = first_row(from, columns), want = first_row(to, columns);
  for (size_t i = 0; i < have.size(); ++i) places[have[i]] = i;
  std::vector<size_t> out;
  for (const auto& element : want) {
    const auto at = places.find(element);
    if (at == places.end()) return {};
    out.push_back(at->second);
  }
  return out;
}

// The matrices of the GGUF file, and the weights that are made of each.
struct FileTensors {
  std::map<std::string, graph::Recipe> recipes;
  std::map<std::string, std::vector<std::string>> of_weights;
};

Result<FileTensors> tensors_of(const plan::MappedModel& model,
                               const converters::GgufArchitecture& architecture) {
  FileTensors out;
  if (!is_gguf_source(model)) {
    GgufModelTensors made = FERRY_TRY(gguf_model_tensors(model, architecture));
    for (converters::GgufWrittenTensor& tensor : made.written) {
      out.recipes.emplace(tensor.name, std::move(tensor.recipe));
    }
    out.of_weights = std::move(made.targets);
    return out;
  }
  const TensorSource& source = *model.checkpoint.source;
  for (size_t i = 0; i < source.entries().size(); ++i) {
    out.recipes.emplace(source.entries()[i].name, graph::whole_tensor(source, i));
  }
  for (const converters::AssembledComponent& component : model.components) {
    for (const graph::Weight& weight : component.model.weights.weights()) {
      std::set<size_t> read;
      for (const StridedPiece& piece : weight.recipe.pieces) read.insert(piece.tensor);
      for (const size_t tensor : read) {
        out.of_weights[weight.name].push_back(source.entries()[tensor].name);
      }
    }
  }
  return out;
}

const graph::Recipe* recipe_of(const plan::MappedModel& model, const std::string& name) {
  for (const converters::AssembledComponent& component : model.components) {
    const graph::Weight* weight = component.model.weights.find(name);
    if (weight != nullptr) return &weight->recipe;
  }
  return nullptr;
}

}  // namespace

Result<ImportanceFile> make_importance_file(const ImportanceOptions& options, ThreadPool& pool,
                                            const proof::Progress& progress) {
  const plan::MappedModel model = FERRY_TRY(plan::map_checkpoint(options.convert));
  if (!model.checkpoint.problems.empty()) {
    return Failure(converters::problems_error(model.checkpoint.problems, *model.checkpoint.source));
  }
  const auto* architecture = converters::gguf_architecture_of(model.checkpoint.config);
  if (model.checkpoint.config.is_encoder) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} is an encoder, of which Ferry makes no importance matrix",
                            printable(model.config_name), model.checkpoint.config.text_type));
  }
  if (architecture == nullptr) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: 'model_type' is {}: Ferry writes no GGUF of it",
                    printable(model.config_name), quoted(model.checkpoint.config.text_type)));
  }
  const FileTensors tensors = FERRY_TRY(tensors_of(model, *architecture));
  const proof::CalibrationText text =
      FERRY_TRY(proof::read_calibration_text(options.convert, options.text, pool, "text"));
  if (!text.sequences.images.empty()) {
    return fail_field(ErrorCode::kUnsupported, "text", ": chats with images are not supported");
  }
  const auto squares = FERRY_TRY(
      proof::measure_input_squares(options.convert, text.sequences.tokens, pool, progress));

  ImportanceFile file;
  file.sequences = text.sequences.size();
  size_t longest = 0;
  for (const std::vector<int64_t>& sequence : text.sequences.tokens) {
    file.tokens += std::ssize(sequence);
    longest = std::max(longest, sequence.size());
  }
  formats::ImportanceSums sums;
  std::map<std::string, std::string> unlike;  // matrices of the file, and a weight
  size_t unreached = 0;
  for (const auto& [weight, of] : squares) {
    const auto names = tensors.of_weights.find(weight);
    if (names == tensors.of_weights.end()) continue;
    for (const std::string& name : names->second) {
      const auto to = tensors.recipes.find(name);
      if (to == tensors.recipes.end() || !name.starts_with("blk.") || sums.entries.contains(name))
        continue;
      const auto matrices = of.counts.size();
      const auto columns = static_cast<int64_t>(of.sums.size() / matrices);
      const graph::Recipe* from = recipe_of(model, weight);
      std::vector<size_t> order;
      if (from != nullptr && to->second.output().shape.back() == columns) {
        order = columns_of(to->second, *from, columns);
      }
      // Where a tensor of the source is made of several weights, each of them names all tensors of
      // the file that are made of it.
      if (order.empty()) {
        unlike.emplace(name, weight);
        continue;
      }
      formats::ImportanceSums::Entry& entry = sums.entries[name];
      entry.counts = of.counts;
      unreached += static_cast<size_t>(std::ranges::count(of.counts, 0.0f));
      for (size_t m = 0; m < matrices; ++m) {
        for (const size_t column : order) {
          entry.sums.push_back(of.sums[m * static_cast<size_t>(columns) + column]);
        }
      }
    }
  }
  for (const auto& [name, weight] : unlike) {
    if (sums.entries.contains(name)) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: the columns of {} are not those of {}",
                            printable(options.convert.source), quoted(name), quoted(weight)));
  }
  if (sums.entries.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: has no matrix that an importance matrix can have",
                            printable(options.convert.source)));
  }
  if (unreached > 0) {
    file.notes.push_back(
        fmt::format("no token of the text reaches {} matrices of experts: the "
                    "text is short for this model",
                    unreached));
  }
  sums.text = base_name(options.text);
  sums.chunks = static_cast<uint32_t>(text.sequences.size());
  sums.chunk_tokens = static_cast<uint32_t>(longest);
  file.entries = sums.entries.size();
  file.bytes = options.records ? formats::importance_records(sums)
                               : FERRY_TRY(formats::importance_gguf(sums));
  return file;
}

}  // namespace ferry::conversion
