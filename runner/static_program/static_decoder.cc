#include "runner/static_program/static_decoder.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <variant>
#include <vector>

#include "core/hadamard.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "runner/memory.h"
#include "runner/program_set.h"
#include "runner/static_program/static_sequence.h"

namespace ferry::runner {
namespace {

// One method of every program of a set.
class ChainMethod final : public StaticMethod {
 public:
  ChainMethod(ProgramSet::Ports ports, MethodChain chain)
      : ports_(std::move(ports)), chain_(std::move(chain)) {}

  std::span<const packer::ManifestPort> inputs() const override { return ports_.inputs; }
  std::span<const packer::ManifestPort> outputs() const override { return ports_.outputs; }
  TensorView& input(size_t index) override { return chain_.input(index); }
  void want_rows(size_t output, int64_t begin, int64_t count) override {
    chain_.want_rows(output, begin, count);
  }
  // The protocol reads outputs by their stated shapes, and a program may resize dynamic ones.
  Status run() override {
    FERRY_RETURN_IF_ERROR(chain_.run());
    for (size_t i = 0; i < ports_.outputs.size(); ++i) {
      const packer::ManifestPort& stated = ports_.outputs[i];
      const TensorView& value = chain_.output(i);
      if (value.shape == stated.shape) continue;
      return bad_input(fmt::format("{}: output {} is {}, expected {}", chain_.links().back().file,
                                   quoted(stated.name), to_string(value.shape),
                                   to_string(stated.shape)));
    }
    return {};
  }
  const TensorView& output(size_t index) const override { return chain_.output(index); }

  const MethodChain& chain() const { return chain_; }

 private:
  ProgramSet::Ports ports_;
  MethodChain chain_;
};

std::vector<PortType> types_of(const std::vector<packer::ManifestPort>& ports) {
  std::vector<PortType> types;
  for (const packer::ManifestPort& port : ports) {
    types.push_back({port.name, port.dtype, port.shape});
  }
  return types;
}

Result<std::unique_ptr<ChainMethod>> bind_method(ProgramSet& set, std::string_view name) {
  ProgramSet::Ports ports = set.ports(name);
  MethodChain chain = FERRY_TRY(set.bind(name, types_of(ports.inputs), types_of(ports.outputs)));
  return std::make_unique<ChainMethod>(std::move(ports), std::move(chain));
}

std::optional<int64_t> window_of(const packer::Bundle& bundle) {
  for (const size_t index : bundle.programs_of(kTextDecoderRole)) {
    const pte::Method* method = bundle.programs()[index].loaded.program.find(kSlidingWindowMethod);
    if (method == nullptr || method->outputs.size() != 1) continue;
    const auto value = static_cast<size_t>(method->outputs[0]);
    if (value >= method->values.size()) continue;
    if (const auto* number = std::get_if<int64_t>(&method->values[value])) return *number;
  }
  return std::nullopt;
}

// The manifest's sizes against those of the programs.
Status check_manifest_sizes(const packer::Bundle& bundle, const StaticSequence& sequence) {
  const packer::Manifest& m = bundle.manifest();
  const std::string file = printable(bundle.path());
  if (m.vocab_size != sequence.vocab()) {
    return bad_input(fmt::format("{}: logits of {} tokens, the vocabulary has {}", file,
                                 sequence.vocab(), m.vocab_size));
  }
  for (int64_t layer = 0; m.rotate == "r3" && layer < m.num_layers; ++layer) {
    const auto keys = sequence.cache(layer, /*is_key=*/true);
    if (!keys || std::has_single_bit(static_cast<uint64_t>(keys->shape.back()))) continue;
    return bad_input(fmt::format("{}: rotate is r3, but keys of layer {} have {} elements", file,
                                 layer, keys->shape.back()));
  }
  if (!m.rope_switch) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: a static program with two sets of RoPE factors", file));
}

}  // namespace

struct StaticDecoder::Impl {
  Impl(ProgramSet&& programs, StaticSequence&& the_sequence)
      : set(std::move(programs)), sequence(std::move(the_sequence)) {}

  // A method and the router of its experts.
  struct Observed {
    const MethodChain* chain;
    ExpertRouter router;
  };

  ProgramSet set;
  StaticSequence sequence;
  std::vector<Observed> methods;  // kv_forward first
  ProbeSink sink;
  bool observing = false;
  bool rotated = false;          // by R3: keys are not as the model has them
  StaticSequence::Floats shown;  // what buffer() has returned

  Status observe_probes();
  std::optional<StaticSequence::Floats> floats(std::string_view buffer) const;
  void deliver(const std::string& name, const TensorView& value) const;
  template <class T>
  Result<T> checked(Result<T> result);
};

void StaticDecoder::Impl::deliver(const std::string& name, const TensorView& value) const {
  const int64_t tokens = sequence.call_tokens();
  if (!sink || tokens == 0 || value.shape.empty() || value.shape.back() <= 0) return;
  const std::vector<float> floats = probe_floats(value);
  const int64_t width = value.shape.back();
  if (std::ssize(floats) / width < tokens) return;
  sink(name, sequence.position(), tokens,
       std::span(floats).first(static_cast<size_t>(tokens * width)));
}

Status StaticDecoder::Impl::observe_probes() {
  if (std::exchange(observing, true)) return {};
  for (Observed& method : methods) {
    for (const MethodChain::Link& link : method.chain->links()) {
      for (const packer::ManifestProbe& probe : link.ports->probes) {
        FERRY_RETURN_IF_ERROR(
            link.method->observe(probe.value, [this, &probe, &method](const TensorView& value) {
              deliver(probe.name, value);
              method.router.see(probe.name, value, sequence.position());
            }));
      }
    }
  }
  return {};
}

// The names are those that stateful programs give their buffers.
std::optional<StaticSequence::Floats> StaticDecoder::Impl::floats(std::string_view buffer) const {
  constexpr std::string_view kLayers = "layers.", kAttention = ".attention.";
  if (!buffer.starts_with(kLayers)) return std::nullopt;
  int64_t layer = 0;
  const char* end = buffer.data() + buffer.size();
  const auto [rest, error] = std::from_chars(buffer.data() + kLayers.size(), end, layer);
  const std::string_view tail(rest, static_cast<size_t>(end - rest));
  if (error != std::errc() || !tail.starts_with(kAttention)) return std::nullopt;
  const std::string_view kind = tail.substr(kAttention.size());
  if (kind == "kv_cache.v_cache") return sequence.cache(layer, /*is_key=*/false);
  if (kind != "kv_cache.k_cache") return sequence.state(fmt::format("{}_{}", kind, layer));
  std::optional<StaticSequence::Floats> keys = sequence.cache(layer, /*is_key=*/true);
  if (keys && rotated) hadamard_rotate(keys->values, static_cast<size_t>(keys->shape.back()));
  return keys;
}

// What a router could not do is an error of the call.
template <class T>
Result<T> StaticDecoder::Impl::checked(Result<T> result) {
  for (Observed& method : methods) FERRY_RETURN_IF_ERROR(method.router.take_error());
  return result;
}

StaticDecoder::StaticDecoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StaticDecoder::~StaticDecoder() = default;
StaticDecoder::StaticDecoder(StaticDecoder&&) noexcept = default;
StaticDecoder& StaticDecoder::operator=(StaticDecoder&&) noexcept = default;

Result<StaticDecoder> StaticDecoder::load(const packer::Bundle& bundle, ThreadPool& pool,
                                          const MethodOptions& options,
                                          const DecodeOptions& decode) {
  FERRY_RETURN_IF_ERROR(check_model_sizes(bundle));
  MemoryBudget budget(options.memory);
  ProgramSet set = FERRY_TRY(ProgramSet::load(bundle, kTextDecoderRole, pool, options, budget));
  StaticMethods methods;
  methods.window = window_of(bundle);
  std::vector<const MethodChain*> chains;
  auto kv = FERRY_TRY(bind_method(set, kKvForwardMethod));
  chains.push_back(&kv->chain());
  methods.kv = std::move(kv);
  if (set.has(kPrefillForwardMethod)) {
    auto prefill = FERRY_TRY(bind_method(set, kPrefillForwardMethod));
    chains.push_back(&prefill->chain());
    methods.prefill = std::move(prefill);
  }
  StaticSequence sequence =
      FERRY_TRY(StaticSequence::make(std::move(methods), decode, budget, printable(bundle.path())));
  FERRY_RETURN_IF_ERROR(check_manifest_sizes(bundle, sequence));
  auto impl = std::make_unique<Impl>(std::move(set), std::move(sequence));
  impl->rotated = bundle.manifest().rotate == "r3";
  for (const MethodChain* chain : chains) impl->methods.push_back({chain, ExpertRouter(*chain)});
  return StaticDecoder(std::move(impl));
}

Result<std::span<const float>> StaticDecoder::forward(std::span<const int64_t> tokens) {
  return impl_->checked(impl_->sequence.forward(tokens));
}

Result<std::optional<int64_t>> StaticDecoder::advance(int64_t token, const Choose& choose) {
  return impl_->checked(impl_->sequence.advance(token, choose));
}

void StaticDecoder::restart(int64_t /*length*/) { impl_->sequence.restart(); }
int64_t StaticDecoder::position() const { return impl_->sequence.position(); }
int64_t StaticDecoder::capacity() const { return impl_->sequence.capacity(); }

std::optional<LookaheadCounts> StaticDecoder::lookahead_counts() const {
  return impl_->sequence.lookahead_counts();
}

void StaticDecoder::set_logits_sink(LogitsSink sink) {
  impl_->sequence.set_logits_sink(std::move(sink));
}

Status StaticDecoder::set_probe_sink(ProbeSink sink) {
  impl_->sink = std::move(sink);
  return impl_->sink ? impl_->observe_probes() : Status();
}

Status StaticDecoder::force_experts(const ExpertRoutes* routes) {
  for (Impl::Observed& method : impl_->methods) {
    FERRY_RETURN_IF_ERROR(method.router.force(routes));
  }
  return routes != nullptr ? impl_->observe_probes() : Status();
}

std::pair<int64_t, int64_t> StaticDecoder::experts_of(int64_t layer) const {
  return impl_->methods.front().router.experts_of(layer);
}

Result<TensorView> StaticDecoder::buffer(const std::string& name) const {
  std::optional<StaticSequence::Floats> floats = impl_->floats(name);
  if (!floats) return fail(ErrorCode::kUsage, fmt::format("the bundle has no buffer '{}'", name));
  impl_->shown = std::move(*floats);
  return TensorView{DType::kF32, impl_->shown.shape, std::as_bytes(std::span(impl_->shown.values))};
}

}  // namespace ferry::runner
