#include "runner/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace ferry {
namespace {

constexpr std::string_view kMethod = "forward";
constexpr const char* kTokens = "tokens";
constexpr const char* kInputPos = "input_pos";
constexpr const char* kLogits = "logits";

std::vector<ExternalTensor> external_tensors(const Bundle& bundle, size_t program) {
  std::vector<ExternalTensor> tensors;
  for (const BundleData* data : bundle.data_of(program)) {
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

std::vector<float> copy_floats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// The numbers of the manifest that loops and divisions rely on.
Status check_numbers(const Bundle& bundle) {
  constexpr int64_t kMost = int64_t{1} << 31;
  constexpr int64_t kMostLayers = 1 << 16;
  const Manifest& m = bundle.manifest();
  const auto sane = [](int64_t n) { return n > 0 && n <= kMost; };
  if (sane(m.vocab_size) && sane(m.hidden_size) && sane(m.context_length) &&
      sane(m.prefill_length) && m.num_layers > 0 && m.num_layers <= kMostLayers) {
    return {};
  }
  return bad_input(
      fmt::format("{}/{}: a size of the model is out of range", bundle.path(), kManifestName));
}

}  // namespace

struct Decoder::Impl {
  const Bundle* bundle = nullptr;
  std::vector<Method> methods;  // one per program, in order
  int64_t position = 0;
  int64_t announced = 0;         // the sequence will be as long as this at least
  bool is_long = false;          // the sequence has the RoPE factors beyond the switch
  std::vector<int64_t> history;  // the sequence, as long as it could have to be computed again
  ProbeSink sink;
  bool observing = false;
  // Of the call that runs now.
  int64_t call_tokens = 0;

  const Manifest& manifest() const { return bundle->manifest(); }

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
};

Status Decoder::Impl::run_program(size_t index, std::map<std::string, TensorView>& values) {
  const ManifestProgram& program = manifest().programs[index];
  Method& method = methods[index];
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const auto value = values.find(program.inputs[i].name);
    if (value == values.end()) {
      return bad_input(fmt::format("{}: no earlier program gives the input '{}'", program.file,
                                   program.inputs[i].name));
    }
    FERRY_CHECK(method.set_input(i, value->second));
  }
  FERRY_CHECK(method.execute());
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    values[program.outputs[i].name] = method.output(i);
  }
  return {};
}

Result<std::vector<float>> Decoder::Impl::call(std::span<const int64_t> tokens) {
  call_tokens = static_cast<int64_t>(tokens.size());
  std::map<std::string, TensorView> values;
  values[kTokens] = {DType::kI64, {1, call_tokens}, std::as_bytes(tokens)};
  // Programs with a switch take a position's complement for one of a long sequence.
  const int64_t input_pos = is_long ? -1 - position : position;
  values[kInputPos] = {DType::kI64, {1}, std::as_bytes(std::span(&input_pos, 1))};
  for (size_t i = 0; i < methods.size(); ++i) FERRY_CHECK(run_program(i, values));
  const auto logits = values.find(kLogits);
  if (logits == values.end() || logits->second.dtype != DType::kF32) {
    return bad_input(fmt::format("{}: no program gives f32 'logits'", bundle->path()));
  }
  std::vector<float> result = copy_floats(logits->second.bytes);
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
  if (!sink || value.dtype != DType::kF32 || value.shape.empty() || value.shape.back() <= 0) return;
  const std::vector<float> floats = copy_floats(value.bytes);
  const int64_t rows = static_cast<int64_t>(floats.size()) / value.shape.back();
  // A probe behind the cut to the last token has fewer rows than the call has tokens.
  sink(name, position + call_tokens - rows, rows, floats);
}

Status Decoder::Impl::observe_probes() {
  for (size_t i = 0; i < methods.size(); ++i) {
    for (const ManifestProbe& probe : manifest().programs[i].probes) {
      FERRY_CHECK(methods[i].observe(
          probe.value, [this, &probe](const TensorView& value) { deliver(probe.name, value); }));
    }
  }
  return {};
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

Result<Decoder> Decoder::load(const Bundle& bundle, ThreadPool& pool,
                              const MethodOptions& options) {
  FERRY_CHECK(check_numbers(bundle));
  auto impl = std::make_unique<Impl>();
  impl->bundle = &bundle;
  for (size_t i = 0; i < bundle.programs().size(); ++i) {
    impl->methods.push_back(
        FERRY_TRY(Method::load(bundle.programs()[i].loaded, kMethod, external_tensors(bundle, i),
                               pool, options, bundle.manifest().programs[i].file)));
  }
  return Decoder(std::move(impl));
}

Result<std::vector<float>> Decoder::forward(std::span<const int64_t> tokens) {
  const Manifest& manifest = impl_->manifest();
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
  if (!impl_->sink || std::exchange(impl_->observing, true)) return {};
  return impl_->observe_probes();
}

Result<TensorView> Decoder::buffer(const std::string& name) const {
  for (size_t i = 0; i < impl_->methods.size(); ++i) {
    for (const ManifestBuffer& buffer : impl_->manifest().programs[i].buffers) {
      if (buffer.name == name) return impl_->methods[i].value(buffer.value);
    }
  }
  return fail(ErrorCode::kUsage, fmt::format("the bundle has no buffer '{}'", name));
}

}  // namespace ferry
