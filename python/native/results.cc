#include "native/results.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <vector>

namespace nb = nanobind;

namespace ferry::python {
namespace {

nb::list files_of(const std::vector<FileSize>& files) {
  nb::list out;
  for (const FileSize& file : files) {
    nb::dict item;
    item["path"] = file.name;
    item["bytes"] = file.bytes;
    out.append(item);
  }
  return out;
}

nb::list entries_of(const std::vector<MappedKey>& keys) {
  nb::list out;
  for (const MappedKey& key : keys) {
    nb::dict item;
    item["source"] = key.source;
    item["targets"] = key.targets;
    item["rule"] = key.rule;
    item["reason"] = key.reason;
    out.append(item);
  }
  return out;
}

nb::dict to_dict(const TensorInfo& tensor) {
  nb::dict out;
  out["name"] = tensor.name;
  out["dtype"] = tensor.dtype;
  out["shape"] = tensor.shape;
  out["file"] = tensor.file;
  out["stored"] = tensor.stored;
  out["stored_bytes"] = tensor.stored_bytes;
  return out;
}

// `kind` is the name of the member with the type.
nb::list values_of(const std::vector<ValueInfo>& values, const char* kind) {
  nb::list out;
  for (const ValueInfo& value : values) {
    nb::dict item;
    item["name"] = value.name;
    item[kind] = value.kind;
    item["shape"] = value.shape;
    item["bytes"] = value.bytes;
    out.append(item);
  }
  return out;
}

nb::dict to_dict(const MethodInfo& method) {
  nb::dict operators, out;
  for (const auto& [name, count] : method.operators) operators[name.c_str()] = count;
  out["name"] = method.name;
  out["inputs"] = values_of(method.inputs, "type");
  out["outputs"] = values_of(method.outputs, "type");
  out["buffers"] = values_of(method.buffers, "dtype");
  out["operators"] = operators;
  out["delegates"] = method.delegates;
  out["planned_bytes"] = method.planned_bytes;
  return out;
}

// The names of `error.code` in docs/schemas/envelope.json.
std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kBadInput:
      return "bad_input";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kExists:
      return "exists";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kInterrupted:
      return "interrupted";
  }
  return "internal";
}

std::string_view name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kEndToken:
      return "eos";
    case StopReason::kMaxNewTokens:
      return "max_new";
    case StopReason::kStopText:
      return "stop_text";
    case StopReason::kContextFull:
      return "context";
    case StopReason::kCallback:
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "interrupted";
}

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kProved:
      return "parity";
    case Verdict::kNotProved:
      return "not proved";
    case Verdict::kNoParity:
      return "no parity";
  }
  return "no parity";
}

nb::dict to_dict(const ErrorMetrics& errors) {
  nb::dict out;
  out["max_abs"] = errors.max_abs;
  out["mean_abs"] = errors.mean_abs;
  out["rel_rms"] = errors.relative_rms;
  out["cosine"] = errors.cosine;
  out["sqnr_db"] = errors.sqnr_db;
  return out;
}

nb::dict metrics_of(const Verification& verification) {
  nb::dict out = to_dict(verification.errors);
  out["kl_mean"] = verification.kl_mean;
  out["kl_max"] = verification.kl_max;
  out["top1_agreement"] = verification.top1_agreement;
  out["greedy_match"] = verification.greedy_match;
  out["greedy_total"] = verification.greedy_total;
  return out;
}

nb::list layers_of(const std::vector<TensorComparison>& tensors) {
  nb::list out;
  for (const TensorComparison& tensor : tensors) {
    nb::dict item = to_dict(tensor.errors);
    item["name"] = tensor.name;
    item["within"] = tensor.within_bounds;
    out.append(item);
  }
  return out;
}

nb::list cases_of(const std::vector<PromptComparison>& prompts) {
  nb::list out;
  for (const PromptComparison& prompt : prompts) {
    nb::dict item;
    item["prompt"] = prompt.prompt;
    item["tokens"] = prompt.tokens;
    item["skipped"] = prompt.skipped;
    item["greedy_match"] = prompt.greedy_match;
    item["greedy_total"] = prompt.greedy_total;
    item["parity"] = prompt.parity;
    out.append(item);
  }
  return out;
}

nb::dict signer_of(const std::string& key_sha256, const std::string& subject) {
  nb::dict out;
  out["key_sha256"] = key_sha256;
  out["subject"] = subject;
  return out;
}

nb::dict to_dict(const CheckpointComparison& checkpoint) {
  nb::dict out;
  out["compared"] = checkpoint.tensors;
  out["bytes"] = checkpoint.bytes;
  out["different"] = checkpoint.different_weights;
  return out;
}

}  // namespace

nb::dict to_dict(const PlanSummary& summary) {
  nb::dict memory, out;
  memory["activation_bytes"] = summary.activation_bytes;
  memory["state_bytes"] = summary.state_bytes;
  out["model_type"] = summary.family;
  out["files"] = files_of(summary.files);
  out["bytes"] = summary.total_bytes;
  out["memory"] = memory;
  out["entries"] = entries_of(summary.keys);
  out["notes"] = summary.notes;
  return out;
}

nb::dict to_dict(const BundleInfo& info) {
  nb::list components;
  for (const BundleComponent& component : info.components) {
    nb::dict item;
    item["role"] = component.role;
    item["weight_dtype"] = component.weight_dtype;
    item["quantization"] = component.quantization;
    item["programs"] = component.programs;
    components.append(item);
  }
  nb::dict out;
  out["path"] = info.path;
  out["model_type"] = info.model_type;
  out["program_kind"] = info.program_kind;
  out["tool_version"] = info.tool_version;
  out["vocab_size"] = info.vocab_size;
  out["hidden_size"] = info.hidden_size;
  out["num_layers"] = info.num_layers;
  out["context_length"] = info.context_length;
  out["prefill_length"] = info.prefill_length;
  out["bos_token"] = info.bos_token;
  out["end_tokens"] = info.end_tokens;
  out["components"] = components;
  out["files"] = files_of(info.files);
  out["has_reference"] = info.has_reference;
  out["adapters"] = info.adapters;
  out["adapter"] = info.adapter;
  return out;
}

nb::dict to_dict(const Inspection& inspection) {
  nb::list tensors, programs;
  for (const TensorInfo& tensor : inspection.tensors) tensors.append(to_dict(tensor));
  for (const ProgramInfo& program : inspection.programs) {
    nb::list methods;
    for (const MethodInfo& method : program.methods) methods.append(to_dict(method));
    nb::dict item;
    item["file"] = program.file;
    item["methods"] = methods;
    programs.append(item);
  }
  nb::dict out;
  out["kind"] = inspection.kind;
  out["path"] = inspection.path;
  out["model_type"] = inspection.model_type;
  out["files"] = files_of(inspection.files);
  out["tensors"] = tensors;
  out["programs"] = programs;
  return out;
}

nb::dict to_dict(const CheckResult& result) {
  nb::list problems;
  for (const CheckProblem& problem : result.problems) {
    nb::dict item;
    item["path"] = problem.file;
    item["code"] = name_of(problem.code);
    item["message"] = problem.message;
    problems.append(item);
  }
  nb::dict out;
  out["kind"] = result.kind;
  out["files"] = result.files;
  out["bytes"] = result.bytes;
  out["tensors"] = result.tensors;
  out["problems"] = problems;
  return out;
}

nb::dict to_dict(const AdapterInfo& adapter) {
  nb::dict out;
  out["name"] = adapter.name;
  out["path"] = adapter.file;
  out["bytes"] = adapter.bytes;
  out["sha256"] = adapter.sha256;
  return out;
}

nb::dict to_dict(const AdapterList& list) {
  nb::list factors, adapters;
  for (const AdapterSlot& slot : list.factors) {
    nb::dict item;
    item["weight"] = slot.weight;
    item["embedding"] = slot.embedding;
    item["rank"] = slot.rank;
    factors.append(item);
  }
  for (const AdapterInfo& adapter : list.adapters) adapters.append(to_dict(adapter));
  nb::dict out;
  out["dtype"] = list.dtype;
  out["factors"] = factors;
  out["adapters"] = adapters;
  return out;
}

nb::dict to_dict(const Signature& signature) {
  nb::dict out;
  out["signature"] = signature.file;
  out["signer"] = signer_of(signature.key_sha256, signature.subject);
  out["sha256"] = signature.root_sha256;
  out["files"] = signature.files;
  out["bytes"] = signature.bytes;
  out["ignored"] = signature.ignored;
  return out;
}

nb::dict to_dict(const SignatureCheck& check) {
  nb::dict out;
  out["ok"] = check.verified;
  out["stage"] = check.stage;
  out["message"] = check.message;
  out["differences"] = check.differences;
  out["signer"] = nb::none();
  if (!check.key_sha256.empty()) out["signer"] = signer_of(check.key_sha256, check.subject);
  out["files"] = check.hashed_files;
  out["bytes"] = check.hashed_bytes;
  return out;
}

nb::dict to_dict(const Generation& generation) {
  nb::dict out;
  out["tokens"] = generation.tokens;
  out["text"] = generation.text;
  out["stop"] = name_of(generation.stop);
  out["prompt_tokens"] = generation.prompt_tokens;
  out["reused_tokens"] = generation.reused_tokens;
  return out;
}

nb::dict to_dict(const Transcription& transcription) {
  nb::list segments;
  for (const Segment& segment : transcription.segments) {
    nb::dict item;
    item["start"] = segment.start;
    item["end"] = segment.end;
    item["text"] = segment.text;
    item["tokens"] = segment.tokens;
    segments.append(item);
  }
  nb::dict out;
  out["text"] = transcription.text;
  out["segments"] = segments;
  out["tokens"] = transcription.tokens;
  out["forced_tokens"] = transcription.forced_tokens;
  out["forced"] = transcription.forced;
  out["timestamps"] = transcription.timestamps;
  out["duration"] = transcription.duration;
  out["windows"] = transcription.windows;
  out["encode_seconds"] = transcription.encode_seconds;
  out["decode_seconds"] = transcription.decode_seconds;
  return out;
}

nb::dict to_dict(const Verification& verification) {
  nb::dict out;
  out["verdict"] = name_of(verification.verdict);
  out["parity"] = verification.proved();
  out["output"] = verification.output;
  out["metrics"] = metrics_of(verification);
  out["first_divergence"] = verification.first_divergence;
  out["layers"] = layers_of(verification.tensors);
  out["cases"] = cases_of(verification.prompts);
  out["tensors"] = out["programs_equal"] = nb::none();
  if (verification.checkpoint) {
    out["tensors"] = to_dict(*verification.checkpoint);
    out["programs_equal"] = verification.checkpoint->programs_equal;
  }
  return out;
}

}  // namespace ferry::python
