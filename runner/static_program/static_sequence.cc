#include "runner/static_program/static_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/program_interface.h"

namespace ferry::runner {
namespace {

Result<AttentionMask> make_mask(const packer::ManifestPort& port, const StaticPorts& ports,
                                std::optional<int64_t> window, MemoryBudget& budget,
                                const std::string& method) {
  const MaskValues values = FERRY_TRY(
      mask_values(port.dtype, port.encoding, fmt::format("{}: input '{}'", method, port.name)));
  const auto bytes = static_cast<uint64_t>(ports.ar * ports.cl) * values.attend.bytes;
  FERRY_RETURN_IF_ERROR(budget.take(bytes));
  return AttentionMask(values, ports.ar, ports.cl, window);
}

// Makes the caches of methods with `ports`, for calls of these lengths.
Result<KvManager> make_manager(const StaticPorts& ports, std::span<const int64_t> lengths,
                               MemoryBudget& budget, ThreadPool* pool) {
  std::vector<CacheTensor> tensors;
  for (const StaticPorts::Cache& cache : ports.caches) tensors.push_back(cache.tensor);
  return KvManager::make(ports.cache_dtype, tensors, ports.cl, lengths, budget, pool);
}

void decode(DType dtype, const Encoding& encoding, const std::byte* codes, std::span<float> out) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t code = 0;
    std::memcpy(&code, codes + i * size, size);
    out[i] = static_cast<float>(encoding.real(code));
  }
}

}  // namespace

Result<StaticSequence::Call> StaticSequence::make_call(std::unique_ptr<StaticMethod> method,
                                                       std::string_view name,
                                                       std::optional<int64_t> window,
                                                       MemoryBudget& budget,
                                                       const std::string& file) {
  const std::string label = fmt::format("{}: method {}", file, name);
  Call call;
  call.ports = FERRY_TRY(StaticPorts::read(method->inputs(), method->outputs(), label));
  const StaticPorts& ports = call.ports;
  const auto add_mask = [&](size_t input, std::optional<int64_t> of) -> Status {
    call.masks.push_back(FERRY_TRY(make_mask(method->inputs()[input], ports, of, budget, label)));
    return {};
  };
  if (ports.attention_mask) FERRY_RETURN_IF_ERROR(add_mask(*ports.attention_mask, std::nullopt));
  if (ports.window_mask) {
    if (!window || *window < 1) {
      return bad_input(fmt::format("{} has an input {}, but the program does not state its length",
                                   label, kWindowMaskPort));
    }
    FERRY_RETURN_IF_ERROR(add_mask(*ports.window_mask, window));
  }
  const auto ar = static_cast<size_t>(ports.ar);
  call.ids.resize(ar);
  call.positions.resize(ar);
  call.parents.resize(ar);
  call.offsets.resize(ar);
  std::iota(call.parents.begin(), call.parents.end(), -1);
  std::iota(call.offsets.begin(), call.offsets.end(), 0);
  call.columns.resize(ports.caches.size());
  const packer::ManifestPort& logits = method->outputs()[ports.logits];
  call.logits.emplace(logits.dtype, logits.encoding, ports.vocab);
  call.method = std::move(method);
  return call;
}

Result<StaticSequence> StaticSequence::make(StaticMethods methods, const DecodeOptions& options,
                                            MemoryBudget& budget, const std::string& file) {
  StaticSequence out;
  out.two_way_images_ = methods.two_way_images;
  out.two_way_in_windows_ = methods.two_way_in_windows;
  const auto call = [&](std::unique_ptr<StaticMethod> method, std::string_view name) {
    return make_call(std::move(method), name, methods.window, budget, file);
  };
  out.kv_ = FERRY_TRY(call(std::move(methods.kv), kKvForwardMethod));
  if (methods.prefill) {
    out.prefill_ = FERRY_TRY(call(std::move(methods.prefill), kPrefillForwardMethod));
    if (Status same = check_same_state(out.kv_.ports, out.prefill_->ports); !same) {
      return bad_input(fmt::format("{}: {}", file, same.error().message));
    }
  }
  FERRY_RETURN_IF_ERROR(out.set_mode(options, file));
  FERRY_RETURN_IF_ERROR(out.make_caches(budget, methods.pool));
  return out;
}

Status StaticSequence::set_mode(const DecodeOptions& options, const std::string& file) {
  const bool recurrent = !kv_.ports.states.empty();
  mode_ = options.mode.value_or(prefill_ ? DecodeMode::kHybrid : DecodeMode::kKv);
  if (mode_ == DecodeMode::kHybrid && !prefill_) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: mode hybrid needs a method {}", file, kPrefillForwardMethod));
  }
  if (recurrent && mode_ == DecodeMode::kLookahead) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: mode lookahead needs guesses to be undone, which the state {} "
                            "does not allow",
                            file, kv_.ports.states.front().name));
  }
  if (recurrent && kv_.ports.ar != 1) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} has calls of {} tokens: a program with the state {} takes them "
                            "one by one",
                            file, kKvForwardMethod, kv_.ports.ar, kv_.ports.states.front().name));
  }
  if (mode_ != DecodeMode::kLookahead) return {};
  auto lookahead = Lookahead::make(options.lookahead, kv_.ports.ar, kv_.ports.vocab);
  if (!lookahead) {
    return fail(lookahead.error().code, fmt::format("{}: {}", file, lookahead.error().message));
  }
  lookahead_ = std::move(*lookahead);
  likeliest_.resize(lookahead_->end_rows());
  return {};
}

Status StaticSequence::make_caches(MemoryBudget& budget, ThreadPool* pool) {
  // Mode kv calls prefill_forward for images alone, and only where their rows attend to each other.
  const bool prefills = prefill_ && (mode_ != DecodeMode::kKv || two_way_images_);
  const bool apart = prefills && !same_encodings(kv_.ports, prefill_->ports);
  const int64_t lengths[] = {kv_.ports.ar, prefills && !apart ? prefill_->ports.ar : kv_.ports.ar};
  caches_ = FERRY_TRY(make_manager(kv_.ports, lengths, budget, pool));
  if (apart) {
    const int64_t length[] = {prefill_->ports.ar};
    prefill_caches_ = FERRY_TRY(make_manager(prefill_->ports, length, budget, pool));
  }
  for (const StaticPorts::State& state : kv_.ports.states) {
    FERRY_RETURN_IF_ERROR(budget.take(state.bytes));
    states_.emplace_back(state.bytes);
  }
  connect(kv_);
  if (prefills) connect(*prefill_);
  return {};
}

KvManager& StaticSequence::caches_of(const Call& call) {
  return prefill_caches_ && &call != &kv_ ? *prefill_caches_ : *caches_;
}

// The arguments never move, so a call is connected once.
void StaticSequence::connect(Call& call) {
  StaticMethod& method = *call.method;
  const StaticPorts& ports = call.ports;
  method.input(ports.tokens).bytes = std::as_bytes(std::span(call.ids));
  if (ports.input_pos)
    method.input(*ports.input_pos).bytes = std::as_bytes(std::span(call.positions));
  size_t mask = 0;
  if (ports.attention_mask) method.input(*ports.attention_mask).bytes = call.masks[mask++].bytes();
  if (ports.window_mask) method.input(*ports.window_mask).bytes = call.masks[mask].bytes();
  for (size_t i = 0; i < ports.caches.size(); ++i) {
    method.input(ports.caches[i].input).bytes = caches_of(call).view(i, ports.ar);
  }
  for (const StaticPorts::State& state : ports.states) {
    const auto found = std::ranges::find(kv_.ports.states, state.name, &StaticPorts::State::name);
    const auto index = static_cast<size_t>(found - kv_.ports.states.begin());
    call.states.push_back(index);
    method.input(state.input).bytes = states_[index];
  }
}

void StaticSequence::restart() {
  caches_->clear();
  if (prefill_caches_) prefill_caches_->clear();
  for (std::vector<std::byte>& state : states_) std::ranges::fill(state, std::byte{});
  if (lookahead_) lookahead_->reset();
  counts_ = {};
  position_ = 0;
  arrangement_ = Arrangement::kNone;
}

std::optional<LookaheadCounts> StaticSequence::lookahead_counts() const {
  return lookahead_ ? std::optional(counts_) : std::nullopt;
}

Status StaticSequence::activate(Arrangement arrangement) {
  if (arrangement == arrangement_) return {};
  Call& call = arrangement == Arrangement::kPrefill ? *prefill_ : kv_;
  const bool guesses = arrangement == Arrangement::kLookahead;
  for (AttentionMask& mask : call.masks) {
    mask.init(guesses ? lookahead_->parents() : call.parents,
              guesses ? lookahead_->offsets() : call.offsets, position_);
  }
  arrangement_ = arrangement;
  return {};
}

// A state cannot distinguish padding from tokens, so programs with states get full chunks only. A
// single token runs in kv_forward.
int64_t StaticSequence::prefill_tokens(int64_t count) const {
  const int64_t together = tokens_together(position_);
  if (!prefill_ || (mode_ == DecodeMode::kKv && together == 1)) return 0;
  if (mode_ == DecodeMode::kKv) count = std::min(count, together);
  const int64_t ar = prefill_->ports.ar;
  const int64_t room = std::min(prefill_->columns_cached(), capacity()) - position_;
  const int64_t tokens = std::min({count, ar, room});
  const bool recurrent = !kv_.ports.states.empty();
  return tokens < 2 || (recurrent && tokens < ar) ? 0 : tokens;
}

Status StaticSequence::run(Call& call) {
  KvManager& caches = caches_of(call);
  const bool strided = std::ranges::all_of(call.ports.caches, [&](const StaticPorts::Cache& cache) {
    return call.method->can_be_strided(cache.input);
  });
  FERRY_RETURN_IF_ERROR(strided ? caches.pack(call.ports.ar) : caches.rearrange(call.ports.ar));
  call.method->set_stored_columns(strided ? caches.stored_columns() : 0);
  FERRY_RETURN_IF_ERROR(call.method->run());
  for (size_t i = 0; i < call.ports.caches.size(); ++i) {
    const StaticPorts::Cache& cache = call.ports.caches[i];
    call.columns[i] = {call.method->output(cache.output).bytes, cache.output_encoding};
  }
  return {};
}

// Every method gets the columns from the codes of the call, so that no column is converted twice,
// however often the methods alternate.
Status StaticSequence::keep_columns(const Call& call, int64_t count,
                                    std::span<const bool> selected) {
  const int64_t before = caches_->length();
  FERRY_RETURN_IF_ERROR(caches_->update(call.columns, count, selected, call.ports.ar));
  const bool fits =
      prefill_caches_ && prefill_caches_->length() == before && prefill_caches_->room() >= count;
  return fits ? prefill_caches_->update(call.columns, count, selected, call.ports.ar) : Status();
}

Status StaticSequence::keep(Call& call, int64_t count, std::span<const bool> selected) {
  FERRY_RETURN_IF_ERROR(keep_columns(call, count, selected));
  for (AttentionMask& mask : call.masks) mask.update(count);
  for (size_t i = 0; i < call.states.size(); ++i) {
    const auto after = call.method->output(call.ports.states[i].output).bytes;
    std::memcpy(states_[call.states[i]].data(), after.data(), after.size());
  }
  return {};
}

void StaticSequence::show_images(Call& call, int64_t count, bool seen) {
  for (int64_t row = 0; row < count; ++row) {
    const int64_t end = images_.end_at(position_ + row) - position_;
    if (end == row + 1) continue;
    // The mask of windows is the last, where there are two.
    const size_t first = two_way_in_windows_ && call.ports.attention_mask ? 1 : 0;
    for (size_t i = first; i < call.masks.size(); ++i) call.masks[i].see_later(row, end, seen);
  }
}

// Rows of padding have token 0 and the position of the last token, so that no result depends on
// earlier contents of these rows.
Status StaticSequence::run_tokens(Call& call, std::span<const int64_t> tokens) {
  std::ranges::fill(call.ids, 0);
  for (size_t i = 0; i < call.ids.size(); ++i) {
    if (i < tokens.size()) call.ids[i] = static_cast<int32_t>(tokens[i]);
    const size_t offset = std::min(i, tokens.size() - 1);
    call.positions[i] = static_cast<int32_t>(position_ + static_cast<int64_t>(offset));
  }
  call_tokens_ = std::ssize(tokens);
  // forward() reads the logits of its last token.
  const int64_t first = sink_ ? 0 : call_tokens_ - 1;
  call.method->want_rows(call.ports.logits, first, call_tokens_ - first);
  show_images(call, call_tokens_, /*seen=*/true);
  const Status ran = run(call);
  show_images(call, call_tokens_, /*seen=*/false);
  if (!ran) return ran;
  FERRY_RETURN_IF_ERROR(keep(call, std::ssize(tokens), {}));
  if (sink_) {
    sink_(position_, std::ssize(tokens),
          call.logits->rows(call.method->output(call.ports.logits), 0, tokens.size()));
  }
  position_ += std::ssize(tokens);
  return {};
}

Result<std::span<const float>> StaticSequence::forward(std::span<const int64_t> tokens) {
  FERRY_RETURN_IF_ERROR(check_tokens(tokens, vocab(), position_, capacity()));
  if (lookahead_ && !lookahead_->has_begun()) lookahead_->begin(tokens);
  std::span<const float> logits;
  while (!tokens.empty()) {
    const int64_t chunk = prefill_tokens(std::ssize(tokens));
    Call& call = chunk > 0 ? *prefill_ : kv_;
    const auto most = static_cast<size_t>(chunk > 0 ? chunk : kv_.ports.ar);
    const size_t count = FERRY_TRY(images_.call_length(position_, tokens.size(), most));
    FERRY_RETURN_IF_ERROR(activate(chunk > 0 ? Arrangement::kPrefill : Arrangement::kKv));
    FERRY_RETURN_IF_ERROR(run_tokens(call, tokens.first(count)));
    tokens = tokens.subspan(count);
    if (!tokens.empty()) continue;
    logits = call.logits->rows(call.method->output(call.ports.logits), count - 1, 1);
  }
  return logits;
}

void StaticSequence::grow_guesses() {
  const TensorView& logits = kv_.method->output(kv_.ports.logits);
  for (size_t i = 0; i < likeliest_.size(); ++i) {
    const size_t row = lookahead_->first_end_row() + i;
    likeliest_[i] = static_cast<int32_t>(argmax(kv_.logits->rows(logits, row, 1)));
  }
  lookahead_->grow(likeliest_);
}

// `count` becomes the number of rows from which a token was chosen.
Result<std::optional<int64_t>> StaticSequence::choose_rows(const Decoder::Choose& choose,
                                                           int64_t& count) {
  const TensorView& logits = kv_.method->output(kv_.ports.logits);
  std::optional<int64_t> token;
  while (const std::optional<size_t> row = lookahead_->row()) {
    if (position_ == capacity()) break;
    ++position_;
    ++count;
    token = FERRY_TRY(choose(kv_.logits->rows(logits, *row, 1)));
    if (!token) break;
    lookahead_->accept(*token);
  }
  return token;
}

Result<std::optional<int64_t>> StaticSequence::advance(int64_t token,
                                                       const Decoder::Choose& choose) {
  if (!lookahead_) return choose(FERRY_TRY(forward({&token, 1})));
  FERRY_RETURN_IF_ERROR(check_tokens({&token, 1}, vocab(), position_, capacity()));
  if (!lookahead_->has_begun()) lookahead_->begin({&token, 1});
  FERRY_RETURN_IF_ERROR(activate(Arrangement::kLookahead));
  std::ranges::fill(kv_.ids, 0);
  std::ranges::fill(kv_.positions, static_cast<int32_t>(position_));
  std::ranges::copy(lookahead_->ids(token), kv_.ids.begin());
  for (size_t i = 0; i < lookahead_->offsets().size(); ++i) {
    kv_.positions[i] = static_cast<int32_t>(position_) + lookahead_->offsets()[i];
  }
  call_tokens_ = 0;
  kv_.method->want_rows(kv_.ports.logits, 0, kv_.ports.ar);
  FERRY_RETURN_IF_ERROR(run(kv_));
  grow_guesses();
  const int64_t before = position_;
  int64_t count = 0;
  auto next = choose_rows(choose, count);
  if (!next) {
    position_ = before;
    return next;
  }
  FERRY_RETURN_IF_ERROR(keep(kv_, count, lookahead_->selected()));
  counts_.generated += count;
  counts_.accepted += count - 1;
  return next;
}

std::optional<StaticSequence::Floats> StaticSequence::cache(int64_t layer, bool is_key) const {
  for (size_t i = 0; i < kv_.ports.caches.size(); ++i) {
    const CacheTensor& tensor = caches_->tensor(i);
    if (tensor.layer != layer || tensor.is_key != is_key) continue;
    return Floats{{1, caches_->length(), tensor.heads, tensor.head_dim}, caches_->floats(i)};
  }
  return std::nullopt;
}

std::optional<StaticSequence::Floats> StaticSequence::state(std::string_view port) const {
  const auto found = std::ranges::find(kv_.ports.states, port, &StaticPorts::State::name);
  if (found == kv_.ports.states.end()) return std::nullopt;
  const std::vector<std::byte>& bytes =
      states_[static_cast<size_t>(found - kv_.ports.states.begin())];
  Floats out = {kv_.method->inputs()[found->input].shape,
                std::vector<float>(bytes.size() / sizeof(float))};
  std::memcpy(out.values.data(), bytes.data(), bytes.size());
  return out;
}

std::span<const float> LogitsReader::rows(const TensorView& logits, size_t begin, size_t count) {
  const size_t elements = count * vocab_;
  const std::byte* from =
      logits.bytes.data() + begin * vocab_ * static_cast<size_t>(dtype_bytes(dtype_));
  // A tensor's memory is aligned to its dtype.
  if (dtype_ == DType::kF32) return {reinterpret_cast<const float*>(from), elements};
  if (floats_.size() < elements) floats_.resize(elements);
  const std::span<float> out = std::span(floats_).first(elements);
  if (encoding_) {
    decode(dtype_, *encoding_, from, out);
  } else {
    to_f32(dtype_, from, out.data(), elements);
  }
  return out;
}

}  // namespace ferry::runner
