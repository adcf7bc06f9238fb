#include "proof/checkpoint_execution.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "core/program_interface.h"
#include "core/tensor_source.h"
#include "core/text.h"
#include "proof/bundle_noise.h"
#include "proof/image_inputs.h"
#include "runner/expert_routes.h"
#include "runner/method.h"

namespace ferry::proof {
namespace {

// One execution of every part, for tokens from `position` on.
struct Call {
  std::vector<int64_t> tokens;
  int64_t position = 0;
  bool ends_prompt = false;
};

// Returns the calls of one prompt. If a sequence grows beyond the length at which RoPE factors are
// switched, the reference computes all of it again, and so does this function.
std::vector<Call> calls_of(const RecordedPrompt& prompt, std::optional<int64_t> rope_switch) {
  const std::vector<int64_t> all = prompt.executed();
  const auto length = static_cast<int64_t>(all.size());
  const auto prompt_end = static_cast<int64_t>(prompt.tokens.size());
  const auto slice = [&](int64_t begin, int64_t end) {
    return std::vector<int64_t>(all.begin() + begin, all.begin() + end);
  };
  std::vector<Call> calls = {{prompt.tokens, 0, true}};
  int64_t next = prompt_end;
  if (rope_switch && prompt_end <= *rope_switch && length > *rope_switch) {
    if (next < *rope_switch) calls.push_back({slice(next, *rope_switch), next, false});
    calls.push_back({all, 0, false});
  } else if (next < length) {
    calls.push_back({slice(next, length), next, false});
  }
  return calls;
}

// Returns calls that split the prompt: one that begins the sequence, one that continues it by
// several tokens, one for the last token, and the continuation. No image is cut. If RoPE factors
// depend on the length, the calls are those of the reference.
std::vector<Call> several_calls_of(const RecordedPrompt& prompt,
                                   std::optional<int64_t> rope_switch) {
  const std::vector<int64_t> all = prompt.executed();
  const auto length = static_cast<int64_t>(all.size());
  if (rope_switch && length > *rope_switch) return calls_of(prompt, rope_switch);
  const auto end = static_cast<int64_t>(prompt.tokens.size());
  std::vector<Call> calls;
  int64_t begin = 0;
  for (int64_t next : {end / 2, end - 1, end, length}) {
    for (const PromptImages* images : prompt.images.kinds()) {
      for (const PromptImages::Run& run : images->runs) {
        if (run.first < next && next < run.first + run.count) next = run.first;
      }
    }
    if (next < prompt.images.two_way_tokens) continue;
    if (next <= begin) continue;
    calls.push_back({{all.begin() + begin, all.begin() + next}, begin, next == end});
    begin = next;
  }
  return calls;
}

// The state of a prompt between the parts.
struct Run {
  std::vector<Call> calls;
  std::vector<PassedTensors> passed;  // one element per call
  PromptRecorder recorder;
};

// The outputs of the vision tower for the tiles of one prompt, in order.
struct Tower {
  std::map<std::string, std::pair<Shape, std::vector<float>>> tensors;

  void keep(const std::string& name, const runner::TensorView& view) {
    const std::vector<float> values = runner::probe_floats(view);
    auto& [shape, all] = tensors[name];
    shape = view.shape;
    all.insert(all.end(), values.begin(), values.end());
  }
};

uint64_t f32_weight_bytes(const graph::Model& model) {
  uint64_t bytes = 0;
  for (const graph::Weight& weight : model.weights.weights()) {
    bytes += weight.recipe.output().bytes();
  }
  return bytes;
}
uint64_t f32_weight_bytes(const plan::Conversion& conversion) {
  uint64_t bytes = 0;
  for (const plan::ConvertedComponent& component : conversion.components) {
    for (const graph::Model& model : component.parts) bytes += f32_weight_bytes(model);
  }
  return bytes;
}

// Whether the text decoder attends to the output of this component.
bool is_attended(std::string_view role) {
  return role == kAudioEncoderRole || role == kSourceEncoderRole;
}

class F32Path {
 public:
  F32Path(const plan::Conversion& conversion, const std::vector<RecordedPrompt>& prompts,
          const std::string& name, ThreadPool& pool, const ExecutionOptions& options)
      : conversion_(conversion),
        name_(name),
        pool_(pool),
        in_several_calls_(options.in_several_calls && !conversion.mapped.config.is_encoder),
        method_{.f64 = options.f64, .disturb = options.disturb},
        weights_(options.weights ? options.weights : weights_from(*conversion.mapped.source)),
        progress_(options.progress, f32_weight_bytes(conversion)),
        prompts_(prompts) {
    for (const ReferenceTensor& tensor : reference_tensors(conversion.mapped.config.num_layers)) {
      if (!tensor.is_probe()) caches_.emplace(tensor.source, tensor);
    }
    for (RecordedPrompt& prompt : prompts_) {
      if (!options.follow_routes) prompt.routes.clear();  // the routers choose the experts
      for (PromptImages* images : prompt.images.kinds()) {
        fit_images(conversion.plan->manifest(), *images);
      }
      const std::optional<int64_t> rope_switch = conversion.plan->manifest().rope_switch;
      add_run(prompt, calls_of(prompt, rope_switch));
      if (in_several_calls_) add_run(prompt, several_calls_of(prompt, rope_switch));
    }
  }

  Result<ExecutionOutputs> run() {
    for (const plan::ConvertedComponent& component : conversion_.components) {
      for (const graph::Model& model : component.parts) {
        const auto part = FERRY_TRY(LoadedPart::load(model, weights_, pool_, name_, method_));
        const RowEncoder* rows = packer::row_encoder(conversion_.plan->manifest(), component.role);
        FERRY_RETURN_IF_ERROR(rows != nullptr               ? encode_images(*part, *rows)
                              : is_attended(component.role) ? encode_inputs(*part)
                                                            : run_part(*part));
        progress_.advance(f32_weight_bytes(model));
      }
      if (component.role == kTokenEmbeddingRole) FERRY_RETURN_IF_ERROR(merge_images());
    }
    auto one_call = std::make_unique<MemorySource>(name_);
    auto several_calls = in_several_calls_ ? std::make_unique<MemorySource>(name_) : nullptr;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const bool several = in_several_calls_ && i % 2 == 1;
      runs_[i].recorder.write(several ? *several_calls : *one_call);
    }
    return ExecutionOutputs{std::move(one_call), std::move(several_calls)};
  }

 private:
  // Adds a run. A prompt has one run with one call, and may have another with several calls.
  void add_run(const RecordedPrompt& prompt, std::vector<Call> calls) {
    Run& run = runs_.emplace_back(
        Run{std::move(calls), {}, PromptRecorder(prompt, conversion_.mapped.config.vocab_size)});
    run.passed.resize(run.calls.size());
    if (prompt.types.empty()) return;
    const auto types = std::as_bytes(std::span(prompt.types));
    run.passed.front()[std::string(kTokenTypesPort)] = {
        DType::kI64, {1, std::ssize(prompt.types)}, {types.begin(), types.end()}};
  }

  // Computes the features of every prompt that has pixels or frames for this encoder, and the
  // intermediate tensors of the encoder.
  Status encode_images(LoadedPart& part, const RowEncoder& encoder) {
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const auto kinds = prompts_[i].images.kinds();
      const auto own = std::ranges::find_if(kinds, [&](const PromptImages* kind) {
        return !kind->pixels.empty() && kind->encoder->role == encoder.role;
      });
      if (own == kinds.end()) continue;
      PromptImages& images = **own;
      Tower tower;
      for (const graph::LoweredProbe& probe : part.lowered().probes) {
        FERRY_RETURN_IF_ERROR(part.method().observe(
            probe.value,
            [&tower, &probe](const runner::TensorView& view) { tower.keep(probe.name, view); }));
      }
      images.features =
          FERRY_TRY(proof::encode_images(part, images, [&tower] { tower.tensors.clear(); }));
      for (auto& [name, tensor] : tower.tensors) {
        tensor.first = join_tower(images, name, tensor.first, tensor.second);
        runs_[in_several_calls_ ? 2 * i : i].recorder.keep_tensor(name, tensor.first,
                                                                  std::move(tensor.second));
      }
    }
    return {};
  }

  // Computes the keys and values of cross-attention for every call of every prompt, and the
  // intermediate tensors of the encoder.
  Status encode_inputs(LoadedPart& part) {
    const auto& audio = conversion_.mapped.config.audio;
    if (audio && audio->conformer) return encode_labels(part);
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const size_t runs = in_several_calls_ ? 2 : 1;
      PromptRecorder& recorder = runs_[runs * i].recorder;
      for (const graph::LoweredProbe& probe : part.lowered().probes) {
        FERRY_RETURN_IF_ERROR(
            part.method().observe(probe.value, [&recorder, &probe](const runner::TensorView& view) {
              recorder.keep_tensor(probe.name, view.shape, runner::probe_floats(view));
            }));
      }
      PassedTensors passed;
      const EncoderInput& input = prompts_[i].encoder_input;
      const std::string port = input.port();
      const auto bytes = input.bytes();
      passed[port] = {input.dtype(), input.shape, {bytes.begin(), bytes.end()}};
      FERRY_RETURN_IF_ERROR(part.run({}, 0, passed));
      passed.erase(port);
      for (size_t run = runs * i; run < runs * (i + 1); ++run) {
        for (PassedTensors& call : runs_[run].passed) call.insert(passed.begin(), passed.end());
      }
    }
    return {};
  }

  // Computes a part of an encoder that gives the outputs of labels, for the sound of every prompt.
  Status encode_labels(LoadedPart& part) {
    for (size_t i = 0; i < prompts_.size(); ++i) {
      run_ = &runs_[i];
      PromptRecorder& recorder = run_->recorder;
      for (const graph::LoweredProbe& probe : part.lowered().probes) {
        FERRY_RETURN_IF_ERROR(
            part.method().observe(probe.value, [&recorder, &probe](const runner::TensorView& view) {
              recorder.keep_tensor(probe.name, view.shape, runner::probe_floats(view));
            }));
      }
      PassedTensors& passed = run_->passed.front();
      const EncoderInput& input = prompts_[i].encoder_input;
      const auto bytes = input.bytes();
      passed[input.port()] = {input.dtype(), input.shape, {bytes.begin(), bytes.end()}};
      FERRY_RETURN_IF_ERROR(part.run({}, 0, passed));
      keep_output(std::string(kTokenLogitsPort), passed);
    }
    return {};
  }

  // Replaces the embeddings of the images' positions, which layer 0 takes, by the features.
  Status merge_images() {
    for (size_t r = 0; r < runs_.size(); ++r) {
      Run& run = runs_[r];
      const PromptImages& images = prompts_[in_several_calls_ ? r / 2 : r].images;
      for (size_t i = 0; i < run.calls.size(); ++i) {
        const Call& call = run.calls[i];
        const auto count = std::ssize(call.tokens);
        FERRY_RETURN_IF_ERROR(
            merge_image_rows(images, images.rows(), call.position, count, run.passed[i]));
        const Passed& merged = run.passed[i].at(std::string(kEmbeddingsPort));
        // A decoder that makes what its first layer takes of its rows has a probe for that.
        const converters::ModelConfig& config = conversion_.mapped.config;
        if (config.scalars.multiplies_rows() || merged.shape.back() != config.hidden_size) continue;
        run.recorder.keep_probe(runner::kEmbeddingsProbe, call.position, count,
                                runner::probe_floats({merged.dtype, merged.shape, merged.bytes}));
      }
    }
    return {};
  }

  Status run_part(LoadedPart& part) {
    std::vector<runner::MethodProbe> probes;
    for (const graph::LoweredProbe& probe : part.lowered().probes) {
      probes.push_back({&part.method(), probe.name, probe.value});
    }
    runner::ExpertRouter router(probes);
    for (const graph::LoweredProbe& probe : part.lowered().probes) {
      FERRY_RETURN_IF_ERROR(part.method().observe(
          probe.value, [this, &probe, &router](const runner::TensorView& view) {
            keep_probe(probe.name, view);
            router.see(probe.name, view, call_->position);
          }));
    }
    for (size_t r = 0; r < runs_.size(); ++r) {
      Run& run = runs_[r];
      const runner::ExpertRoutes routes = routes_of_part(router, r);
      FERRY_RETURN_IF_ERROR(router.force(&routes));
      for (size_t i = 0; i < run.calls.size(); ++i) {
        run_ = &run;
        call_ = &run.calls[i];
        FERRY_RETURN_IF_ERROR(run_call(part, run.passed[i]));
        FERRY_RETURN_IF_ERROR(router.take_error());
        if (call_->ends_prompt) FERRY_RETURN_IF_ERROR(keep_caches(part));
      }
    }
    return {};
  }

  // Returns the routes of run `r` for the layers in the part.
  runner::ExpertRoutes routes_of_part(const runner::ExpertRouter& router, size_t r) const {
    runner::ExpertRoutes routes = prompts_[in_several_calls_ ? r / 2 : r].routes;
    std::erase_if(routes,
                  [&](const auto& route) { return router.experts_of(route.first).first == 0; });
    return routes;
  }

  Status run_call(LoadedPart& part, PassedTensors& passed) {
    FERRY_RETURN_IF_ERROR(part.run(call_->tokens, call_->position, passed));
    for (const std::string_view name : {kLogitsPort, kLastHiddenStatePort, kSentenceEmbeddingPort,
                                        kClassLogitsPort, kTokenLogitsPort}) {
      keep_output(std::string(name), passed);
    }
    return {};
  }

  // Stores an output of the last part.
  void keep_output(const std::string& name, PassedTensors& passed) {
    const auto found = passed.find(name);
    if (found == passed.end()) return;
    const Passed& output = found->second;
    std::vector<float> values = runner::probe_floats({output.dtype, output.shape, output.bytes});
    if (name == kLogitsPort) {
      run_->recorder.keep_logits(call_->position, values);
    } else {
      run_->recorder.keep_tensor(name, output.shape, std::move(values));
    }
    passed.erase(found);
  }

  void keep_probe(const std::string& name, const runner::TensorView& view) {
    const std::vector<float> values = runner::probe_floats(view);
    run_->recorder.keep_probe(name, call_->position, static_cast<int64_t>(call_->tokens.size()),
                              values);
  }

  Status keep_caches(LoadedPart& part) {
    for (const graph::LoweredBuffer& buffer : part.lowered().buffers) {
      const auto found = caches_.find(buffer.name);
      if (found == caches_.end()) continue;
      run_->recorder.keep_cache(found->second, FERRY_TRY(part.method().value(buffer.value)));
    }
    return {};
  }

  const plan::Conversion& conversion_;
  const std::string& name_;
  ThreadPool& pool_;
  const bool in_several_calls_;
  const runner::MethodOptions method_;
  const ReadWeight weights_;
  SharedProgress progress_;
  std::vector<RecordedPrompt> prompts_;            // with the features that were computed here
  std::map<std::string, ReferenceTensor> caches_;  // by name of the buffer
  std::vector<Run> runs_;
  // The run whose call is executed now.
  Run* run_ = nullptr;
  const Call* call_ = nullptr;
};

Passed passed_ends(const std::vector<int64_t>& ends, int64_t count) {
  const auto bytes = std::as_bytes(std::span(ends));
  return {DType::kI64, {1, count}, {bytes.begin(), bytes.end()}};
}

}  // namespace

Passed attention_end(const PromptImages& images, int64_t position, int64_t count) {
  std::vector<int64_t> ends(static_cast<size_t>(count));
  std::iota(ends.begin(), ends.end(), position + 1);
  for (int64_t at = position; at < std::min(images.two_way_tokens, position + count); ++at) {
    ends[static_cast<size_t>(at - position)] = images.two_way_tokens;
  }
  if (images.two_way_tokens > 0 || images.are_sounds()) return passed_ends(ends, count);
  // From the back, so that rows without a token between them are one image.
  int64_t first = -1, end = 0;
  for (size_t i = images.runs.size(); i-- > 0;) {
    const PromptImages::Run& run = images.runs[i];
    if (run.first + run.count != first) end = run.first + run.count;
    first = run.first;
    for (int64_t at = std::max(first, position); at < std::min(first + run.count, position + count);
         ++at) {
      ends[static_cast<size_t>(at - position)] = end;
    }
  }
  return passed_ends(ends, count);
}

Result<ExecutionOutputs> execute_checkpoint(const plan::Conversion& conversion,
                                            const std::vector<RecordedPrompt>& prompts,
                                            const std::string& name, ThreadPool& pool,
                                            const ExecutionOptions& options) {
  return F32Path(conversion, prompts, name, pool, options).run();
}

Result<ExecutionNoise> measure_noise(const plan::Conversion& conversion,
                                     std::vector<RecordedPrompt> prompts, const Reference& in_f32,
                                     const ReadWeight& weights, ThreadPool& pool,
                                     const Progress& progress) {
  FERRY_RETURN_IF_ERROR(follow_routes(in_f32, conversion.mapped.config.num_layers, prompts));
  ExecutionOptions options = {.in_several_calls = false, .follow_routes = true, .weights = weights};
  options.disturb = 1;
  const ExecutionOutputs disturbed =
      FERRY_TRY(execute_checkpoint(conversion, prompts, in_f32.path(), pool, options));
  options.disturb.reset();
  options.f64 = true;
  options.progress = progress;
  ExecutionOutputs exact = FERRY_TRY(
      execute_checkpoint(conversion, prompts, in_f32.path() + ", again in f64", pool, options));
  const Reference base = FERRY_TRY(Reference::open(*exact.one_call));
  const Reference draw = FERRY_TRY(Reference::open(*disturbed.one_call));
  const Reference* const draws[] = {&in_f32, &draw};
  auto noise = std::make_shared<NoiseModel>();
  FERRY_RETURN_IF_ERROR(noise->add(base, draws));
  return ExecutionNoise{std::move(exact.one_call), std::move(noise)};
}

}  // namespace ferry::proof
