#include "converters/lora/factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "converters/family.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/undo_keys.h"
#include "converters/lora/factor_rows.h"
#include "converters/lora/magnitudes.h"
#include "converters/lora/merged_rows.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// Prefixes of the keys of a model with a head, which adapters of the base model alone lack.
constexpr std::string_view kBasePrefixes[] = {"model.", "transformer."};

// Presents the weights as if each were a stored tensor, so that the key rules can be undone.
Result<graph::StateDict> dict_of(const std::vector<ModelWeight>& weights) {
  graph::StateDict dict;
  for (size_t i = 0; i < weights.size(); ++i) {
    graph::Recipe recipe;
    const int64_t count = std::accumulate(weights[i].shape.begin(), weights[i].shape.end(),
                                          int64_t{1}, std::multiplies<>());
    recipe.pieces = {run_piece(i, 0, count)};
    recipe.output().shape = weights[i].shape;
    FERRY_RETURN_IF_ERROR(dict.add({weights[i].name, std::move(recipe), {}}));
  }
  return dict;
}

struct Element {
  size_t tensor = 0;
  int64_t offset = 0;
};

// Returns where element `index` of the sequence that the pieces form is stored.
Element element_at(std::span<const StridedPiece> pieces, int64_t index) {
  for (const StridedPiece& piece : pieces) {
    const int64_t count = piece.count();
    if (index >= count) {
      index -= count;
      continue;
    }
    Element element{piece.tensor, piece.offset};
    for (size_t axis = piece.axes.size(); axis-- > 0; index /= piece.axes[axis].size) {
      element.offset += index % piece.axes[axis].size * piece.axes[axis].stride;
    }
    return element;
  }
  return {};
}

// The factor by which a weight is a multiple of the tensor that was stored; nullopt if it is
// something else.
std::optional<double> multiple_of(const graph::Recipe& undone) {
  double multiple = 1;
  for (const graph::Step& step : undone.steps) {
    if (step.kind == graph::Step::Kind::kMul) {
      multiple /= step.value;
    } else if (step.kind != graph::Step::Kind::kAdd) {
      return std::nullopt;
    }
  }
  return multiple;
}

DType common_dtype(std::optional<DType> have, DType more) {
  return have && *have != more ? DType::kF32 : more;
}

class Placer {
 public:
  Placer(const AdapterTensors& adapter, const std::vector<ModelWeight>& weights,
         const ModelConfig& config)
      : adapter_(adapter), weights_(weights), config_(config) {}

  Result<PlacedAdapter> run(const IsOfBase& is_of_base) {
    FERRY_RETURN_IF_ERROR(undo());
    FERRY_RETURN_IF_ERROR(check_saved(is_of_base));
    std::optional<DType> dtype;
    PlacedAdapter placed;
    for (const auto& [module, halves] : adapter_.modules()) {
      FERRY_RETURN_IF_ERROR(adapter_.check_halves(module, halves));
      FERRY_RETURN_IF_ERROR(place(module, halves, placed));
      for (const size_t half : {*halves.a, *halves.b}) {
        dtype = common_dtype(dtype, adapter_.source().entries()[half].dtype);
      }
    }
    placed.dtype = dtype.value_or(DType::kF32);
    return placed;
  }

 private:
  Status undo() {
    const graph::StateDict dict = FERRY_TRY(dict_of(weights_));
    std::set<std::string> known;  // of several keys for a weight, those that the adapter uses count
    for (const auto& [module, halves] : adapter_.modules()) {
      for (const std::string& key : keys_of(module + ".weight")) known.insert(key);
    }
    for (UndoneTensor& made : FERRY_TRY(undo_keys(dict, config_, key_rules(config_), {}, known))) {
      std::string key = made.tensor.key;
      undone_.emplace(std::move(key), std::move(made));
    }
    return {};
  }

  // The keys under which the model may have a tensor: adapters of the base model alone lack a
  // prefix, and so may the model.
  static std::vector<std::string> keys_of(const std::string& key) {
    std::vector<std::string> keys = {key};
    for (const std::string_view base : kBasePrefixes) {
      if (key.starts_with(base)) keys.push_back(key.substr(base.size()));
      keys.push_back(std::string(base) + key);
    }
    return keys;
  }

  Result<const UndoneTensor*> find(const std::string& key, size_t of) const {
    for (const std::string& name : keys_of(key)) {
      const auto found = undone_.find(name);
      if (found != undone_.end()) return &found->second;
    }
    return adapter_.bad(of, fmt::format("the model has no {}", quoted(key)));
  }

  Failure cannot(size_t entry, const std::string& why) const {
    return adapter_.bad(entry, why, ErrorCode::kUnsupported);
  }

  // Weights that the adapter has itself are there for all adapters only if they are those of the
  // base.
  Status check_saved(const IsOfBase& is_of_base) const {
    for (const auto& [key, entry] : adapter_.saved()) {
      if (FERRY_TRY(is_of_base(key, entry))) continue;
      return cannot(entry,
                    "replaces weights of the base, which all adapters share; --lora merges it");
    }
    return {};
  }

  Status place(const std::string& module, const AdapterHalves& halves, PlacedAdapter& placed) {
    const size_t one = *halves.a;
    const UndoneTensor& undone = *FERRY_TRY(find(module + ".weight", one));
    const graph::Recipe& recipe = undone.tensor.recipe;
    const Shape shape = recipe.output().shape;
    const LoraNumbers numbers = FERRY_TRY(adapter_.config().numbers_of(module));
    const int64_t rank = numbers.rank;
    if (shape.size() != 2) {
      return cannot(one,
                    fmt::format("{} is no matrix: it takes no factors", quoted(undone.tensor.key)));
    }
    const std::optional<double> multiple = multiple_of(recipe);
    if (!multiple) {
      return cannot(one, fmt::format("the model has {} as a function of it: it takes no factors",
                                     quoted(undone.tensor.key)));
    }
    const bool transposed = FERRY_TRY(is_transposed(recipe, one));
    const int64_t rows = transposed ? shape[1] : shape[0],
                  columns = transposed ? shape[0] : shape[1];
    FERRY_RETURN_IF_ERROR(adapter_.check_shapes(halves, undone.tensor.key, shape,
                                                {rank, halves.embedding ? rows : columns},
                                                {halves.embedding ? columns : rows, rank}));
    std::map<size_t, PlacedFactors> made;  // by weight
    for (int64_t row = 0; row < rows; ++row) {
      FERRY_RETURN_IF_ERROR(place_row(recipe, row, columns, transposed, one, made));
    }
    for (auto& [weight, factors] : made) {
      factors.slot = {weights_[weight].name, halves.embedding, rank};
      factors.shape = weights_[weight].shape;
      factors.a = *halves.a;
      factors.b = *halves.b;
      factors.scale = static_cast<float>(numbers.scale * *multiple);
      factors.multiple = static_cast<float>(*multiple);
      factors.magnitude = halves.magnitude;
      factors.slot.has_gain = halves.magnitude.has_value();
      if (factors.slot.has_gain && weights_[weight].recipe == nullptr) {
        return cannot(*halves.magnitude,
                      "its effect depends on the weights of the base: convert --adapters takes it");
      }
      if (std::ranges::count(factors.rows, -1) > 0) {
        return cannot(one, fmt::format("{} is made of several matrices: it takes no factors",
                                       quoted(factors.slot.weight)));
      }
      placed.factors.push_back(std::move(factors));
    }
    return {};
  }

  // Whether the stored matrix is (inputs, outputs), as the layers of GPT-2 have it. Weights are
  // (outputs, inputs).
  Result<bool> is_transposed(const graph::Recipe& recipe, size_t entry) const {
    const Shape& shape = recipe.output().shape;
    const Element first = element_at(recipe.pieces, 0), next = element_at(recipe.pieces, 1);
    if (weights_[first.tensor].shape.size() != 2) {
      return cannot(entry, fmt::format("{} is no matrix: it takes no factors",
                                       quoted(weights_[first.tensor].name)));
    }
    if (shape[0] * shape[1] < 2) return false;
    const bool along =
        shape[1] > 1 && next.tensor == first.tensor && next.offset == first.offset + 1;
    return shape[1] > 1 && !along;
  }

  // Finds the row of a weight that is row `row` of the module's matrix.
  Status place_row(const graph::Recipe& recipe, int64_t row, int64_t columns, bool transposed,
                   size_t entry, std::map<size_t, PlacedFactors>& made) const {
    const int64_t rows = transposed ? recipe.output().shape[1] : recipe.output().shape[0];
    const auto at = [&](int64_t column) {
      return element_at(recipe.pieces, transposed ? column * rows + row : row * columns + column);
    };
    const Element first = at(0), last = at(columns - 1);
    const ModelWeight& weight = weights_[first.tensor];
    const bool whole = weight.shape.size() == 2 && weight.shape[1] == columns &&
                       first.tensor == last.tensor && first.offset % columns == 0 &&
                       last.offset == first.offset + columns - 1;
    if (!whole) {
      return cannot(entry,
                    fmt::format("{} has other rows: it takes no factors", quoted(weight.name)));
    }
    std::vector<int64_t>& sources = made[first.tensor].rows;
    if (sources.empty()) sources.assign(static_cast<size_t>(weight.shape[0]), -1);
    sources[static_cast<size_t>(first.offset / columns)] = row;
    return {};
  }

  const AdapterTensors& adapter_;
  const std::vector<ModelWeight>& weights_;
  const ModelConfig& config_;
  std::map<std::string, UndoneTensor> undone_;  // by key
};

using SlotKey = std::pair<std::string, bool>;
SlotKey key_of_slot(const graph::FactorSlot& slot) { return {slot.weight, slot.is_table}; }

// Makes the tensors of one adapter.
class WeightMaker {
 public:
  using Weights = std::map<std::string, const ModelWeight*>;

  WeightMaker(const graph::FactorSlots& slots, const Weights& weights, DerivedSource& source,
              const std::string& name)
      : slots_(slots), weights_(weights), source_(source), name_(name) {}

  Result<graph::StateDict> run(const PlacedAdapter& adapter, size_t any_entry) {
    std::map<SlotKey, const PlacedFactors*> placed;
    for (const PlacedFactors& factors : adapter.factors) {
      placed[key_of_slot(factors.slot)] = &factors;
    }
    for (const graph::FactorSlot& slot : slots_.slots) {
      const auto found = placed.find(key_of_slot(slot));
      FERRY_RETURN_IF_ERROR(found == placed.end() ? add_nothing(slot, any_entry)
                                                  : add(slot, *found->second));
    }
    return std::move(dict_);
  }

 private:
  static std::vector<int64_t> first_rows(int64_t count) {
    std::vector<int64_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), int64_t{0});
    return rows;
  }

  Status add(const graph::FactorSlot& slot, const PlacedFactors& placed) {
    const graph::FactorNames names = graph::factor_names(slot);
    const int64_t rank = placed.slot.rank, rows = placed.shape[0], columns = placed.shape[1];
    size_t a = 0, b = 0;
    if (slot.is_table) {
      a = FERRY_TRY(
          make(names.a, {rows, slot.rank}, placed.a,
               std::make_unique<PaddedColumns>(placed.a, placed.rows, rank, rows, slot.rank)));
      b = FERRY_TRY(
          make(names.b, {columns, slot.rank}, placed.b,
               std::make_unique<PaddedRows>(placed.b, first_rows(columns), rank, slot.rank)));
    } else {
      a = FERRY_TRY(
          make(names.a, {slot.rank, columns}, placed.a,
               std::make_unique<PaddedRows>(placed.a, first_rows(rank), columns, columns)));
      b = FERRY_TRY(make(names.b, {rows, slot.rank}, placed.b,
                         std::make_unique<PaddedRows>(placed.b, placed.rows, rank, slot.rank)));
    }
    FERRY_RETURN_IF_ERROR(make_constant(names.scale, {1}, placed.scale, placed.a));
    if (!slot.has_gain) return {};
    return placed.magnitude ? add_gain(slot, placed, a, b) : add_no_gain(slot, placed.a);
  }

  Status add_nothing(const graph::FactorSlot& slot, size_t entry) {
    const graph::FactorNames names = graph::factor_names(slot);
    const Shape& shape = weights_.at(slot.weight)->shape;
    const Shape a = slot.is_table ? Shape{shape[0], slot.rank} : Shape{slot.rank, shape[1]};
    const Shape b = {shape[slot.is_table ? 1 : 0], slot.rank};
    FERRY_RETURN_IF_ERROR(make_zeros(names.a, a, entry));
    FERRY_RETURN_IF_ERROR(make_zeros(names.b, b, entry));
    FERRY_RETURN_IF_ERROR(make_constant(names.scale, {1}, graph::kNoScale, entry));
    return slot.has_gain ? add_no_gain(slot, entry) : Status();
  }

  // `a` and `b` are the entries of the factors in the order of the weight.
  Status add_gain(const graph::FactorSlot& slot, const PlacedFactors& placed, size_t a, size_t b) {
    const graph::FactorNames names = graph::factor_names(slot);
    const ModelWeight& weight = *weights_.at(slot.weight);
    const int64_t outputs = placed.shape[slot.is_table ? 1 : 0];
    // A table's A is transposed in its factor, so the adapter's own is taken.
    std::vector<size_t> parts = entries_of(*weight.recipe);
    parts.insert(parts.end(), {placed.a, placed.b});
    auto rows = slot.is_table ? std::make_unique<MergedRows>(*weight.recipe, placed.a, placed.b,
                                                             placed.slot.rank, placed.scale, true)
                              : std::make_unique<MergedRows>(*weight.recipe, a, b, slot.rank,
                                                             placed.scale, false);
    const size_t adapted = FERRY_TRY(
        add_entry(slot.weight, "adapted", placed.shape, std::move(parts), std::move(rows)));
    const size_t gains = FERRY_TRY(
        add_entry(names.gain, "gains", {outputs, 1}, {adapted, *placed.magnitude},
                  std::make_unique<Gains>(adapted, *placed.magnitude,
                                          slot.is_table ? first_rows(outputs) : placed.rows,
                                          placed.multiple, /*by_column=*/slot.is_table)));
    return add_vector(names.gain, gains);
  }

  Status add_no_gain(const graph::FactorSlot& slot, size_t entry) {
    const graph::FactorNames names = graph::factor_names(slot);
    const int64_t outputs = weights_.at(slot.weight)->shape[slot.is_table ? 1 : 0];
    return make_constant(names.gain, {outputs}, graph::kNoGain, entry);
  }

  // Returns the entry of the values before they are rounded to the dtype of the slots.
  Result<size_t> make(const std::string& name, Shape shape, size_t entry,
                      std::unique_ptr<Derivation> values) {
    const size_t made =
        FERRY_TRY(add_entry(name, name_, std::move(shape), {entry}, std::move(values)));
    graph::Recipe recipe = graph::derived_tensor(source_, made, DType::kF32);
    FERRY_RETURN_IF_ERROR(round(recipe, name));
    FERRY_RETURN_IF_ERROR(dict_.add({name, std::move(recipe), "adapter"}));
    return made;
  }

  // Rounds values to the dtype of the slots.
  Status round(graph::Recipe& recipe, const std::string& name) const {
    if (slots_.dtype != DType::kI8) {
      recipe.cast(slots_.dtype);
      return {};
    }
    FERRY_RETURN_IF_ERROR(recipe.quantize({.bits = 8}, name));
    // An embedding node looks up the scales of a table too, which is then a matrix.
    if (is_table(name)) recipe.outputs[1].shape.push_back(1);
    return {};
  }
  static bool is_table(std::string_view name) { return name.ends_with("lora_embedding_a.weight"); }

  // Adds an entry [n, 1] as a tensor [n].
  Status add_vector(const std::string& name, size_t entry) {
    graph::Recipe recipe = graph::derived_tensor(source_, entry, DType::kF32);
    recipe.output().shape = {recipe.output().shape[0]};
    return dict_.add({name, std::move(recipe), "adapter"});
  }

  // Zeros of one shape are one tensor; the scales of those of a table have another shape.
  Status make_zeros(const std::string& name, const Shape& shape, size_t entry) {
    const std::pair key(shape, is_table(name));
    auto known = zeros_.find(key);
    if (known == zeros_.end()) {
      graph::Recipe recipe =
          FERRY_TRY(derive(name, shape, entry, std::make_unique<OneValue>(0.0F)));
      FERRY_RETURN_IF_ERROR(round(recipe, name));
      known = zeros_.emplace(key, std::move(recipe)).first;
    }
    return dict_.add({name, known->second, "adapter"});
  }

  // Equal constants are one tensor.
  Status make_constant(const std::string& name, const Shape& shape, float value, size_t entry) {
    const std::pair key(std::bit_cast<uint32_t>(value), shape);
    auto known = constants_.find(key);
    if (known == constants_.end()) {
      graph::Recipe recipe =
          FERRY_TRY(derive(name, {shape[0], 1}, entry, std::make_unique<OneValue>(value)));
      recipe.output().shape = shape;
      known = constants_.emplace(key, std::move(recipe)).first;
    }
    return dict_.add({name, known->second, "adapter"});
  }

  Result<graph::Recipe> derive(const std::string& name, Shape shape, size_t entry,
                               std::unique_ptr<Derivation> values) {
    const size_t made =
        FERRY_TRY(add_entry(name, name_, std::move(shape), {entry}, std::move(values)));
    return graph::derived_tensor(source_, made, DType::kF32);
  }

  Result<size_t> add_entry(const std::string& name, const std::string& what, Shape shape,
                           std::vector<size_t> parts, std::unique_ptr<Derivation> values) {
    return source_.add({.name = what == name_ ? fmt::format("{} ({})", name, name_)
                                              : fmt::format("{} ({}, {})", name, name_, what),
                        .shape = std::move(shape),
                        .parts = std::move(parts),
                        .kind = "lora",
                        .derivation = std::move(values)});
  }

  const graph::FactorSlots& slots_;
  const Weights& weights_;
  DerivedSource& source_;
  const std::string& name_;
  std::map<std::pair<uint32_t, Shape>, graph::Recipe> constants_;  // by the bits of the value
  std::map<std::pair<Shape, bool>, graph::Recipe> zeros_;  // by shape, and whether of a table
  graph::StateDict dict_;
};

}  // namespace

Result<PlacedAdapter> place_adapter(const AdapterTensors& adapter,
                                    const std::vector<ModelWeight>& weights,
                                    const ModelConfig& config, const IsOfBase& is_of_base) {
  return Placer(adapter, weights, config).run(is_of_base);
}

graph::FactorSlots slots_of(std::span<const PlacedAdapter> adapters,
                            const std::vector<ModelWeight>& weights) {
  graph::FactorSlots slots;
  std::map<SlotKey, graph::FactorSlot> widest;
  std::optional<DType> dtype;
  for (const PlacedAdapter& adapter : adapters) {
    dtype = common_dtype(dtype, adapter.dtype);
    for (const PlacedFactors& factors : adapter.factors) {
      graph::FactorSlot& slot =
          widest.emplace(key_of_slot(factors.slot), factors.slot).first->second;
      slot.rank = std::max(slot.rank, factors.slot.rank);
      slot.has_gain = slot.has_gain || factors.slot.has_gain;
    }
  }
  for (const ModelWeight& weight : weights) {
    for (const bool is_table : {false, true}) {
      const auto found = widest.find({weight.name, is_table});
      if (found != widest.end()) slots.slots.push_back(found->second);
    }
  }
  slots.dtype = dtype.value_or(DType::kF32);
  return slots;
}

Status check_fits(const PlacedAdapter& adapter, const graph::FactorSlots& slots,
                  const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", name, why));
  };
  for (const PlacedFactors& factors : adapter.factors) {
    const auto same = [&](const graph::FactorSlot& slot) {
      return key_of_slot(slot) == key_of_slot(factors.slot);
    };
    const auto slot = std::ranges::find_if(slots.slots, same);
    if (slot == slots.slots.end()) {
      return refuse(fmt::format("the program has no factors for {}", quoted(factors.slot.weight)));
    }
    if (slot->rank < factors.slot.rank) {
      return refuse(fmt::format("rank {} of {}: the program has factors of rank {}",
                                factors.slot.rank, quoted(factors.slot.weight), slot->rank));
    }
    if (factors.slot.has_gain && !slot->has_gain) {
      return refuse(
          fmt::format("the program has no magnitudes for {}", quoted(factors.slot.weight)));
    }
  }
  if (slots.dtype == DType::kF32 || slots.dtype == DType::kI8 || slots.dtype == adapter.dtype) {
    return {};
  }
  return refuse(fmt::format("its factors are {}, those of the program {}, which would round them",
                            dtype_name(adapter.dtype), dtype_name(slots.dtype)));
}

Result<graph::StateDict> factor_weights(const PlacedAdapter& adapter,
                                        const graph::FactorSlots& slots,
                                        const std::vector<ModelWeight>& weights,
                                        DerivedSource& source, const std::string& name,
                                        size_t any_entry) {
  WeightMaker::Weights by_name;
  for (const ModelWeight& weight : weights) by_name.emplace(weight.name, &weight);
  return WeightMaker(slots, by_name, source, name).run(adapter, any_entry);
}

}  // namespace ferry::converters
