#include "runner/stateful_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "core/program_interface.h"
#include "core/text.h"
#include "runner/audio_encoder.h"
#include "runner/decoder_buffers.h"
#include "runner/decoder_ports.h"
#include "runner/deepstack_rows.h"
#include "runner/image_spans.h"
#include "runner/memory.h"
#include "runner/program_set.h"
#include "runner/rope_places.h"
#include "runner/source_encoder.h"

namespace ferry::runner {

struct StatefulDecoder::Impl {
  Impl(ProgramSet&& programs, MethodChain&& methods, std::unique_ptr<Embedding>&& embeds)
      : set(std::move(programs)),
        chain(std::move(methods)),
        embedding(std::move(embeds)),
        cached(has_port(set, kInputPosPort)),
        has_layer_tokens(has_port(set, kLayerTokensPort)),
        plain_rows(takes_plain_rows(manifest())),
        router(chain) {
    if (position_count(set) > 1) positions.resize(static_cast<size_t>(position_count(set)));
    if (takes_ends(set)) ends.resize(static_cast<size_t>(manifest().prefill_length));
    if (has_port(set, kRopePositionsPort)) {
      places.resize(static_cast<size_t>(kPlaces * manifest().prefill_length));
    }
    const int64_t layers = deepstack_layers(manifest());
    if (layers == 0 || embedding == nullptr) return;
    embedding->embedder.set_row_width(row_width(manifest()));
    deepstack.emplace(layers, manifest().prefill_length, manifest().hidden_size);
  }

  ProgramSet set;
  MethodChain chain;
  std::unique_ptr<Embedding> embedding;  // nullptr if the decoder takes tokens
  std::optional<AudioEncoder> audio;     // of a model of speech
  std::optional<SourceEncoder> source;   // of an encoder-decoder
  size_t cross = 0;                      // keys and values that either gives
  bool is_encoded = false;               // whether it has given them
  bool cached;                           // whether the programs keep caches
  bool has_layer_tokens;                 // whether the programs take tokens beside embeddings
  bool plain_rows;                       // see takes_plain_rows()
  ExpertRouter router;
  int64_t position = 0;
  int64_t announced = 0;         // the known least length of the sequence
  bool is_long = false;          // whether the sequence has the RoPE factors beyond the switch
  std::vector<int64_t> history;  // the sequence, as long as it may have to be recomputed
  std::unique_ptr<Guesser> guesser;
  LookaheadCounts counts;  // of the guesses
  ProbeSink sink;
  LogitsSink logits_sink;
  bool observing = false;
  ImageSpans images;          // empty unless rows of an image attend to each other
  std::vector<int64_t> ends;  // attention_end of a call; empty if the programs do not take it
  RopePlaces rope_places;
  std::vector<int64_t> places;  // rope_positions of a call; empty if the programs do not take it
  std::optional<DeepstackRows> deepstack;  // set if the programs take deepstack_features
  int64_t input_pos = 0;                   // of the current call
  int64_t call_tokens = 0;                 // of the current call
  // The positions of the call's tokens; empty unless the programs take the position of each.
  std::vector<int64_t> positions;
  TensorView ids = {DType::kI64, {1, 0}, {}};  // of the current call

  std::vector<float> wide;   // the logits of the last call, if they are in half precision
  std::vector<float> shown;  // the last result of buffer(), if the program stores codes

  const packer::Manifest& manifest() const { return set.bundle().manifest(); }

  // Returns whether a sequence with `count` more tokens has the RoPE factors beyond the switch.
  bool needs_long(size_t count) const {
    const int64_t length = std::max(announced, position + static_cast<int64_t>(count));
    return manifest().rope_switch && length > *manifest().rope_switch;
  }
  // Checks the tokens and runs them, the whole sequence again if its RoPE factors change.
  Result<std::span<const float>> checked_run(std::span<const int64_t> tokens);
  // Runs tokens that fit into the context, in one or more calls.
  Result<std::span<const float>> run(std::span<const int64_t> tokens);
  // Runs the tokens behind those of `history`, in programs without caches.
  Result<std::span<const float>> run_whole(std::span<const int64_t> tokens);
  // Makes one pass of at most prefill_length tokens through all programs.
  Result<std::span<const float>> call(std::span<const int64_t> tokens);
  // The parts of call() before and after the programs.
  Status begin_call(std::span<const int64_t> tokens);
  Result<std::span<const float>> end_call();
  // Keeps tokens that have been run, if they may have to be run again.
  void keep(std::span<const int64_t> tokens) {
    if (manifest().rope_switch && !is_long) {
      history.insert(history.end(), tokens.begin(), tokens.end());
    }
  }
  // Our programs begin a sequence with an empty state at position 0. Those of other tools may have
  // a state that no position clears, such as that of the convolutions of LFM2.
  void forget_state() {
    constexpr int32_t kWithoutManifest = 0;  // see packer::open_loose_programs()
    if (!cached || manifest().version != kWithoutManifest) return;
    for (const MethodChain::Link& link : chain.links()) link.method->reset();
  }
  // Runs the whole sequence with `tokens` at its end. Returns logits of `tokens` at most.
  Result<std::span<const float>> run_again(std::span<const int64_t> tokens);
  // Takes the keys and values of cross-attention from an encoder.
  template <typename Encoder>
  void take_encoded(const Encoder& encoder);
  // Sets the inputs that say where images are.
  void set_places(size_t count);
  // Sets the first input of the chain.
  Status set_tokens(std::span<const int64_t> tokens);
  Status observe_probes();
  void deliver(const std::string& name, const TensorView& value) const;
};

Status StatefulDecoder::Impl::set_tokens(std::span<const int64_t> tokens) {
  TensorView& input = chain.input(kInput);
  ids.shape[1] = call_tokens;
  ids.bytes = std::as_bytes(tokens);
  if (embedding == nullptr) {
    input.shape[1] = call_tokens;
    input.bytes = ids.bytes;
    return {};
  }
  FERRY_RETURN_IF_ERROR(embedding->embedder.run(ids, position));
  const TensorView& embedded = embedding->embedder.output();
  input.shape[1] = call_tokens;
  input.bytes = embedded.bytes;
  if (sink && plain_rows) deliver(kEmbeddingsProbe, embedded);
  return {};
}

Status StatefulDecoder::Impl::begin_call(std::span<const int64_t> tokens) {
  call_tokens = static_cast<int64_t>(tokens.size());
  FERRY_RETURN_IF_ERROR(set_tokens(tokens));
  if (!cached) return {};
  // Programs with a switch take the complement of a position as that position in a long sequence.
  input_pos = is_long ? -1 - position : position;
  chain.input(kInputPos).bytes = std::as_bytes(std::span(&input_pos, 1));
  if (!positions.empty()) {
    const std::span<int64_t> call = std::span(positions).first(tokens.size());
    std::iota(call.begin(), call.end(), position);
    chain.input(kInputPos).shape[0] = call_tokens;
    chain.input(kInputPos).bytes = std::as_bytes(call);
  }
  set_places(tokens.size());
  return {};
}

void StatefulDecoder::Impl::set_places(size_t count) {
  size_t next = kAttentionEnd;
  const auto fill = [&](std::span<const std::byte> bytes) {
    TensorView& input = chain.input(next++);
    input.shape[1] = call_tokens;
    input.bytes = bytes;
  };
  if (!ends.empty()) {
    const std::span<int64_t> call = std::span(ends).first(count);
    for (size_t i = 0; i < call.size(); ++i) {
      call[i] = images.end_at(position + static_cast<int64_t>(i));
    }
    fill(std::as_bytes(call));
  }
  if (!places.empty()) {
    rope_places.write(position, count, places.data());
    fill(std::as_bytes(std::span(places).first(kPlaces * count)));
  }
  if (deepstack) fill(std::as_bytes(deepstack->of_call(position, call_tokens)));
  if (has_layer_tokens) fill(ids.bytes);
}

Result<std::span<const float>> StatefulDecoder::Impl::call(std::span<const int64_t> tokens) {
  FERRY_RETURN_IF_ERROR(begin_call(tokens));
  FERRY_RETURN_IF_ERROR(chain.run());
  return end_call();
}

Result<std::span<const float>> StatefulDecoder::Impl::end_call() {
  FERRY_RETURN_IF_ERROR(router.take_error());
  position += call_tokens;
  const TensorView& logits = chain.output(kLogits);
  // A tensor's memory is aligned to its dtype, which bind() has checked.
  std::span values(reinterpret_cast<const float*>(logits.bytes.data()),
                   logits.bytes.size() / sizeof(float));
  if (logits.dtype != DType::kF32) {
    wide.resize(logits.bytes.size() / 2);
    to_f32(logits.dtype, logits.bytes.data(), wide.data(), wide.size());
    values = wide;
  }
  if (logits_sink) {
    const int64_t rows = std::ssize(values) / manifest().vocab_size;
    logits_sink(position - rows, rows, values);
  }
  return values;
}

Result<std::span<const float>> StatefulDecoder::Impl::run_whole(std::span<const int64_t> tokens) {
  history.resize(static_cast<size_t>(position));
  history.insert(history.end(), tokens.begin(), tokens.end());
  position = 0;
  const auto whole = [&]() -> Result<std::span<const float>> {
    const LogitsSink sink_of_new = std::exchange(logits_sink, {});
    auto logits = call(history);
    logits_sink = sink_of_new;
    return logits;
  };
  const std::span<const float> all = FERRY_TRY(whole());
  const auto vocab = static_cast<size_t>(manifest().vocab_size);
  const std::span<const float> logits = all.last(std::min(all.size(), tokens.size() * vocab));
  const auto rows = static_cast<int64_t>(logits.size() / vocab);
  if (logits_sink) logits_sink(position - rows, rows, logits);
  return logits;
}

Result<std::span<const float>> StatefulDecoder::Impl::run(std::span<const int64_t> tokens) {
  if (!cached) return run_whole(tokens);
  const auto most = static_cast<size_t>(manifest().prefill_length);
  std::span<const float> logits;
  while (!tokens.empty()) {
    const auto part = tokens.first(FERRY_TRY(images.call_length(position, tokens.size(), most)));
    logits = FERRY_TRY(call(part));
    keep(part);
    tokens = tokens.subspan(part.size());
  }
  return logits;
}

Result<std::span<const float>> StatefulDecoder::Impl::run_again(std::span<const int64_t> tokens) {
  history.insert(history.end(), tokens.begin(), tokens.end());
  const std::vector<int64_t> sequence = std::exchange(history, {});
  position = 0;
  const std::span<const float> logits = FERRY_TRY(run(sequence));
  return logits.last(
      std::min(logits.size(), tokens.size() * static_cast<size_t>(manifest().vocab_size)));
}

Result<std::span<const float>> StatefulDecoder::Impl::checked_run(std::span<const int64_t> tokens) {
  if ((audio || source) && !is_encoded) {
    const char* what = audio ? "a model of speech, which needs sound: ferry transcribe gives it"
                             : "an encoder-decoder, which needs a text for its encoder";
    return fail(ErrorCode::kUsage, fmt::format("{}: {}", printable(set.bundle().path()), what));
  }
  FERRY_RETURN_IF_ERROR(
      check_tokens(tokens, manifest().vocab_size, position, manifest().positions()));
  const bool was_long = std::exchange(is_long, needs_long(tokens.size()));
  if (position == 0 || was_long == is_long) return run(tokens);
  // The caches have the factors of shorter sequences.
  return run_again(tokens);
}

void StatefulDecoder::Impl::deliver(const std::string& name, const TensorView& value) const {
  if (!sink || value.shape.empty() || value.shape.back() <= 0) return;
  const std::vector<float> floats = probe_floats(value);
  if (floats.empty()) return;
  const int64_t rows = static_cast<int64_t>(floats.size()) / value.shape.back();
  // A probe after the cut to the last token has fewer rows than the call has tokens.
  sink(name, position + call_tokens - rows, rows, floats);
}

Status StatefulDecoder::Impl::observe_probes() {
  if (std::exchange(observing, true)) return {};
  for (const MethodChain::Link& link : chain.links()) {
    for (const packer::ManifestProbe& probe : link.ports->probes) {
      FERRY_RETURN_IF_ERROR(
          link.method->observe(probe.value, [this, &probe](const TensorView& value) {
            deliver(probe.name, value);
            router.see(probe.name, value, position);
          }));
    }
  }
  return {};
}

StatefulDecoder::StatefulDecoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StatefulDecoder::~StatefulDecoder() = default;
StatefulDecoder::StatefulDecoder(StatefulDecoder&&) noexcept = default;
StatefulDecoder& StatefulDecoder::operator=(StatefulDecoder&&) noexcept = default;

Result<StatefulDecoder> StatefulDecoder::load(const packer::Bundle& bundle, ThreadPool& pool,
                                              const MethodOptions& options) {
  MemoryBudget budget(options.memory);
  return load(bundle, pool, options, nullptr, budget);
}

Result<StatefulDecoder> StatefulDecoder::load(const packer::Bundle& bundle, ThreadPool& pool,
                                              const MethodOptions& options,
                                              std::unique_ptr<Guesser> guesser,
                                              MemoryBudget& budget) {
  FERRY_RETURN_IF_ERROR(check_model_sizes(bundle));
  ProgramSet set = FERRY_TRY(ProgramSet::load(bundle, kTextDecoderRole, pool, options, budget));
  const ProgramSet::Ports ports = set.ports(kForwardMethod);
  const std::vector<PortType> cross = cross_inputs(ports);
  MethodChain chain = FERRY_TRY(bind_protocol(set, cross));
  const auto has_codes = [](const MethodChain::Link& link) {
    return link.method->has_coded_caches();
  };
  if (options.kv_bits && std::ranges::none_of(chain.links(), has_codes)) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: --kv-bits: the programs have no caches that llama::update_cache "
                            "writes",
                            printable(bundle.path())));
  }
  auto embedding = FERRY_TRY(load_embedding(bundle, pool, options, budget));
  StatefulDecoder decoder(
      std::make_unique<Impl>(std::move(set), std::move(chain), std::move(embedding)));
  if (!cross.empty()) {
    decoder.impl_->cross = cross.size();
    if (SourceEncoder::is_in(bundle)) {
      decoder.impl_->source = FERRY_TRY(SourceEncoder::load(bundle, cross, pool, options, budget));
    } else {
      decoder.impl_->audio = FERRY_TRY(AudioEncoder::load(bundle, cross, pool, options, budget));
    }
  }
  if (guesser == nullptr) return decoder;
  FERRY_RETURN_IF_ERROR(decoder.check_going_back("guessing"));
  if (!bundle.manifest().all_logits) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("{}: guessing needs the logits of all tokens: convert with --logits all",
                    printable(bundle.path())));
  }
  decoder.impl_->guesser = std::move(guesser);
  return decoder;
}

// Tokens are taken back by going back in the sequence, which only caches of attention allow: their
// rows are written again. The state of a recurrent layer has no rows.
Status StatefulDecoder::check_going_back(const std::string& who) const {
  const auto refused = [&](const std::string& why) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: {} {}", printable(impl_->set.bundle().path()), who, why));
  };
  if (impl_->manifest().rope_switch) {
    return refused("is not supported for two sets of RoPE factors");
  }
  for (const MethodChain::Link& link : impl_->chain.links()) {
    for (const packer::ManifestBuffer& buffer : link.ports->buffers) {
      if (is_cache_name(buffer.name)) continue;
      return refused(
          fmt::format("cannot take back tokens: {} is a recurrent state", quoted(buffer.name)));
    }
  }
  return {};
}

// The ring holds a window of tokens that may be taken back, guesses among them.
Status StatefulDecoder::check_ring(int64_t tokens, int64_t kept) const {
  const std::optional<AttentionSink>& sink = impl_->manifest().attention_sink;
  if (!sink || tokens <= sink->exact_length() || tokens - kept <= 1) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: its state cannot take back {} tokens: they have the places of "
                          "earlier ones in the window of {}",
                          printable(impl_->set.bundle().path()), tokens - kept, sink->window));
}

int64_t StatefulDecoder::most_taken_back() const {
  const std::optional<AttentionSink>& sink = impl_->manifest().attention_sink;
  return sink ? sink->window : capacity();
}

void StatefulDecoder::go_back(int64_t position) { impl_->position = position; }

Result<std::optional<int64_t>> StatefulDecoder::advance(int64_t token, const Choose& choose) {
  if (impl_->guesser == nullptr) return Decoder::advance(token, choose);
  const int64_t start = impl_->position;
  const int64_t room = std::min(capacity() - start, impl_->manifest().prefill_length) - 1;
  const std::span<const int64_t> call =
      FERRY_TRY(impl_->guesser->guess(token, static_cast<size_t>(std::max<int64_t>(room, 0))));
  const std::span<const float> logits = FERRY_TRY(impl_->checked_run(call));
  const auto vocab = static_cast<size_t>(impl_->manifest().vocab_size);
  if (logits.size() != call.size() * vocab) {
    return bad_input(fmt::format("{}: {} logits for {} tokens of a vocabulary of {}",
                                 printable(impl_->set.bundle().path()), logits.size(), call.size(),
                                 vocab));
  }
  const size_t guesses = call.size() - 1;
  size_t right = 0;
  for (;; ++right) {
    impl_->position = start + 1 + static_cast<int64_t>(right);
    const auto next = FERRY_TRY(choose(logits.subspan(right * vocab, vocab)));
    ++impl_->counts.generated;
    if (next && right < guesses && *next == call[right + 1]) continue;
    impl_->guesser->add(call.first(right + 1));
    impl_->guesser->learn(guesses, right);
    impl_->counts.accepted += static_cast<int64_t>(right);
    return next;
  }
}

std::optional<LookaheadCounts> StatefulDecoder::lookahead_counts() const {
  return impl_->guesser != nullptr ? std::optional(impl_->counts) : std::nullopt;
}

Result<std::span<const float>> StatefulDecoder::forward(std::span<const int64_t> tokens) {
  const std::span<const float> logits = FERRY_TRY(impl_->checked_run(tokens));
  if (impl_->guesser != nullptr) impl_->guesser->add(tokens);
  return logits;
}

Status StatefulDecoder::forward_together(std::span<StatefulDecoder* const> decoders,
                                         std::span<const int64_t> tokens,
                                         std::span<std::span<const float>> logits) {
  std::vector<MethodChain*> chains;
  std::vector<size_t> joined;  // the decoders of `chains`
  for (size_t i = 0; i < decoders.size(); ++i) {
    Impl& impl = *decoders[i]->impl_;
    const std::span<const int64_t> token = tokens.subspan(i, 1);
    if (impl.position == 0 || !impl.cached || impl.guesser != nullptr ||
        impl.is_long != impl.needs_long(1)) {
      logits[i] = FERRY_TRY(decoders[i]->forward(token));
      continue;
    }
    FERRY_RETURN_IF_ERROR(check_tokens(token, impl.manifest().vocab_size, impl.position,
                                       impl.manifest().positions()));
    FERRY_RETURN_IF_ERROR(impl.begin_call(token));
    chains.push_back(&impl.chain);
    joined.push_back(i);
  }
  FERRY_RETURN_IF_ERROR(MethodChain::run_together(chains));
  for (const size_t i : joined) {
    logits[i] = FERRY_TRY(decoders[i]->impl_->end_call());
    decoders[i]->impl_->keep(tokens.subspan(i, 1));
  }
  return {};
}

Status StatefulDecoder::set_image_rows(std::span<const EmbeddingRows> rows) {
  FERRY_RETURN_IF_ERROR(check_rows(impl_->set.bundle(), rows, capacity()));
  if (impl_->embedding != nullptr) impl_->embedding->embedder.set_rows(rows);
  // All rows of an image that attend to each other, or state their places, are tokens of one call.
  if (!impl_->ends.empty() || has_placed_rows(impl_->manifest())) {
    impl_->images.set(rows, row_width(impl_->manifest()));
  }
  if (!impl_->places.empty()) impl_->rope_places.set(rows, impl_->position);
  if (impl_->deepstack) impl_->deepstack->set(rows);
  return {};
}

// A model of speech or an encoder-decoder takes no images, and so has no input of places.
template <typename Encoder>
void StatefulDecoder::Impl::take_encoded(const Encoder& encoder) {
  for (size_t i = 0; i < cross; ++i) chain.input(kAttentionEnd + i) = encoder.output(i);
  is_encoded = true;
}

Status StatefulDecoder::set_sound(std::span<const float> features) {
  if (!impl_->audio) return Decoder::set_sound(features);
  FERRY_RETURN_IF_ERROR(impl_->audio->encode(features));
  impl_->take_encoded(*impl_->audio);
  return {};
}

Status StatefulDecoder::set_source(std::span<const int64_t> tokens) {
  if (!impl_->source) return Decoder::set_source(tokens);
  FERRY_RETURN_IF_ERROR(impl_->source->encode(tokens));
  impl_->take_encoded(*impl_->source);
  return {};
}

int64_t StatefulDecoder::tokens_together(int64_t position) const {
  return impl_->images.end_at(position) - position;
}

// Programs forget the earlier sequence when input_pos is 0, as official runners expect.
void StatefulDecoder::restart(int64_t length) {
  if (impl_->position > 0) impl_->forget_state();
  impl_->position = 0;
  impl_->announced = length;
  impl_->is_long = false;
  impl_->rope_places.restart();
  impl_->history.clear();
  impl_->counts = {};
  if (impl_->guesser != nullptr) impl_->guesser->restart();
  // A sequence is recorded only up to the switch.
  if (impl_->manifest().rope_switch) {
    impl_->history.reserve(static_cast<size_t>(*impl_->manifest().rope_switch));
  }
}

int64_t StatefulDecoder::position() const { return impl_->position; }
int64_t StatefulDecoder::capacity() const { return impl_->manifest().positions(); }

void StatefulDecoder::set_logits_sink(LogitsSink sink) { impl_->logits_sink = std::move(sink); }

Status StatefulDecoder::set_probe_sink(ProbeSink sink) {
  impl_->sink = std::move(sink);
  const auto deliver = [impl = impl_.get()](const std::string& name, int64_t rows,
                                            std::span<const float> values) {
    if (impl->sink) impl->sink(name, 0, rows, values);
  };
  if (impl_->audio) FERRY_RETURN_IF_ERROR(impl_->audio->set_probe_sink(deliver));
  if (impl_->source) FERRY_RETURN_IF_ERROR(impl_->source->set_probe_sink(deliver));
  return impl_->sink ? impl_->observe_probes() : Status();
}

Status StatefulDecoder::force_experts(const ExpertRoutes* routes) {
  FERRY_RETURN_IF_ERROR(impl_->router.force(routes));
  return routes != nullptr ? impl_->observe_probes() : Status();
}

std::pair<int64_t, int64_t> StatefulDecoder::experts_of(int64_t layer) const {
  return impl_->router.experts_of(layer);
}

Result<TensorView> StatefulDecoder::buffer(const std::string& name) const {
  const TensorView stored = FERRY_TRY(stored_buffer(impl_->chain, name));
  if (stored.dtype != DType::kF16 && stored.dtype != DType::kI8) return stored;
  impl_->shown = FERRY_TRY(decoded_buffer(impl_->chain, name));
  return TensorView{DType::kF32, stored.shape, std::as_bytes(std::span(impl_->shown))};
}

Result<std::vector<StateTensor>> StatefulDecoder::state() const {
  const int64_t context = impl_->manifest().context_length;
  std::vector<StateTensor> tensors;
  for (const MethodChain::Link& link : impl_->chain.links()) {
    for (const packer::ManifestBuffer& buffer : link.ports->buffers) {
      StateTensor& tensor = tensors.emplace_back(
          StateTensor{buffer.name, FERRY_TRY(link.method->value(buffer.value))});
      Shape& shape = tensor.values.shape;
      tensor.is_cache =
          is_cache_name(buffer.name) && shape.size() >= 2 && shape[0] == 1 && shape[1] == context;
      if (!tensor.is_cache) continue;
      const size_t row = tensor.values.bytes.size() / static_cast<size_t>(context);
      tensor.most_rows = context;
      shape[1] = std::min(impl_->position, context);
      tensor.values.bytes = tensor.values.bytes.first(row * static_cast<size_t>(shape[1]));
    }
  }
  return tensors;
}

Status StatefulDecoder::restore(std::span<const int64_t> tokens, size_t kept,
                                const ReadState& read) {
  const packer::Manifest& m = impl_->manifest();
  FERRY_RETURN_IF_ERROR(check_tokens(tokens, m.vocab_size, 0, m.positions()));
  if (kept < tokens.size()) {
    FERRY_RETURN_IF_ERROR(check_going_back("its state"));
    FERRY_RETURN_IF_ERROR(check_ring(std::ssize(tokens), static_cast<int64_t>(kept)));
  }
  const std::vector<StateTensor> buffers = FERRY_TRY(state());
  auto next = buffers.begin();
  for (const MethodChain::Link& link : impl_->chain.links()) {
    for (const packer::ManifestBuffer& buffer : link.ports->buffers) {
      const auto bytes =
          FERRY_TRY(read(*next++, std::min(static_cast<int64_t>(kept), m.context_length)));
      FERRY_RETURN_IF_ERROR(link.method->overwrite_front(buffer.value, bytes));
    }
  }
  tokens = tokens.first(kept);
  restart();
  impl_->position = std::ssize(tokens);
  impl_->is_long = impl_->needs_long(0);
  impl_->keep(tokens);
  if (impl_->guesser != nullptr) impl_->guesser->add(tokens);
  return {};
}

}  // namespace ferry::runner
