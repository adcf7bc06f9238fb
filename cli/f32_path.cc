#include "cli/f32_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "graph/lower.h"
#include "runner/memory_source.h"
#include "runner/method.h"
#include "runner/parity.h"
#include "runner/reference_names.h"

namespace ferry::cli {
namespace {

constexpr uint64_t kTile = uint64_t{1} << 20;

using Bytes = std::vector<std::byte>;

// One execution of every part: tokens from `position` on, of which the first `known` are of no
// interest because an earlier call had them.
struct Call {
  std::vector<int64_t> tokens;
  int64_t position = 0;
  int64_t known = 0;
  bool ends_prompt = false;
};

// A tensor that a call hands from part to part.
struct Passed {
  DType dtype = DType::kF32;
  Shape shape;
  Bytes bytes;
};

std::vector<float> floats_of(const TensorView& view) {
  std::vector<float> values(view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), view.bytes.data(), values.size() * sizeof(float));
  return values;
}

// The calls of one prompt. Where a sequence grows beyond the length that RoPE factors are switched
// at, the reference computes all of it again, and so does this.
std::vector<Call> calls_of(const PathPrompt& prompt, std::optional<int64_t> rope_switch) {
  std::vector<int64_t> all = prompt.tokens;
  if (!prompt.continuation.empty()) {
    all.insert(all.end(), prompt.continuation.begin(), prompt.continuation.end() - 1);
  }
  const auto length = static_cast<int64_t>(all.size());
  const auto prompt_end = static_cast<int64_t>(prompt.tokens.size());
  std::vector<Call> calls = {{prompt.tokens, 0, 0, true}};
  const auto slice = [&](int64_t begin, int64_t end) {
    return std::vector<int64_t>(all.begin() + begin, all.begin() + end);
  };
  int64_t next = prompt_end;
  if (rope_switch && prompt_end <= *rope_switch && length > *rope_switch) {
    if (next < *rope_switch) calls.push_back({slice(next, *rope_switch), next, 0, false});
    calls.push_back({all, 0, *rope_switch, false});
  } else if (next < length) {
    calls.push_back({slice(next, length), next, 0, false});
  }
  return calls;
}

std::optional<int64_t> rope_switch(const ModelConfig& config) {
  if (config.rope.type != RopeConfig::Type::kLongRope) return std::nullopt;
  return config.rope.original_max_positions;
}

// What one prompt computes, as it comes in.
struct Record {
  const PathPrompt* prompt = nullptr;
  std::vector<Call> calls;
  std::vector<std::map<std::string, Passed>> passed;  // per call
  // Probes by name: rows of the prompt, and of its continuation.
  std::map<std::string, std::vector<float>> in_prompt, after_prompt;
  std::map<std::string, std::pair<Shape, std::vector<float>>> caches;
  std::vector<float> logits, greedy_logits;  // (T, vocab), (G, vocab)
};

// A part of the model with its weights, ready to execute.
class LoadedPart {
 public:
  static Result<std::unique_ptr<LoadedPart>> load(const Model& model, const TensorSource& source,
                                                  ThreadPool& pool, const std::string& name);
  const LoweredProgram& lowered() const { return lowered_; }
  Method& method() { return *method_; }

 private:
  Status fill_weights(const Model& model, const TensorSource& source, ThreadPool& pool);

  LoweredProgram lowered_;
  std::vector<Bytes> literals_;
  std::vector<std::unique_ptr<std::byte[]>> weights_;
  std::vector<ExternalTensor> external_;
  pte::LoadedProgram program_;
  std::optional<Method> method_;
};

Status LoadedPart::fill_weights(const Model& model, const TensorSource& source, ThreadPool& pool) {
  struct Tile {
    const TensorExpr* expr;
    uint64_t offset;
    std::span<std::byte> out;
  };
  std::vector<Tile> tiles;
  for (const pte::Value& value : program_.program.methods.front().values) {
    const auto* tensor = std::get_if<pte::Tensor>(&value);
    if (tensor == nullptr || !tensor->external) continue;
    const TensorExpr& expr = model.weights.find(tensor->fqn)->expr;
    const uint64_t bytes = expr.bytes();
    weights_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    const std::span<std::byte> all(weights_.back().get(), bytes);
    external_.push_back({tensor->fqn, tensor->dtype, tensor->sizes, all});
    for (uint64_t at = 0; at < bytes; at += kTile) {
      tiles.push_back({&expr, at, all.subspan(at, std::min(kTile, bytes - at))});
    }
  }
  std::vector<Status> filled(tiles.size());
  pool.parallel_for(tiles.size(), [&](size_t i) {
    filled[i] = materialize(*tiles[i].expr, source, tiles[i].offset, tiles[i].out);
  });
  for (Status& status : filled) FERRY_CHECK(std::move(status));
  return {};
}

Result<std::unique_ptr<LoadedPart>> LoadedPart::load(const Model& model, const TensorSource& source,
                                                     ThreadPool& pool, const std::string& name) {
  auto part = std::make_unique<LoadedPart>();
  part->lowered_ = FERRY_TRY(lower(model, {}));
  part->program_.program = part->lowered_.program;
  const auto fill = [&](const std::vector<Literal>& literals,
                        std::vector<std::span<const std::byte>>& to) {
    for (const Literal& literal : literals) {
      Bytes& bytes = part->literals_.emplace_back(literal.bytes);
      if (literal.bytes > 0) literal.fill(0, bytes);
      to.push_back(bytes);
    }
  };
  part->literals_.reserve(part->lowered_.constants.size() + part->lowered_.initial.size());
  fill(part->lowered_.constants, part->program_.data.constants);
  fill(part->lowered_.initial, part->program_.data.initial);
  FERRY_CHECK(part->fill_weights(model, source, pool));
  part->method_.emplace(
      FERRY_TRY(Method::load(part->program_, "forward", part->external_, pool, {}, name)));
  return part;
}

class F32Path {
 public:
  F32Path(const Conversion& conversion, const std::vector<PathPrompt>& prompts,
          const std::string& name, ThreadPool& pool)
      : conversion_(conversion), name_(name), pool_(pool) {
    for (const ReferenceTensor& tensor : reference_tensors(conversion.config.num_layers)) {
      if (!tensor.is_probe()) caches_.emplace(tensor.source, tensor);
    }
    for (const PathPrompt& prompt : prompts) {
      Record& record = records_.emplace_back();
      record.prompt = &prompt;
      record.calls = calls_of(prompt, rope_switch(conversion.config));
      record.passed.resize(record.calls.size());
    }
  }

  Result<std::unique_ptr<TensorSource>> run() {
    for (const Model& model : conversion_.parts) {
      const auto part =
          FERRY_TRY(LoadedPart::load(model, *conversion_.source, pool_, name_));
      FERRY_CHECK(run_part(*part));
    }
    auto source = std::make_unique<MemorySource>(name_);
    for (const Record& record : records_) write(record, *source);
    return std::unique_ptr<TensorSource>(std::move(source));
  }

 private:
  Status run_part(LoadedPart& part) {
    for (const LoweredProbe& probe : part.lowered().probes) {
      FERRY_CHECK(part.method().observe(
          probe.value, [this, &probe](const TensorView& view) { keep_probe(probe.name, view); }));
    }
    for (Record& record : records_) {
      for (size_t i = 0; i < record.calls.size(); ++i) {
        record_ = &record;
        call_ = &record.calls[i];
        FERRY_CHECK(run_call(part, record.passed[i]));
        if (call_->ends_prompt) FERRY_CHECK(keep_caches(part));
      }
    }
    return {};
  }

  Status run_call(LoadedPart& part, std::map<std::string, Passed>& passed) {
    const auto tokens = static_cast<int64_t>(call_->tokens.size());
    const std::vector<LoweredPort>& inputs = part.lowered().inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      TensorView view;
      if (inputs[i].name == "tokens") {
        view = {DType::kI64, {1, tokens}, std::as_bytes(std::span(call_->tokens))};
      } else if (inputs[i].name == "input_pos") {
        view = {DType::kI64, {1}, std::as_bytes(std::span(&call_->position, 1))};
      } else {
        const auto found = passed.find(inputs[i].name);
        if (found == passed.end()) {
          return fail(ErrorCode::kInternal,
                      fmt::format("{}: no earlier part has '{}'", name_, inputs[i].name));
        }
        view = {found->second.dtype, found->second.shape, found->second.bytes};
      }
      FERRY_CHECK(part.method().set_input(i, view));
    }
    FERRY_CHECK(part.method().execute());
    const std::vector<LoweredPort>& outputs = part.lowered().outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const TensorView view = part.method().output(i);
      if (outputs[i].name == "logits") {
        keep_logits(view);
      } else {
        passed[outputs[i].name] = {view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()}};
      }
    }
    return {};
  }

  void keep_probe(const std::string& name, const TensorView& view) {
    std::vector<float> values;
    if (view.dtype == DType::kI64) {
      std::vector<int64_t> integers(view.bytes.size() / sizeof(int64_t));
      std::memcpy(integers.data(), view.bytes.data(), view.bytes.size());
      values.assign(integers.begin(), integers.end());
    } else {
      values = floats_of(view);
    }
    const size_t width = values.size() / call_->tokens.size();
    auto& all = (call_->ends_prompt ? record_->in_prompt : record_->after_prompt)[name];
    all.insert(all.end(),
               values.begin() + static_cast<std::ptrdiff_t>(width * static_cast<size_t>(call_->known)),
               values.end());
  }

  void keep_logits(const TensorView& view) {
    const std::vector<float> rows = floats_of(view);
    const auto vocab = static_cast<std::ptrdiff_t>(conversion_.config.vocab_size);
    if (call_->ends_prompt) {
      record_->logits = rows;
      if (!record_->prompt->continuation.empty()) {
        record_->greedy_logits.assign(rows.end() - vocab, rows.end());
      }
    } else {
      record_->greedy_logits.insert(record_->greedy_logits.end(),
                                    rows.begin() + vocab * call_->known, rows.end());
    }
  }

  Status keep_caches(LoadedPart& part) {
    for (const LoweredBuffer& buffer : part.lowered().buffers) {
      const auto found = caches_.find(buffer.name);
      if (found == caches_.end()) continue;
      const TensorView view = FERRY_TRY(part.method().value(buffer.value));
      std::vector<float> values = floats_of(view);
      Shape shape = view.shape;
      if (found->second.is_kv_cache()) values = heads_first(values, shape);
      record_->caches[found->second.name] = {std::move(shape), std::move(values)};
    }
    return {};
  }

  // [1,context,heads,dim] to [1,heads,T,dim]; `shape` follows.
  std::vector<float> heads_first(const std::vector<float>& cache, Shape& shape) const {
    const auto tokens = static_cast<int64_t>(call_->tokens.size());
    const int64_t heads = shape[2];
    const int64_t dim = shape[3];
    std::vector<float> out;
    out.reserve(static_cast<size_t>(heads * tokens * dim));
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t t = 0; t < tokens; ++t) {
        const auto from = cache.begin() + (t * heads + h) * dim;
        out.insert(out.end(), from, from + dim);
      }
    }
    shape = {1, heads, tokens, dim};
    return out;
  }

  void write(const Record& record, MemorySource& out) const {
    const std::string prefix = record.prompt->name.empty() ? "" : record.prompt->name + ".";
    const auto tokens = static_cast<int64_t>(record.prompt->tokens.size());
    const int64_t vocab = conversion_.config.vocab_size;
    out.add(prefix + "input_ids", DType::kI64, {1, tokens}, record.prompt->tokens);
    out.add(prefix + "logits", DType::kF32, {1, tokens, vocab}, record.logits);
    const auto chosen = static_cast<int64_t>(record.greedy_logits.size()) / vocab;
    if (chosen > 0) {
      std::vector<int64_t> ids;
      for (int64_t g = 0; g < chosen; ++g) {
        ids.push_back(static_cast<int64_t>(argmax(
            std::span(record.greedy_logits)
                .subspan(static_cast<size_t>(g * vocab), static_cast<size_t>(vocab)))));
      }
      out.add(prefix + "greedy_ids", DType::kI64, {chosen}, ids);
      out.add(prefix + "greedy_logits", DType::kF32, {chosen, vocab}, record.greedy_logits);
    }
    write_probes(record.in_prompt, prefix, tokens, out);
    write_probes(record.after_prompt, prefix + "greedy_", chosen - 1, out);
    for (const auto& [name, cache] : record.caches) {
      out.add(prefix + name, DType::kF32, cache.first, cache.second);
    }
  }

  // Of the continuation only what routes it is of use.
  static void write_probes(const std::map<std::string, std::vector<float>>& probes,
                           const std::string& prefix, int64_t rows, MemorySource& out) {
    const bool after = prefix.ends_with("greedy_");
    for (const auto& [name, values] : probes) {
      const bool route = name.starts_with("router_experts.");
      if (name.starts_with("router_weights.") || (after && !route)) continue;
      const Shape shape = {1, rows, static_cast<int64_t>(values.size()) / rows};
      if (route) {
        out.add(prefix + name, DType::kI64, shape,
                std::vector<int64_t>(values.begin(), values.end()));
      } else {
        out.add(prefix + name, DType::kF32, shape, values);
      }
    }
  }

  const Conversion& conversion_;
  const std::string& name_;
  ThreadPool& pool_;
  std::map<std::string, ReferenceTensor> caches_;  // by buffer
  std::vector<Record> records_;
  // Of the call that runs now.
  Record* record_ = nullptr;
  const Call* call_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<TensorSource>> run_f32_path(const Conversion& conversion,
                                                   const std::vector<PathPrompt>& prompts,
                                                   const std::string& name, ThreadPool& pool) {
  return F32Path(conversion, prompts, name, pool).run();
}

}  // namespace ferry::cli
