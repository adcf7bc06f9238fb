#include "tests/runner/static_program/fake_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "core/program_interface.h"
#include "runner/sampler.h"

namespace ferry::runner {
namespace {

using Row = std::vector<float>;
using Rows = std::vector<Row>;

constexpr int64_t kWidth = 8;

size_t size_of(DType dtype) { return static_cast<size_t>(dtype_bytes(dtype)); }

float read(DType dtype, const std::optional<Encoding>& encoding, const std::byte* at) {
  if (encoding) {
    uint16_t code = 0;
    std::memcpy(&code, at, size_of(dtype));
    return static_cast<float>(encoding->real(code));
  }
  float value = 0;
  to_f32(dtype, at, &value, 1);
  return value;
}

void write(DType dtype, const std::optional<Encoding>& encoding, float value, std::byte* at) {
  if (encoding) {
    const auto code = static_cast<uint16_t>(encoding->code(value, dtype));
    std::memcpy(at, &code, size_of(dtype));
  } else {
    from_f32(dtype, &value, at, 1);
  }
}

// Rounds to values that every dtype of a cache holds.
float rounded(float value) { return std::clamp(std::nearbyint(value * 8), -127.f, 127.f) / 8; }

struct Matrix {
  int64_t rows = 0, columns = 0;
  Row values;
  Matrix() = default;
  Matrix(Random& random, int64_t r, int64_t c, double scale) : rows(r), columns(c) {
    for (int64_t i = 0; i < r * c; ++i) {
      values.push_back(static_cast<float>((random.uniform() * 2 - 1) * scale));
    }
  }
  Row times(const Row& x) const {
    Row out(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        out[static_cast<size_t>(r)] +=
            values[static_cast<size_t>(r * columns + c)] * x[static_cast<size_t>(c)];
      }
    }
    return out;
  }
};

struct LayerWeights {
  Matrix q, k, v, o;
};

}  // namespace

struct FakeWeights {
  Matrix embedding, head, state;
  std::vector<LayerWeights> layers;

  explicit FakeWeights(const FakeOptions& options) {
    Random random(options.seed);
    embedding = Matrix(random, options.vocab, kWidth, 1.5);
    for (const FakeLayer& layer : options.layers) {
      const int64_t size = layer.heads * layer.head_dim;
      LayerWeights w;
      w.q = Matrix(random, size, kWidth, 1);
      w.k = Matrix(random, size, kWidth, 1);
      w.v = Matrix(random, size, kWidth, 1);
      w.o = Matrix(random, kWidth, size, 0.7);
      layers.push_back(std::move(w));
    }
    state = Matrix(random, kWidth, kWidth, 0.4);
    head = Matrix(random, options.vocab, kWidth, 1);
  }

  Row embed(int32_t token, int64_t position) const {
    Row x;
    for (int64_t i = 0; i < kWidth; ++i) {
      x.push_back(embedding.values[static_cast<size_t>(token * kWidth + i)] +
                  static_cast<float>(0.5 * std::sin(static_cast<double>(position * (i + 1)) / 3)));
    }
    return x;
  }
  // Adds o(mixed) to x, scaled so that x stays small.
  void add(size_t layer, const Row& mixed, Row& x) const {
    const Row out = layers[layer].o.times(mixed);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::tanh((x[i] + out[i]) / 2) * 2;
  }
  // Applies the recurrence, which padding would disturb.
  void step(Row& state_row, Row& x) const {
    const Row mixed = state.times(state_row);
    for (size_t i = 0; i < x.size(); ++i) {
      state_row[i] = std::tanh(mixed[i] + x[i]);
      x[i] += state_row[i];
    }
  }
};

namespace {

// Computes softmax(q k) v of one head over columns. `mask` is added to the scores.
void attend(const Row& q, size_t head, size_t dim, const Rows& keys, const Rows& values,
            const Row& mask, Row& mixed) {
  Row scores;
  for (size_t s = 0; s < keys.size(); ++s) {
    float score = 0;
    for (size_t d = 0; d < dim; ++d) score += q[head * dim + d] * keys[s][head * dim + d];
    scores.push_back(score / std::sqrt(static_cast<float>(dim)) + mask[s]);
  }
  const float top = *std::ranges::max_element(scores);
  float total = 0;
  for (float& score : scores) total += score = std::exp(score - top);
  for (size_t s = 0; s < keys.size(); ++s) {
    for (size_t d = 0; d < dim; ++d) {
      mixed[head * dim + d] += scores[s] / total * values[s][head * dim + d];
    }
  }
}

Row rounded(Row row) {
  for (float& value : row) value = rounded(value);
  return row;
}

}  // namespace

std::optional<Encoding> FakeOptions::kv_encoding() const {
  if (!is_encoded(kv)) return std::nullopt;
  if (kv_cache) return kv_cache;
  return Encoding{0.125, kv == DType::kU8 ? 128 : 1000};
}
std::optional<Encoding> FakeOptions::mask_encoding() const {
  if (!is_encoded(mask)) return std::nullopt;
  return mask == DType::kU8 ? Encoding{1, 255} : Encoding{255.0 / 65535, 65535};
}
std::optional<Encoding> FakeOptions::logits_encoding() const {
  if (!is_encoded(logits)) return std::nullopt;
  return logits == DType::kU8 ? Encoding{0.25, 128} : Encoding{1.0 / 1024, 32768};
}

FakePorts fake_ports(const FakeOptions& o, int64_t ar) {
  FakePorts ports;
  const int64_t columns = o.context - ar;
  ports.inputs.push_back({"tokens", DType::kI32, {1, ar}});
  ports.inputs.push_back({"attention_mask", o.mask, {1, 1, ar, o.context}, o.mask_encoding()});
  if (o.window) {
    ports.inputs.push_back({"window_mask", o.mask, {1, 1, ar, o.context}, o.mask_encoding()});
  }
  ports.inputs.push_back({"input_pos", DType::kI32, {1, ar}});
  ports.outputs.push_back({"logits", o.logits, {1, ar, o.vocab}, o.logits_encoding()});
  const auto name = [](std::string_view stem, const FakeLayer& layer) {
    return std::string(stem) + std::to_string(layer.number);
  };
  for (const FakeLayer& l : o.layers) {
    ports.inputs.push_back(
        {name(kKCachePort, l), o.kv, {1, l.heads, l.head_dim, columns}, o.kv_encoding()});
    ports.outputs.push_back(
        {name(kNewKPort, l), o.kv, {1, l.heads, l.head_dim, ar}, o.kv_encoding()});
  }
  for (const FakeLayer& l : o.layers) {
    ports.inputs.push_back(
        {name(kVCachePort, l), o.kv, {1, l.heads, columns, l.head_dim}, o.kv_encoding()});
    ports.outputs.push_back(
        {name(kNewVPort, l), o.kv, {1, l.heads, ar, l.head_dim}, o.kv_encoding()});
  }
  if (o.recurrent) {
    ports.inputs.push_back({"recurrent_state_1", DType::kF32, {1, kWidth}});
    ports.outputs.push_back({"new_recurrent_state_1", DType::kF32, {1, kWidth}});
  }
  return ports;
}

class FakeMethod final : public StaticMethod {
 public:
  FakeMethod(FakeProgram& program, std::string name, int64_t ar)
      : program_(program),
        o_(program.options()),
        name_(std::move(name)),
        ar_(ar),
        ports_(fake_ports(o_, ar)) {
    if (name_ == kPrefillForwardMethod) {
      set_encodings(ports_.inputs, o_.prefill_cache);
      set_encodings(ports_.outputs, o_.prefill_output ? o_.prefill_output : o_.prefill_cache);
    }
    for (const packer::ManifestPort& port : ports_.inputs) {
      inputs_.push_back({port.dtype, port.shape, {}});
    }
    memory_.resize(ports_.outputs.size());
    for (size_t i = 0; i < ports_.outputs.size(); ++i) {
      int64_t elements = 1;
      for (int64_t n : ports_.outputs[i].shape) elements *= n;
      memory_[i].resize(static_cast<size_t>(elements) * size_of(ports_.outputs[i].dtype));
      outputs_.push_back({ports_.outputs[i].dtype, ports_.outputs[i].shape, memory_[i]});
    }
  }

  std::span<const packer::ManifestPort> inputs() const override { return ports_.inputs; }
  std::span<const packer::ManifestPort> outputs() const override { return ports_.outputs; }
  TensorView& input(size_t index) override { return inputs_[index]; }
  const TensorView& output(size_t index) const override { return outputs_[index]; }

  void want_rows(size_t output, int64_t begin, int64_t count) override {
    EXPECT_EQ(ports_.outputs[output].name, kLogitsPort);
    EXPECT_TRUE(begin >= 0 && count >= 0 && begin + count <= ar_) << begin << " " << count;
    wanted_ = {begin, begin + count};
  }

  // Unwanted rows of logits get values that nothing may read.
  Status run() override {
    program_.calls_.push_back(name_);
    if (std::exchange(program_.failing_, false)) return bad_input("it failed");
    const FakeWeights& w = *program_.weights_;
    for (std::vector<std::byte>& bytes : memory_) std::ranges::fill(bytes, std::byte{0xff});
    Rows x;
    const std::byte *tokens = in("tokens"), *positions = in("input_pos");
    for (int64_t i = 0; i < ar_; ++i) {
      int32_t token = 0, position = 0;
      std::memcpy(&token, tokens + i * 4, 4);
      std::memcpy(&position, positions + i * 4, 4);
      EXPECT_TRUE(position >= 0 && position < o_.context) << position;
      x.push_back(w.embed(token, position));
    }
    for (size_t l = 0; l < o_.layers.size(); ++l) run_layer(l, x);
    if (o_.recurrent) run_state(x);
    const Target out = target("logits");
    for (int64_t i = wanted_.first; i < wanted_.second; ++i) {
      const Row logits = w.head.times(x[static_cast<size_t>(i)]);
      for (int64_t t = 0; t < o_.vocab; ++t) {
        out.put(i * o_.vocab + t, logits[static_cast<size_t>(t)]);
      }
    }
    return {};
  }

 private:
  // Sets the encodings of caches and of new columns.
  static void set_encodings(std::vector<packer::ManifestPort>& ports,
                            const std::optional<Encoding>& encoding) {
    for (packer::ManifestPort& port : ports) {
      const bool is_cache =
          is_layer_port(port.name, kKCachePort) || is_layer_port(port.name, kVCachePort) ||
          is_layer_port(port.name, kNewKPort) || is_layer_port(port.name, kNewVPort);
      if (encoding && is_cache) port.encoding = encoding;
    }
  }
  size_t index_in(const std::vector<packer::ManifestPort>& ports, const std::string& name) const {
    const auto found = std::ranges::find(ports, name, &packer::ManifestPort::name);
    return static_cast<size_t>(found - ports.begin());
  }
  const std::byte* in(const std::string& name) const {
    const TensorView& view = inputs_[index_in(ports_.inputs, name)];
    int64_t elements = 1;
    for (int64_t n : view.shape) elements *= n;
    EXPECT_EQ(view.bytes.size(), static_cast<size_t>(elements) * size_of(view.dtype)) << name;
    return view.bytes.data();
  }
  // An input and an output, by their elements.
  struct Source {
    const packer::ManifestPort& port;
    const std::byte* bytes;
    float operator[](int64_t at) const {
      return read(port.dtype, port.encoding, bytes + static_cast<size_t>(at) * size_of(port.dtype));
    }
  };
  struct Target {
    const packer::ManifestPort& port;
    std::byte* bytes;
    void put(int64_t at, float value) const {
      write(port.dtype, port.encoding, value,
            bytes + static_cast<size_t>(at) * size_of(port.dtype));
    }
  };
  Source source(const std::string& name) const {
    return {ports_.inputs[index_in(ports_.inputs, name)], in(name)};
  }
  Target target(const std::string& name) {
    const size_t index = index_in(ports_.outputs, name);
    return {ports_.outputs[index], memory_[index].data()};
  }

  void run_layer(size_t l, Rows& x) {
    const auto [number, heads, dim, sliding] = o_.layers[l];
    const LayerWeights& w = program_.weights_->layers[l];
    const std::string n = std::to_string(number);
    const int64_t past = o_.context - ar_, size = heads * dim;
    const Source old_keys = source("k_cache_" + n), old_values = source("v_cache_" + n);
    const Target new_keys = target("new_k_" + n), new_values = target("new_v_" + n);
    // All columns: those of the cache, then the new ones.
    Rows keys(static_cast<size_t>(o_.context), Row(static_cast<size_t>(size))), values = keys;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < dim; ++d) {
        const auto at = static_cast<size_t>(h * dim + d);
        for (int64_t c = 0; c < past; ++c) {
          const auto column = static_cast<size_t>(c);
          keys[column][at] = old_keys[(h * dim + d) * past + c];
          values[column][at] = old_values[(h * past + c) * dim + d];
        }
      }
    }
    for (int64_t i = 0; i < ar_; ++i) {
      const auto column = static_cast<size_t>(past + i);
      keys[column] = rounded(w.k.times(x[static_cast<size_t>(i)]));
      values[column] = rounded(w.v.times(x[static_cast<size_t>(i)]));
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t d = 0; d < dim; ++d) {
          const auto at = static_cast<size_t>(h * dim + d);
          new_keys.put((h * dim + d) * ar_ + i, keys[column][at]);
          new_values.put((h * ar_ + i) * dim + d, values[column][at]);
        }
      }
    }
    const Source masks = source(sliding && o_.window ? "window_mask" : "attention_mask");
    for (int64_t i = 0; i < ar_; ++i) {
      Row mask, mixed(static_cast<size_t>(size));
      for (int64_t c = 0; c < o_.context; ++c) mask.push_back(masks[i * o_.context + c]);
      const Row q = w.q.times(x[static_cast<size_t>(i)]);
      for (int64_t h = 0; h < heads; ++h) {
        attend(q, static_cast<size_t>(h), static_cast<size_t>(dim), keys, values, mask, mixed);
      }
      program_.weights_->add(l, mixed, x[static_cast<size_t>(i)]);
    }
  }

  void run_state(Rows& x) {
    Row state;
    const Source before = source("recurrent_state_1");
    for (int64_t i = 0; i < kWidth; ++i) state.push_back(before[i]);
    for (Row& row : x) program_.weights_->step(state, row);
    const Target after = target("new_recurrent_state_1");
    for (int64_t i = 0; i < kWidth; ++i) after.put(i, state[static_cast<size_t>(i)]);
  }

  FakeProgram& program_;
  const FakeOptions& o_;
  std::string name_;
  int64_t ar_;
  std::pair<int64_t, int64_t> wanted_ = {0, ar_};
  FakePorts ports_;
  std::vector<TensorView> inputs_, outputs_;
  std::vector<std::vector<std::byte>> memory_;
};

FakeProgram::FakeProgram(const FakeOptions& options)
    : options_(options), weights_(std::make_unique<FakeWeights>(options)) {}
FakeProgram::~FakeProgram() = default;

StaticMethods FakeProgram::methods() {
  StaticMethods out;
  out.kv = std::make_unique<FakeMethod>(*this, std::string(kKvForwardMethod), options_.kv_length);
  if (options_.has_prefill) {
    out.prefill = std::make_unique<FakeMethod>(*this, std::string(kPrefillForwardMethod),
                                               options_.prefill_length);
  }
  out.window = options_.window;
  return out;
}

Rows FakeProgram::all_at_once(const std::vector<int64_t>& tokens) const {
  Rows x, logits;
  for (size_t t = 0; t < tokens.size(); ++t) {
    x.push_back(weights_->embed(static_cast<int32_t>(tokens[t]), static_cast<int64_t>(t)));
  }
  for (size_t l = 0; l < options_.layers.size(); ++l) {
    const FakeLayer& layer = options_.layers[l];
    const LayerWeights& w = weights_->layers[l];
    Rows keys, values, queries;
    for (const Row& row : x) {
      keys.push_back(rounded(w.k.times(row)));
      values.push_back(rounded(w.v.times(row)));
      queries.push_back(w.q.times(row));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      size_t first = 0;
      if (layer.sliding && options_.window && t + 1 > static_cast<size_t>(*options_.window)) {
        first = t + 1 - static_cast<size_t>(*options_.window);
      }
      const auto part = [&](const Rows& rows) {
        return Rows(rows.begin() + static_cast<std::ptrdiff_t>(first),
                    rows.begin() + static_cast<std::ptrdiff_t>(t) + 1);
      };
      Row mixed(static_cast<size_t>(layer.heads * layer.head_dim));
      for (int64_t h = 0; h < layer.heads; ++h) {
        attend(queries[t], static_cast<size_t>(h), static_cast<size_t>(layer.head_dim), part(keys),
               part(values), Row(t + 1 - first), mixed);
      }
      weights_->add(l, mixed, x[t]);
    }
  }
  Row state(kWidth);
  for (Row& row : x) {
    if (options_.recurrent) weights_->step(state, row);
    logits.push_back(weights_->head.times(row));
  }
  return logits;
}

}  // namespace ferry::runner
