#include "runner/static_program/static_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <functional>
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
  bool can_be_strided(size_t index) const override { return chain_.can_be_strided(index); }
  void set_stored_columns(int64_t columns) override { chain_.set_stored_columns(columns); }
  // The protocol reads outputs by their stated shapes, but a program may resize dynamic outputs.
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

// The data that the methods of a decoder of embeddings share with the decoder.
struct Merging {
  const StaticSequence* sequence = nullptr;
  std::function<void(const TensorView&)> show;  // gets the embeddings of each call; may be empty
};

// A method of the token embedding followed by a method of the decoder. It takes tokens.
class EmbeddedMethod final : public StaticMethod {
 public:
  // `embeddings` is the index of the decoder's input. `merging` must outlive this object.
  EmbeddedMethod(std::unique_ptr<ChainMethod> decoder, TokenEmbedder embedder,
                 const Merging& merging, size_t embeddings)
      : decoder_(std::move(decoder)),
        embedder_(std::move(embedder)),
        merging_(merging),
        embeddings_(embeddings),
        inputs_(decoder_->inputs().begin(), decoder_->inputs().end()) {
    packer::ManifestPort& port = inputs_[embeddings_];
    port = {std::string(kTokensPort), DType::kI32, {1, port.shape[1]}};
    ids_ = {port.dtype, port.shape, {}};
    const auto found = std::ranges::find(inputs_, kLayerTokensPort, &packer::ManifestPort::name);
    if (found != inputs_.end()) layer_tokens_ = static_cast<size_t>(found - inputs_.begin());
  }

  std::span<const packer::ManifestPort> inputs() const override { return inputs_; }
  std::span<const packer::ManifestPort> outputs() const override { return decoder_->outputs(); }
  TensorView& input(size_t index) override {
    return index == embeddings_ ? ids_ : decoder_->input(index);
  }
  void want_rows(size_t output, int64_t begin, int64_t count) override {
    decoder_->want_rows(output, begin, count);
  }
  bool can_be_strided(size_t index) const override { return decoder_->can_be_strided(index); }
  void set_stored_columns(int64_t columns) override { decoder_->set_stored_columns(columns); }
  Status run() override {
    // Guesses of lookahead are tokens even at positions that have image rows.
    const bool guesses = merging_.sequence->call_tokens() == 0;
    FERRY_RETURN_IF_ERROR(guesses ? embedder_.run(ids_)
                                  : embedder_.run(ids_, merging_.sequence->position()));
    decoder_->input(embeddings_).bytes = embedder_.output().bytes;
    if (layer_tokens_) decoder_->input(*layer_tokens_).bytes = ids_.bytes;
    if (merging_.show) merging_.show(embedder_.output());
    return decoder_->run();
  }
  const TensorView& output(size_t index) const override { return decoder_->output(index); }

  TokenEmbedder& embedder() { return embedder_; }

 private:
  std::unique_ptr<ChainMethod> decoder_;
  TokenEmbedder embedder_;
  const Merging& merging_;
  size_t embeddings_;  // index of the decoder's input
  std::optional<size_t> layer_tokens_;
  std::vector<packer::ManifestPort> inputs_;
  TensorView ids_;
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

// Puts a method of the token embedding before a method of the decoder.
Result<std::unique_ptr<EmbeddedMethod>> with_embedding(std::unique_ptr<ChainMethod> decoder,
                                                       ProgramSet& embedding, std::string_view name,
                                                       const Merging& merging) {
  const auto port =
      std::ranges::find(decoder->inputs(), kEmbeddingsPort, &packer::ManifestPort::name);
  const packer::Manifest& m = embedding.bundle().manifest();
  const bool shaped = port != decoder->inputs().end() && port->dtype == DType::kF32 &&
                      port->shape.size() == 3 && port->shape[0] == 1 && port->shape[1] >= 1 &&
                      port->shape[2] == m.hidden_size;
  if (!shaped) {
    return bad_input(fmt::format("{}: no input {} of f32 [1, AR, {}]",
                                 decoder->chain().links().front().file, quoted(kEmbeddingsPort),
                                 m.hidden_size));
  }
  TokenEmbedder embedder =
      FERRY_TRY(TokenEmbedder::bind(embedding, name, DType::kI32, port->shape[1]));
  const auto at = static_cast<size_t>(port - decoder->inputs().begin());
  return std::make_unique<EmbeddedMethod>(std::move(decoder), std::move(embedder), merging, at);
}

// Returns the number that a method without inputs gives; nullopt if no program has the method.
std::optional<int64_t> constant_of(const packer::Bundle& bundle, std::string_view name) {
  for (const size_t index : bundle.programs_of(kTextDecoderRole)) {
    const pte::Method* method = bundle.programs()[index].loaded.program.find(name);
    if (method == nullptr || method->outputs.size() != 1) continue;
    const auto value = static_cast<size_t>(method->outputs[0]);
    if (value >= method->values.size()) continue;
    if (const auto* number = std::get_if<int64_t>(&method->values[value])) return *number;
  }
  return std::nullopt;
}

// Compares the manifest's sizes with those of the programs.
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

// The components that a decoder runs.
struct Programs {
  ProgramSet decoder;
  std::optional<ProgramSet> embedding;  // absent if the decoder takes tokens
  std::unique_ptr<Merging> merging = std::make_unique<Merging>();
};

Result<Programs> load_programs(const packer::Bundle& bundle, ThreadPool& pool,
                               const MethodOptions& options, MemoryBudget& budget) {
  Programs programs{FERRY_TRY(ProgramSet::load(bundle, kTextDecoderRole, pool, options, budget)),
                    {}};
  if (TokenEmbedder::is_in(bundle)) {
    programs.embedding =
        FERRY_TRY(ProgramSet::load(bundle, kTokenEmbeddingRole, pool, options, budget));
  }
  return programs;
}

}  // namespace

struct StaticDecoder::Impl {
  Impl(Programs&& loaded, StaticSequence&& the_sequence)
      : programs(std::move(loaded)), sequence(std::move(the_sequence)) {
    programs.merging->sequence = &sequence;
  }

  // A method and the router of its experts.
  struct Observed {
    const MethodChain* chain;
    ExpertRouter router;
  };

  Programs programs;
  StaticSequence sequence;
  std::vector<Observed> methods;          // kv_forward first
  std::vector<TokenEmbedder*> embedders;  // embedders of the methods; none if they take tokens
  ProbeSink sink;
  bool observing = false;
  bool rotated = false;          // whether keys are rotated by R3, and so differ from the model's
  StaticSequence::Floats shown;  // the last result of buffer()

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

// Buffers have the names that stateful programs give them.
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

// An error of a router is an error of the call.
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
  Programs programs = FERRY_TRY(load_programs(bundle, pool, options, budget));
  std::vector<TokenEmbedder*> embedders;
  StaticMethods methods;
  methods.pool = &pool;
  methods.window = constant_of(bundle, kSlidingWindowMethod);
  const std::optional<int64_t> two_way = constant_of(bundle, kTwoWayImagesMethod);
  methods.two_way_in_windows = two_way == kTwoWayInWindows;
  methods.two_way_images = two_way == kTwoWayInAll || methods.two_way_in_windows;
  std::vector<const MethodChain*> chains;
  const auto add = [&](std::string_view name, std::string_view embedding_name,
                       std::unique_ptr<StaticMethod>& method) -> Status {
    auto chain = FERRY_TRY(bind_method(programs.decoder, name));
    chains.push_back(&chain->chain());
    if (!programs.embedding) {
      method = std::move(chain);
      return {};
    }
    auto embedded = FERRY_TRY(
        with_embedding(std::move(chain), *programs.embedding, embedding_name, *programs.merging));
    embedders.push_back(&embedded->embedder());
    method = std::move(embedded);
    return {};
  };
  FERRY_RETURN_IF_ERROR(add(kKvForwardMethod, kEmbeddingKvMethod, methods.kv));
  if (programs.decoder.has(kPrefillForwardMethod)) {
    FERRY_RETURN_IF_ERROR(add(kPrefillForwardMethod, kEmbeddingPrefillMethod, methods.prefill));
  }
  StaticSequence sequence =
      FERRY_TRY(StaticSequence::make(std::move(methods), decode, budget, printable(bundle.path())));
  FERRY_RETURN_IF_ERROR(check_manifest_sizes(bundle, sequence));
  auto impl = std::make_unique<Impl>(std::move(programs), std::move(sequence));
  impl->embedders = std::move(embedders);
  impl->rotated = bundle.manifest().rotate == "r3";
  for (const MethodChain* chain : chains) impl->methods.push_back({chain, ExpertRouter(*chain)});
  return StaticDecoder(std::move(impl));
}

Result<std::span<const float>> StaticDecoder::forward(std::span<const int64_t> tokens) {
  return impl_->checked(impl_->sequence.forward(tokens));
}

Status StaticDecoder::set_image_rows(std::span<const EmbeddingRows> rows) {
  FERRY_RETURN_IF_ERROR(check_rows(impl_->programs.decoder.bundle(), rows, capacity()));
  for (TokenEmbedder* embedder : impl_->embedders) embedder->set_rows(rows);
  impl_->sequence.set_images(rows, impl_->programs.decoder.bundle().manifest().hidden_size);
  return {};
}

int64_t StaticDecoder::tokens_together(int64_t position) const {
  return impl_->sequence.tokens_together(position);
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
  impl_->programs.merging->show = {};
  if (impl_->sink && takes_plain_rows(impl_->programs.decoder.bundle().manifest())) {
    impl_->programs.merging->show = [impl = impl_.get()](const TensorView& embedded) {
      impl->deliver(kEmbeddingsProbe, embedded);
    };
  }
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
