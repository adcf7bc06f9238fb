#include "runner/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/program_interface.h"

namespace ferry::runner {
namespace {

std::vector<ExternalTensor> external_tensors(const packer::Bundle& bundle, size_t program) {
  std::vector<ExternalTensor> tensors;
  for (const packer::BundleData* data : bundle.data_of(program)) {
    for (const ptd::NamedTensor& tensor : data->content.tensors) {
      const ptd::Segment& segment = data->content.segments[tensor.segment];
      tensors.push_back({.key = tensor.key,
                         .dtype = tensor.dtype,
                         .sizes = tensor.sizes,
                         .bytes = data->file.bytes().subspan(segment.offset, segment.size)});
    }
  }
  return tensors;
}

// The layer N of a probe "PREFIX.N".
std::optional<int64_t> probe_layer(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  int64_t layer = 0;
  const auto [end, error] =
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return layer;
}

// The probes of one router: indices of values of a method.
struct RouterProbes {
  size_t program = 0;
  int32_t logits = -1, weights = -1, experts = -1;
  int64_t width = 0, chosen = 0;  // experts in all, and per token
  std::vector<float> seen;        // router logits of the call that runs now
};

// The numbers of the manifest that loops and divisions rely on.
Status check_numbers(const packer::Bundle& bundle) {
  constexpr int64_t kMost = int64_t{1} << 31;
  constexpr int64_t kMostLayers = 1 << 16;
  const packer::Manifest& m = bundle.manifest();
  const auto sane = [](int64_t n) { return n > 0 && n <= kMost; };
  if (sane(m.vocab_size) && sane(m.hidden_size) && sane(m.context_length) &&
      sane(m.prefill_length) && m.num_layers > 0 && m.num_layers <= kMostLayers) {
    return {};
  }
  return bad_input(fmt::format("{}/{}: a size of the model is out of range", bundle.path(),
                               packer::kManifestName));
}

}  // namespace

struct Decoder::Impl {
  const packer::Bundle* bundle = nullptr;
  // One per program of the text decoder, in order of execution.
  std::vector<size_t> programs;  // index in the bundle
  std::vector<Method> methods;
  std::vector<const packer::ManifestMethod*> stated;
  int64_t position = 0;
  int64_t announced = 0;         // the sequence will be as long as this at least
  bool is_long = false;          // the sequence has the RoPE factors beyond the switch
  std::vector<int64_t> history;  // the sequence, as long as it could have to be computed again
  ProbeSink sink;
  bool observing = false;
  std::map<int64_t, RouterProbes> routers;  // by layer
  const ExpertRoutes* routes = nullptr;
  std::optional<Error> route_error;  // of an observer, which cannot return it
  // Of the call that runs now.
  int64_t call_tokens = 0;

  const packer::Manifest& manifest() const { return bundle->manifest(); }

  // Whether a sequence with `count` more tokens has the RoPE factors beyond the switch.
  bool needs_long(size_t count) const {
    const int64_t length = std::max(announced, position + static_cast<int64_t>(count));
    return manifest().rope_switch && length > *manifest().rope_switch;
  }
  // Tokens that fit into the context, in calls.
  Result<std::vector<float>> run(std::span<const int64_t> tokens);
  // One pass of at most prefill_length tokens through all programs.
  Result<std::vector<float>> call(std::span<const int64_t> tokens);
  Status run_program(size_t index, std::map<std::string, TensorView>& values);
  Status observe_probes();
  void deliver(const std::string& name, const TensorView& value) const;
  void find_routers();
  void see_router(const std::string& name, const TensorView& value);
  Status send_to_experts(int64_t layer, const RouterProbes& router, const TensorView& chosen);
};

void Decoder::Impl::find_routers() {
  for (size_t program = 0; program < methods.size(); ++program) {
    for (const packer::ManifestProbe& probe : stated[program]->probes) {
      const auto at = [&](std::string_view prefix, int32_t RouterProbes::*value) {
        if (const auto layer = probe_layer(probe.name, prefix)) {
          routers[*layer].program = program;
          routers[*layer].*value = probe.value;
        }
      };
      at("router_logits.", &RouterProbes::logits);
      at("router_weights.", &RouterProbes::weights);
      at("router_experts.", &RouterProbes::experts);
    }
  }
  const auto width = [&](const RouterProbes& router, int32_t value) -> int64_t {
    const pte::Program& program = bundle->programs()[programs[router.program]].loaded.program;
    const std::vector<pte::Value>& method = program.find(kForwardMethod)->values;
    if (value < 0 || static_cast<size_t>(value) >= method.size()) return 0;
    const auto* tensor = std::get_if<pte::Tensor>(&method[static_cast<size_t>(value)]);
    return tensor != nullptr && tensor->sizes.size() == 2 ? tensor->sizes[1] : 0;
  };
  for (auto& [layer, router] : routers) {
    router.width = width(router, router.logits);
    router.chosen = width(router, router.experts);
  }
  std::erase_if(routers, [&](const auto& item) {
    const RouterProbes& router = item.second;
    return router.chosen < 1 || router.chosen > router.width ||
           width(router, router.weights) != router.chosen;
  });
}

// Routers are seen in the order of execution: their logits, then their choice.
void Decoder::Impl::see_router(const std::string& name, const TensorView& value) {
  if (const auto layer = probe_layer(name, "router_logits."); layer && routers.contains(*layer)) {
    routers[*layer].seen = probe_floats(value);
  }
  const auto layer = probe_layer(name, "router_experts.");
  if (routes == nullptr || !layer || !routers.contains(*layer)) return;
  if (Status sent = send_to_experts(*layer, routers[*layer], value); !sent) {
    route_error = std::move(sent).error();
  }
}

// Replaces the choice of the router, and the scores of the chosen ones, for positions with a route.
Status Decoder::Impl::send_to_experts(int64_t layer, const RouterProbes& router,
                                      const TensorView& chosen) {
  const auto route = routes->find(layer);
  if (route == routes->end() || chosen.bytes.empty()) return {};
  const auto k = static_cast<size_t>(router.chosen);
  const auto width = static_cast<size_t>(router.width);
  std::vector<int64_t> ids(chosen.bytes.size() / sizeof(int64_t));
  std::memcpy(ids.data(), chosen.bytes.data(), ids.size() * sizeof(int64_t));
  Method& method = methods[router.program];
  std::vector<float> weights = probe_floats(FERRY_TRY(method.value(router.weights)));
  const size_t rows = ids.size() / k;
  if (weights.size() != ids.size() || router.seen.size() != rows * width) {
    return bad_input(fmt::format("the probes of the router of layer {} do not match", layer));
  }
  for (size_t row = 0; row < rows; ++row) {
    const size_t from = (static_cast<size_t>(position) + row) * k;
    if (from + k > route->second.size()) break;
    const auto logits = std::span(router.seen).subspan(row * width, width);
    const float largest = *std::ranges::max_element(logits);
    float sum = 0;
    for (float logit : logits) sum += std::exp(logit - largest);
    for (size_t i = 0; i < k; ++i) {
      const int64_t expert = route->second[from + i];
      ids[row * k + i] = expert;
      weights[row * k + i] = std::exp(logits[static_cast<size_t>(expert)] - largest) / sum;
    }
  }
  FERRY_RETURN_IF_ERROR(method.overwrite(router.experts, std::as_bytes(std::span(ids))));
  return method.overwrite(router.weights, std::as_bytes(std::span(weights)));
}

Status Decoder::Impl::run_program(size_t index, std::map<std::string, TensorView>& values) {
  const packer::ManifestMethod& ports = *stated[index];
  Method& method = methods[index];
  for (size_t i = 0; i < ports.inputs.size(); ++i) {
    const auto value = values.find(ports.inputs[i].name);
    if (value == values.end()) {
      return bad_input(fmt::format("{}: no earlier program has the output '{}'",
                                   bundle->entry(programs[index]).file, ports.inputs[i].name));
    }
    FERRY_RETURN_IF_ERROR(method.set_input(i, value->second));
  }
  FERRY_RETURN_IF_ERROR(method.execute());
  if (route_error) return tl::unexpected<Error>(*std::exchange(route_error, std::nullopt));
  for (size_t i = 0; i < ports.outputs.size(); ++i) {
    values[ports.outputs[i].name] = method.output(i);
  }
  return {};
}

Result<std::vector<float>> Decoder::Impl::call(std::span<const int64_t> tokens) {
  call_tokens = static_cast<int64_t>(tokens.size());
  std::map<std::string, TensorView> values;
  values[std::string(kTokensPort)] = {DType::kI64, {1, call_tokens}, std::as_bytes(tokens)};
  // Programs with a switch take a position's complement for one of a long sequence.
  const int64_t input_pos = is_long ? -1 - position : position;
  values[std::string(kInputPosPort)] = {DType::kI64, {1}, std::as_bytes(std::span(&input_pos, 1))};
  for (size_t i = 0; i < methods.size(); ++i) FERRY_RETURN_IF_ERROR(run_program(i, values));
  const auto logits = values.find(std::string(kLogitsPort));
  if (logits == values.end() || logits->second.dtype != DType::kF32) {
    return bad_input(fmt::format("{}: no program gives f32 'logits'", bundle->path()));
  }
  std::vector<float> result = probe_floats(logits->second);
  position += call_tokens;
  return result;
}

Result<std::vector<float>> Decoder::Impl::run(std::span<const int64_t> tokens) {
  const auto most = static_cast<size_t>(manifest().prefill_length);
  std::vector<float> logits;
  while (!tokens.empty()) {
    const size_t count = std::min(tokens.size(), most);
    logits = FERRY_TRY(call(tokens.first(count)));
    if (manifest().rope_switch && !is_long) {
      history.insert(history.end(), tokens.begin(),
                     tokens.begin() + static_cast<std::ptrdiff_t>(count));
    }
    tokens = tokens.subspan(count);
  }
  return logits;
}

void Decoder::Impl::deliver(const std::string& name, const TensorView& value) const {
  if (!sink || value.shape.empty() || value.shape.back() <= 0) return;
  const std::vector<float> floats = probe_floats(value);
  if (floats.empty()) return;
  const int64_t rows = static_cast<int64_t>(floats.size()) / value.shape.back();
  // A probe behind the cut to the last token has fewer rows than the call has tokens.
  sink(name, position + call_tokens - rows, rows, floats);
}

Status Decoder::Impl::observe_probes() {
  if (std::exchange(observing, true)) return {};
  for (size_t i = 0; i < methods.size(); ++i) {
    for (const packer::ManifestProbe& probe : stated[i]->probes) {
      FERRY_RETURN_IF_ERROR(
          methods[i].observe(probe.value, [this, &probe](const TensorView& value) {
            deliver(probe.name, value);
            see_router(probe.name, value);
          }));
    }
  }
  return {};
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

Result<Decoder> Decoder::load(const packer::Bundle& bundle, ThreadPool& pool,
                              const MethodOptions& options) {
  FERRY_RETURN_IF_ERROR(check_numbers(bundle));
  auto impl = std::make_unique<Impl>();
  impl->bundle = &bundle;
  impl->programs = bundle.programs_of(kTextDecoderRole);
  for (size_t index : impl->programs) {
    const packer::ManifestProgram& entry = bundle.entry(index);
    impl->stated.push_back(entry.find(kForwardMethod));
    if (impl->stated.back() == nullptr) {
      return fail(ErrorCode::kUnsupported, fmt::format("{}/{}: has no method {}", bundle.path(),
                                                       entry.file, kForwardMethod));
    }
    impl->methods.push_back(
        FERRY_TRY(Method::load(bundle.programs()[index].loaded, kForwardMethod,
                               external_tensors(bundle, index), pool, options, entry.file)));
  }
  impl->find_routers();
  return Decoder(std::move(impl));
}

Result<std::vector<float>> Decoder::forward(std::span<const int64_t> tokens) {
  const packer::Manifest& manifest = impl_->manifest();
  if (tokens.empty()) return fail(ErrorCode::kUsage, "no tokens to run");
  const auto bad =
      std::ranges::find_if(tokens, [&](int64_t id) { return id < 0 || id >= manifest.vocab_size; });
  if (bad != tokens.end()) {
    return fail(ErrorCode::kUsage, fmt::format("token {} is outside of the vocabulary of {}", *bad,
                                               manifest.vocab_size));
  }
  const auto room = static_cast<size_t>(manifest.context_length - impl_->position);
  if (tokens.size() > room) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} tokens from position {} do not fit into the context of {}",
                            tokens.size(), impl_->position, manifest.context_length));
  }
  const bool was_long = std::exchange(impl_->is_long, impl_->needs_long(tokens.size()));
  if (impl_->position == 0 || was_long == impl_->is_long) return impl_->run(tokens);
  // What is cached was computed with the factors of shorter sequences.
  const size_t rows = tokens.size();
  impl_->history.insert(impl_->history.end(), tokens.begin(), tokens.end());
  const std::vector<int64_t> sequence = std::exchange(impl_->history, {});
  impl_->position = 0;
  std::vector<float> logits = FERRY_TRY(impl_->run(sequence));
  const size_t surplus = logits.size() / static_cast<size_t>(manifest.vocab_size);
  if (surplus > rows) {
    logits.erase(logits.begin(),
                 logits.end() -
                     static_cast<std::ptrdiff_t>(rows * static_cast<size_t>(manifest.vocab_size)));
  }
  return logits;
}

// The programs themselves forget what came before when input_pos is 0, as official runners expect.
void Decoder::restart(int64_t length) {
  impl_->position = 0;
  impl_->announced = length;
  impl_->is_long = false;
  impl_->history.clear();
}

int64_t Decoder::position() const { return impl_->position; }

Status Decoder::set_probe_sink(ProbeSink sink) {
  impl_->sink = std::move(sink);
  return impl_->sink ? impl_->observe_probes() : Status();
}

Status Decoder::force_experts(const ExpertRoutes* routes) {
  impl_->routes = nullptr;
  if (routes == nullptr) return {};
  for (const auto& [layer, ids] : *routes) {
    const auto [chosen, width] = experts_of(layer);
    if (chosen == 0 || ids.size() % static_cast<size_t>(chosen) != 0) {
      return bad_input(fmt::format("expert routes of layer {} do not fit the bundle", layer));
    }
    for (size_t at = 0; at < ids.size(); at += static_cast<size_t>(chosen)) {
      std::vector<int64_t> row(ids.begin() + static_cast<std::ptrdiff_t>(at),
                               ids.begin() + static_cast<std::ptrdiff_t>(at) + chosen);
      std::ranges::sort(row);
      if (row.front() < 0 || row.back() >= width || std::ranges::adjacent_find(row) != row.end()) {
        return bad_input(fmt::format("expert routes of layer {} are not {} distinct experts of {}",
                                     layer, chosen, width));
      }
    }
  }
  impl_->routes = routes;
  return impl_->observe_probes();
}

std::pair<int64_t, int64_t> Decoder::experts_of(int64_t layer) const {
  const auto found = impl_->routers.find(layer);
  if (found == impl_->routers.end()) return {0, 0};
  return {found->second.chosen, found->second.width};
}

Result<TensorView> Decoder::buffer(const std::string& name) const {
  for (size_t i = 0; i < impl_->methods.size(); ++i) {
    for (const packer::ManifestBuffer& buffer : impl_->stated[i]->buffers) {
      if (buffer.name == name) return impl_->methods[i].value(buffer.value);
    }
  }
  return fail(ErrorCode::kUsage, fmt::format("the bundle has no buffer '{}'", name));
}

}  // namespace ferry::runner
