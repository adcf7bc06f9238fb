#include "dialects/gguf/projector/projector_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "converters/family.h"
#include "converters/keys/key_pattern.h"
#include "converters/keys/row_layouts.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/undo_keys.h"
#include "core/checked.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

using graph::Recipe;
using Form = ProjectorForm;

constexpr std::string_view kUnknownTensor = "gguf:";
constexpr std::string_view kSoundTensors[] = {"a.", "mm.a."};
constexpr std::string_view kDeepstack = "v.deepstack.";

// The names of the parts that one tensor of the file has.
std::vector<std::string_view> parts_of_form(Form form) {
  if (form == Form::kQkv) return {"wq", "wk", "wv"};
  if (form == Form::kPlaces) return {"column", "row"};
  return {};
}

// The layers of the tower that have a tensor of a row, each with the number in its weight.
std::vector<std::pair<int64_t, int64_t>> layers_of_row(const ProjectorName& row,
                                                       const VisionConfig& vision) {
  std::vector<std::pair<int64_t, int64_t>> layers;
  if (row.gguf.starts_with(kDeepstack)) {
    if (!vision.any_shape) return layers;
    for (const int64_t layer : vision.any_shape->deepstack) {
      layers.emplace_back(layer, std::ssize(layers));
    }
    return layers;
  }
  for (int64_t i = 0; i < vision.num_layers; ++i) layers.emplace_back(i, i);
  return layers;
}

std::string filled(std::string_view pattern, std::string_view what, std::string_view filler) {
  std::string text(pattern);
  const size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), filler);
}

bool of_layers(std::string_view pattern) {
  return pattern.find(kProjectorLayer) != std::string_view::npos;
}

int64_t elements_of(const Shape& shape) { return checked_numel(shape).value_or(0); }

// A matrix of `rows` rows whose values are those of channels, each of `inner` values, in the order
// of pixels; the result counts the elements of rows of channels.
StridedPiece channels_last(int64_t rows, int64_t channels, int64_t inner) {
  StridedPiece piece;
  add_axis(piece, {rows, channels * inner});
  add_axis(piece, {inner, 1});
  add_axis(piece, {channels, inner});
  return piece;
}

// The reverse of the above.
StridedPiece channels_first(int64_t rows, int64_t channels, int64_t inner) {
  return channels_last(rows, inner, channels);
}

StridedPiece transposed(int64_t rows, int64_t columns) {
  StridedPiece piece;
  add_axis(piece, {columns, 1});
  add_axis(piece, {rows, columns});
  return piece;
}

// In the file, row 2j + s of each head is row s * dim / 2 + j of the checkpoint.
StridedPiece turned_rows(int64_t heads, int64_t dim) {
  StridedPiece rows;
  add_axis(rows, {heads, dim});
  add_axis(rows, {dim / 2, 1});
  add_axis(rows, {2, dim / 2});
  return rows;
}

// The values of one of two frames: `rows` times `channels` runs of `inner` values.
StridedPiece frame(int64_t rows, int64_t channels, int64_t inner, int64_t number) {
  StridedPiece piece{.offset = number * inner};
  add_axis(piece, {rows, channels * 2 * inner});
  add_axis(piece, {channels, 2 * inner});
  add_axis(piece, {inner, 1});
  return piece;
}

// The values of both, where those of the second frame are behind all of the first.
StridedPiece both_frames(int64_t rows, int64_t channels, int64_t inner) {
  StridedPiece piece;
  add_axis(piece, {rows, channels * inner});
  add_axis(piece, {channels, inner});
  add_axis(piece, {2, rows * channels * inner});
  add_axis(piece, {inner, 1});
  return piece;
}

// -- reading

class ProjectorKeyer {
 public:
  ProjectorKeyer(const TensorSource& source, size_t first, const ProjectorKind& kind,
                 const ModelConfig& config)
      : source_(source), first_(first), kind_(kind), config_(config) {
    for (const ProjectorNames& table : kind.tables) {
      for (const ProjectorName& row : table) rows_.emplace_back(&row, KeyPattern(row.gguf));
    }
  }

  Result<KeyedTensors> run() {
    for (size_t i = first_; i < source_.entries().size(); ++i) FERRY_RETURN_IF_ERROR(take(i));
    FERRY_RETURN_IF_ERROR(check_layers());
    for (const auto& [name, index] : frames_) {
      if (index) return bad(*index, "one of two frames is missing");
    }
    auto undone = undo_keys(weights_, config_, config_.vision_family->rules(config_), {}, {});
    if (!undone) {
      undone.error().message =
          fmt::format("{}: {}", printable(source_.path()), undone.error().message);
      return undone.pass();
    }
    for (UndoneTensor& made : *undone) {
      out_.names.emplace(made.tensor.key, name_of_[made.weights.front()]);
      out_.tensors.push_back(std::move(made.tensor));
    }
    return std::move(out_);
  }

 private:
  const VisionConfig& vision() const { return *config_.vision; }
  const TensorEntry& entry(size_t index) const { return source_.entries()[index]; }

  Failure bad(size_t index, std::string_view what) const {
    return bad_input(fmt::format("{}: {} (tensor {} {})", printable(source_.path()), what,
                                 quoted(entry(index).name), to_string(entry(index).shape)));
  }

  StridedPiece whole(size_t index) const {
    return run_piece(index, 0, elements_of(entry(index).shape));
  }

  Status take(size_t index) {
    const std::string& name = entry(index).name;
    bool of_layer = false;
    for (const auto& [row, pattern] : rows_) {
      const auto numbers = pattern.match(name);
      if (!numbers) continue;
      if (!of_layers(row->gguf)) return add(*row, index, {});
      of_layer = true;
      // A number that the tower does not have makes a key that no rule knows.
      for (const auto& [layer, number] : layers_of_row(*row, vision())) {
        if (fmt::format_int(layer).c_str() != numbers->layer) continue;
        layers_of_[row].insert(layer);
        return add(*row, index, std::to_string(number));
      }
    }
    const bool sound = std::ranges::any_of(
        kSoundTensors, [&](std::string_view start) { return name.starts_with(start); });
    const char* unused = "";
    if (of_layer && kind_.layers_behind) unused = "layer behind the features";
    if (sound) unused = "audio: only text and images are built";
    if (!kind_.copied_row.empty() && name == kind_.copied_row) {
      unused = "a row of the embedding, which the text decoder has";
    }
    out_.tensors.push_back(
        {std::string(kUnknownTensor) + name, graph::whole_tensor(source_, index), unused});
    return {};
  }

  // Some models of a kind have tensors that others lack, in all layers.
  Status check_layers() const {
    for (const auto& [row, present] : layers_of_) {
      for (const auto& [layer, number] : layers_of_row(*row, vision())) {
        if (present.contains(layer)) continue;
        return bad_input(
            fmt::format("{}: has no tensor {}, and some layers have one", printable(source_.path()),
                        quoted(filled(row->gguf, kProjectorLayer, std::to_string(layer)))));
      }
    }
    return {};
  }

  Status add_weight(const std::string& name, size_t index, std::vector<StridedPiece> pieces,
                    Shape shape) {
    Recipe recipe =
        FERRY_TRY(graph::make_recipe(source_, std::move(pieces), std::move(shape), name));
    name_of_.emplace(name, entry(index).name);
    if (weights_.add({.name = name, .recipe = std::move(recipe), .rule = {}})) return {};
    return bad(index, "gives the same weight as another tensor");
  }

  Status add(const ProjectorName& row, size_t index, const std::string& layer) {
    const Shape& shape = entry(index).shape;
    const std::string name = filled(row.weight, kProjectorLayer, layer);
    switch (row.form) {
      case Form::kStored:
        return add_weight(name, index, {whole(index)}, shape);
      case Form::kRow:
        return add_row(name, index);
      case Form::kTransposed:
        if (shape.size() != 2) return bad(index, "expected two dimensions");
        return add_weight(name, index, moved(index, transposed(shape[0], shape[1])),
                          {shape[1], shape[0]});
      case Form::kTurned:
        return add_turned(name, index);
      case Form::kScalar:
        if (elements_of(shape) != 1) return bad(index, "expected one number");
        return add_weight(name, index, {whole(index)}, {});
      case Form::kQkv:
      case Form::kPlaces:
        return add_parts(row, index, name);
      case Form::kPatches:
      case Form::kPatchesLast:
      case Form::kFrame0:
      case Form::kFrame1:
        return add_patches(row, name, index);
    }
    return fail(ErrorCode::kInternal, "a form of tensors without a reader");
  }

  std::vector<StridedPiece> moved(size_t index, const StridedPiece& order) const {
    const StridedPiece all[] = {whole(index)};
    return select(all, std::span(&order, 1));
  }

  Status add_row(const std::string& name, size_t index) {
    // Positions without a class token are a matrix.
    if (!vision().class_token) return add_weight(name, index, {whole(index)}, entry(index).shape);
    Shape shape = entry(index).shape;
    while (shape.size() > 1 && shape[0] == 1) shape.erase(shape.begin());
    if (shape.empty() || shape.size() > 2) return bad(index, "expected a row, or a matrix");
    while (shape.size() < 3) shape.insert(shape.begin(), 1);
    return add_weight(name, index, {whole(index)}, std::move(shape));
  }

  Status add_turned(const std::string& name, size_t index) {
    const Shape& shape = entry(index).shape;
    const int64_t heads = vision().num_heads, dim = vision().head_dim();
    if (shape.size() != 2 || shape[0] != heads * dim) {
      return bad(index, fmt::format("expected {} rows of heads", heads * dim));
    }
    const StridedPiece all[] = {whole(index)};
    const std::vector<StridedPiece> order = pairs_to_halves(heads, dim, dim);
    return add_weight(name, index, select(all, rows_to_elements(order, shape[1])), shape);
  }

  // The parts lie one after the other: the rows of q, k and v, or the tables of a list of two.
  Status add_parts(const ProjectorName& row, size_t index, const std::string& pattern) {
    Shape shape = entry(index).shape;
    const std::vector<std::string_view> parts = parts_of_form(row.form);
    const bool tables = row.form == Form::kPlaces;
    const bool fits = tables ? shape.size() == 3 && shape[0] == std::ssize(parts)
                             : !shape.empty() && shape[0] % std::ssize(parts) == 0;
    if (!fits) return bad(index, fmt::format("expected {} equal parts", parts.size()));
    shape[0] /= std::ssize(parts);
    if (tables) shape.erase(shape.begin());
    const int64_t count = elements_of(shape);
    for (size_t part = 0; part < parts.size(); ++part) {
      const int64_t offset = static_cast<int64_t>(part) * count;
      FERRY_RETURN_IF_ERROR(add_weight(filled(pattern, kProjectorPart, parts[part]), index,
                                       {run_piece(index, offset, count)}, shape));
    }
    return {};
  }

  Status add_patches(const ProjectorName& row, const std::string& name, size_t index) {
    const Shape& shape = entry(index).shape;
    const int64_t side = vision().patch_size;
    if (shape.size() != 4 || shape[1] != vision().channels || shape[2] != side ||
        shape[3] != side) {
      return bad(index, fmt::format("expected [width, {}, {}, {}]", vision().channels, side, side));
    }
    const int64_t rows = shape[0], channels = shape[1], inner = side * side;
    const Shape matrix = {rows, channels * inner};
    if (row.form == Form::kPatches) return add_weight(name, index, {whole(index)}, matrix);
    if (row.form == Form::kPatchesLast) {
      return add_weight(name, index, moved(index, channels_last(rows, channels, inner)), matrix);
    }
    std::optional<size_t>& other = frames_[name];
    if (!other) {
      other = index;
      return {};
    }
    const bool first = row.form == Form::kFrame0;
    const StridedPiece both[] = {whole(first ? index : *other), whole(first ? *other : index)};
    if (entry(*other).shape != shape) return bad(index, "the frames have other sizes");
    other.reset();
    const StridedPiece order = both_frames(rows, channels, inner);
    return add_weight(name, index, select(both, std::span(&order, 1)),
                      {rows, channels * 2 * inner});
  }

  const TensorSource& source_;
  size_t first_;
  const ProjectorKind& kind_;
  const ModelConfig& config_;
  std::vector<std::pair<const ProjectorName*, KeyPattern>> rows_;
  graph::StateDict weights_;
  std::map<std::string, std::string> name_of_;           // of the tensor of a weight
  std::map<std::string, std::optional<size_t>> frames_;  // the first of two tensors of a weight
  std::map<const ProjectorName*, std::set<int64_t>> layers_of_;  // layers with a tensor of the row
  KeyedTensors out_;
};

// -- writing

class ProjectorWriter {
 public:
  ProjectorWriter(const TensorSource& source, const graph::StateDict& weights,
                  const ProjectorKind& kind, const ModelConfig& config)
      : source_(source), weights_(weights), kind_(kind), config_(config) {}

  Result<std::vector<ProjectorWrittenTensor>> run() {
    for (const ProjectorNames& table : kind_.tables) {
      for (const ProjectorName& row : table) {
        if (!of_layers(row.gguf)) {
          FERRY_RETURN_IF_ERROR(add(row, {}, {}));
          continue;
        }
        for (const auto& [layer, number] : layers_of_row(row, *config_.vision)) {
          FERRY_RETURN_IF_ERROR(add(row, std::to_string(layer), std::to_string(number)));
        }
      }
    }
    for (const graph::Weight& weight : weights_.weights()) {
      if (used_.contains(weight.name)) continue;
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: projectors of the type '{}' have no tensor for {}",
                              printable(source_.path()), kind_.type, quoted(weight.name)));
    }
    std::ranges::stable_sort(made_, {}, &Made::place);
    std::vector<ProjectorWrittenTensor> out;
    for (Made& made : made_) out.push_back(std::move(made.tensor));
    return out;
  }

 private:
  // The first element of the checkpoint that a tensor is made of, then the order in a tensor of it.
  using Place = std::tuple<size_t, int64_t>;
  struct Made {
    Place place;
    ProjectorWrittenTensor tensor;
  };

  Failure cannot(const std::string& weight, std::string_view why) const {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: a projector cannot hold {}, which {}",
                                                     printable(source_.path()), weight, why));
  }

  static Place place_of(const Recipe& recipe, Form form) {
    if (recipe.pieces.empty()) return {};
    const StridedPiece& first = *std::ranges::min_element(
        recipe.pieces, {}, [](const StridedPiece& piece) { return piece.tensor; });
    return {first.tensor, form == Form::kFrame1 ? 1 : first.offset};
  }

  Status add(const ProjectorName& row, const std::string& layer, const std::string& number) {
    std::vector<std::string> names;
    const std::string pattern = filled(row.weight, kProjectorLayer, number);
    for (const std::string_view part : parts_of_form(row.form)) {
      names.push_back(filled(pattern, kProjectorPart, part));
    }
    if (names.empty()) names.push_back(pattern);
    const graph::Weight* weight = weights_.find(names.front());
    if (weight == nullptr) return {};
    Recipe recipe = weight->recipe;
    if (row.form == Form::kPlaces) recipe.output().shape.insert(recipe.output().shape.begin(), 1);
    for (size_t i = 1; i < names.size(); ++i) {
      const graph::Weight* next = weights_.find(names[i]);
      if (next == nullptr || next->recipe.steps != recipe.steps ||
          next->recipe.source_dtype != recipe.source_dtype ||
          next->recipe.output() != weight->recipe.output()) {
        return cannot(names[i], "is of another form than the other parts of its tensor");
      }
      recipe.pieces.insert(recipe.pieces.end(), next->recipe.pieces.begin(),
                           next->recipe.pieces.end());
      recipe.output().shape[0] += row.form == Form::kPlaces ? 1 : next->recipe.output().shape[0];
    }
    if (recipe.is_coded() || !is_castable(recipe.output().dtype)) {
      return cannot(names.front(), fmt::format("is {}", dtype_name(recipe.output().dtype)));
    }
    const Place place = place_of(recipe, row.form);
    FERRY_RETURN_IF_ERROR(arrange(row, names.front(), recipe));
    used_.insert(names.begin(), names.end());
    made_.push_back({place, {filled(row.gguf, kProjectorLayer, layer), std::move(recipe), names}});
    return {};
  }

  Status arrange(const ProjectorName& row, const std::string& name, Recipe& recipe) const {
    Shape& shape = recipe.output().shape;
    if (row.form == Form::kScalar) {
      shape = {1};
      return {};
    }
    const bool plain = row.form == Form::kStored || row.form == Form::kRow ||
                       row.form == Form::kQkv || row.form == Form::kPlaces;
    if (plain) return {};
    if (shape.size() != 2) return cannot(name, "is no matrix");
    const VisionConfig& vision = *config_.vision;
    const int64_t rows = shape[0], columns = shape[1];
    if (row.form == Form::kTransposed) {
      order(recipe, transposed(rows, columns));
      shape = {columns, rows};
      return {};
    }
    if (row.form == Form::kTurned) {
      if (rows != vision.num_heads * vision.head_dim()) return cannot(name, "has other rows");
      const StridedPiece turned = turned_rows(vision.num_heads, vision.head_dim());
      const std::vector<StridedPiece> all = rows_to_elements(std::span(&turned, 1), columns);
      recipe.pieces = select(recipe.pieces, all);
      return {};
    }
    const int64_t channels = vision.channels, side = vision.patch_size, inner = side * side;
    const bool frames = row.form == Form::kFrame0 || row.form == Form::kFrame1;
    if (columns != channels * inner * (frames ? 2 : 1)) {
      return cannot(name, fmt::format("is a matrix of {} columns", columns));
    }
    if (frames) order(recipe, frame(rows, channels, inner, row.form == Form::kFrame1 ? 1 : 0));
    if (row.form == Form::kPatchesLast) order(recipe, channels_first(rows, channels, inner));
    shape = {rows, channels, side, side};
    return {};
  }

  static void order(Recipe& recipe, const StridedPiece& piece) {
    recipe.pieces = select(recipe.pieces, std::span(&piece, 1));
  }

  const TensorSource& source_;
  const graph::StateDict& weights_;
  const ProjectorKind& kind_;
  const ModelConfig& config_;
  std::set<std::string> used_;
  std::vector<Made> made_;
};

}  // namespace

Result<KeyedTensors> key_projector_tensors(const TensorSource& source, size_t first,
                                           const ProjectorKind& kind, const ModelConfig& config) {
  return ProjectorKeyer(source, first, kind, config).run();
}

Result<std::vector<ProjectorWrittenTensor>> write_projector_tensors(const TensorSource& source,
                                                                    const graph::StateDict& weights,
                                                                    const ProjectorKind& kind,
                                                                    const ModelConfig& config) {
  return ProjectorWriter(source, weights, kind, config).run();
}

}  // namespace ferry::converters
