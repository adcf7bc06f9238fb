#include "proof/loaded_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "proof/image_inputs.h"

namespace ferry::proof {

ReadWeight weights_from(const TensorSource& source) {
  return [&source](const graph::Weight& weight, uint64_t offset, std::span<std::byte> out) {
    return graph::materialize(weight.recipe, source, offset, out);
  };
}

Status LoadedPart::fill_weights(const graph::Model& model, const ReadWeight& weights,
                                ThreadPool& pool) {
  struct Tile {
    const graph::Weight* weight;
    uint64_t offset;
    std::span<std::byte> out;
  };
  std::vector<Tile> tiles;
  for (const pte::Value& value : program_.program.methods.front().values) {
    const auto* tensor = std::get_if<pte::Tensor>(&value);
    if (tensor == nullptr || !tensor->external) continue;
    if (const auto factor =
            std::ranges::find(lowered_.factors, tensor->fqn, &graph::LoweredFactor::name);
        factor != lowered_.factors.end()) {
      const graph::Literal& contents = factor->contents;
      weights_.push_back(std::make_unique_for_overwrite<std::byte[]>(contents.bytes));
      const std::span<std::byte> all(weights_.back().get(), contents.bytes);
      contents.fill(0, all);
      external_.push_back({tensor->fqn, tensor->dtype, tensor->sizes, all});
      continue;
    }
    const graph::Weight& weight = *model.weights.find(tensor->fqn);
    const graph::Recipe& recipe = weight.recipe;
    const uint64_t bytes = recipe.output().bytes(), tile = graph::tile_bytes(recipe);
    weights_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    const std::span<std::byte> all(weights_.back().get(), bytes);
    external_.push_back({tensor->fqn, tensor->dtype, tensor->sizes, all});
    for (uint64_t at = 0; at < bytes; at += tile) {
      tiles.push_back({&weight, at, all.subspan(at, std::min(tile, bytes - at))});
    }
  }
  std::vector<Status> filled(tiles.size());
  pool.parallel_for(tiles.size(), [&](size_t i) {
    filled[i] = weights(*tiles[i].weight, tiles[i].offset, tiles[i].out);
  });
  for (Status& status : filled) FERRY_RETURN_IF_ERROR(std::move(status));
  return {};
}

Result<std::unique_ptr<LoadedPart>> LoadedPart::load(const graph::Model& model,
                                                     const ReadWeight& weights, ThreadPool& pool,
                                                     const std::string& name,
                                                     const runner::MethodOptions& options) {
  auto part = std::make_unique<LoadedPart>();
  part->f64_ = options.f64;
  part->name_ = name;
  const auto method = std::ranges::find(model.methods, kForwardMethod, &graph::MethodGraph::name);
  if (method == model.methods.end()) {
    return fail(ErrorCode::kInternal, fmt::format("{}: no method {}", name, kForwardMethod));
  }
  part->lowered_ = FERRY_TRY(graph::lower(std::span(&*method, 1), {}));
  part->program_.program = part->lowered_.program;
  const auto fill = [&](const std::vector<graph::Literal>& literals,
                        std::vector<std::span<const std::byte>>& to) {
    for (const graph::Literal& literal : literals) {
      std::vector<std::byte>& bytes = part->literals_.emplace_back(literal.bytes);
      if (literal.bytes > 0) literal.fill(0, bytes);
      to.push_back(bytes);
    }
  };
  part->literals_.reserve(part->lowered_.constants.size() + part->lowered_.initial.size());
  fill(part->lowered_.constants, part->program_.data.constants);
  fill(part->lowered_.initial, part->program_.data.initial);
  FERRY_RETURN_IF_ERROR(part->fill_weights(model, weights, pool));
  part->method_.emplace(FERRY_TRY(
      runner::Method::load(part->program_, kForwardMethod, part->external_, pool, options, name)));
  return part;
}

Status LoadedPart::run(std::span<const int64_t> tokens, int64_t input_pos, PassedTensors& passed) {
  const std::vector<graph::LoweredPort>& inputs = lowered().inputs;
  std::vector<int64_t> ends;  // without images, tokens attend to none behind them
  std::vector<int64_t> places;
  std::vector<float> nothing;
  const std::vector<int64_t> no_types(tokens.size(), 0);
  for (size_t i = 0; i < inputs.size(); ++i) {
    runner::TensorView view;
    if (inputs[i].name == kTokensPort || inputs[i].name == kLayerTokensPort) {
      view = {DType::kI64, {1, std::ssize(tokens)}, std::as_bytes(tokens)};
    } else if (inputs[i].name == kInputPosPort) {
      view = {DType::kI64, {1}, std::as_bytes(std::span(&input_pos, 1))};
    } else if (inputs[i].name == kAttentionEndPort && !passed.contains(inputs[i].name)) {
      ends.resize(tokens.size());
      std::iota(ends.begin(), ends.end(), input_pos + 1);
      view = {DType::kI64, {1, std::ssize(ends)}, std::as_bytes(std::span(ends))};
    } else if (inputs[i].name == kRopePositionsPort && !passed.contains(inputs[i].name)) {
      places = text_places(input_pos, tokens.size());
      view = {DType::kI64, {3, std::ssize(tokens)}, std::as_bytes(std::span(places))};
    } else if (inputs[i].name == kDeepstackPort && !passed.contains(inputs[i].name)) {
      Shape shape = inputs[i].shape;
      shape[1] = std::ssize(tokens);
      nothing.assign(static_cast<size_t>(shape[0] * shape[1] * shape[2]), 0.0F);
      view = {DType::kF32, std::move(shape), std::as_bytes(std::span(nothing))};
    } else {
      const auto found = passed.find(inputs[i].name);
      if (found == passed.end() && inputs[i].name == kTokenTypesPort) {
        view = {DType::kI64, {1, std::ssize(no_types)}, std::as_bytes(std::span(no_types))};
        FERRY_RETURN_IF_ERROR(method_->set_input(i, view));
        continue;
      }
      const bool sound = inputs[i].name == kInputFeaturesPort || inputs[i].name == kInputValuesPort;
      if (found == passed.end() && (sound || inputs[i].name == kSourceIdsPort)) {
        const char* what = sound ? "a model of speech" : "an encoder-decoder";
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{}: {}, which texts alone do not run", name_, what));
      }
      if (found == passed.end()) {
        return fail(ErrorCode::kInternal,
                    fmt::format("{}: no earlier part has {}", name_, quoted(inputs[i].name)));
      }
      view = {found->second.dtype, found->second.shape, found->second.bytes};
    }
    FERRY_RETURN_IF_ERROR(method_->set_input(i, view));
  }
  FERRY_RETURN_IF_ERROR(method_->execute());
  const std::vector<graph::LoweredPort>& outputs = lowered().outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const runner::TensorView view = f64_ ? method_->output_f64(i) : method_->output(i);
    passed[outputs[i].name] = {view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()}};
  }
  return {};
}

Status observe_probes(LoadedPart& part, const UseOfProbe& use) {
  std::map<int32_t, std::vector<std::string>> names;
  for (const graph::LoweredProbe& probe : part.lowered().probes) {
    names[probe.value].push_back(probe.name);
  }
  for (const auto& [value, probes] : names) {
    FERRY_RETURN_IF_ERROR(part.method().observe(
        value, [use, value = value, probes = probes](const runner::TensorView& view) {
          for (const std::string& probe : probes) use(probe, value, view);
        }));
  }
  return {};
}

}  // namespace ferry::proof
