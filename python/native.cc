// The module ferry._native: the public library (include/ferry) for Python. It has the functions and
// handles of the library, takes options as keywords, and returns plain dictionaries. The package
// beside it (ferry/*.py) gives them types and documents.
#include <ferry/ferry.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: "name"_a is how nanobind names arguments

namespace ferry::python {
namespace {

// Raises ferry.Error, or its subclass for the code.
[[noreturn]] void raise(const Error& error) {
  const nb::object make = nb::module_::import_("ferry._errors").attr("make_error");
  const nb::object raised =
      make(static_cast<int>(error.code), error.message, error.details, error.field, error.place);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
  throw nb::python_error();
}

// Calls into Python from threads of the library. The first exception of a callback stops the work,
// and rethrow() raises it again in the thread that called the library.
class Callback {
 public:
  explicit Callback(nb::object function) : function_(std::move(function)) {}

  OnProgress progress() {
    if (function_.is_none()) return {};
    return [this](std::string_view what, uint64_t done, uint64_t total) {
      return call([&] { function_(what, done, total); });
    };
  }
  OnToken token() {
    if (function_.is_none()) return {};
    return [this](int64_t token, std::string_view text) {
      bool goes_on = true;
      return call([&] { goes_on = nb::cast<bool>(function_(token, text)); }) && goes_on;
    };
  }
  void rethrow() {
    if (raised_) throw nb::python_error(std::move(*raised_));
  }

 private:
  template <class F>
  bool call(const F& function) {
    const nb::gil_scoped_acquire gil;
    if (raised_) return false;
    try {
      function();
      return true;
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
      return false;
    }
  }

  nb::object function_;
  std::optional<nb::python_error> raised_;
};

// Runs a call of the library without the lock of the interpreter, and unwraps its result.
template <class F>
auto run(const F& call) {
  auto result = [&] {
    const nb::gil_scoped_release unlocked;
    return call();
  }();
  if (!result) raise(result.error());
  if constexpr (!std::is_same_v<decltype(result), Status>) return *std::move(result);
}
template <class F>
auto run(Callback& callback, const F& call) {
  auto result = [&] {
    const nb::gil_scoped_release unlocked;
    return call();
  }();
  callback.rethrow();
  if (!result) raise(result.error());
  if constexpr (!std::is_same_v<decltype(result), Status>) return *std::move(result);
}

// Options as a dictionary. None counts as absent. done() raises TypeError for names that nothing
// has read.
class Options {
 public:
  explicit Options(const nb::dict& options) : left_(nb::borrow<nb::dict>(options.attr("copy")())) {}

  template <class T>
  Options& read(const char* name, T& field) {
    if (const nb::object value = left_.attr("pop")(name, nb::none()); !value.is_none()) {
      try {
        field = nb::cast<T>(value);
      } catch (const std::bad_cast&) {
        throw nb::type_error((std::string(name) + ": a value of another type").c_str());
      }
    }
    return *this;
  }
  template <class T, size_t N>
  Options& read(const char* name, T& field,
                const std::array<std::pair<std::string_view, T>, N>& words) {
    std::string word;
    if (read(name, word); word.empty()) return *this;
    const auto found = std::ranges::find(words, word, &std::pair<std::string_view, T>::first);
    if (found == words.end()) {
      std::string known;
      for (const auto& [text, value] : words)
        known += (known.empty() ? "" : ", ") + std::string(text);
      raise({ErrorCode::kUsage,
             std::string(name) + ": '" + word + "' is none of " + known,
             {},
             name});
    }
    field = found->second;
    return *this;
  }
  void done() const {
    if (left_.size() == 0) return;
    throw nb::type_error(("unexpected option: " + nb::cast<std::string>(left_.keys()[0])).c_str());
  }

 private:
  nb::dict left_;
};

constexpr std::array<std::pair<std::string_view, OutputFormat>, 6> kFormats = {
    {{"bundle", OutputFormat::kBundle},
     {"safetensors", OutputFormat::kSafetensors},
     {"hf", OutputFormat::kHuggingFace},
     {"pth", OutputFormat::kPyTorch},
     {"bpte", OutputFormat::kBundledProgram},
     {"gguf", OutputFormat::kGguf}}};
constexpr std::array<std::pair<std::string_view, WeightType>, 4> kWeightTypes = {
    {{"keep", WeightType::kKeep},
     {"f32", WeightType::kF32},
     {"f16", WeightType::kF16},
     {"bf16", WeightType::kBF16}}};
constexpr std::array<std::pair<std::string_view, ValueType>, 6> kValueTypes = {
    {{"f32", ValueType::kF32},
     {"f16", ValueType::kF16},
     {"bf16", ValueType::kBF16},
     {"u16", ValueType::kU16},
     {"u8", ValueType::kU8},
     {"i8", ValueType::kI8}}};
constexpr std::array<std::pair<std::string_view, ProgramKind>, 4> kProgramKinds = {
    {{"auto", ProgramKind::kAuto},
     {"stateful", ProgramKind::kStateful},
     {"static", ProgramKind::kStatic},
     {"encoder", ProgramKind::kEncoder}}};
constexpr std::array<std::pair<std::string_view, DecodeMode>, 4> kModes = {
    {{"default", DecodeMode::kDefault},
     {"kv", DecodeMode::kKv},
     {"hybrid", DecodeMode::kHybrid},
     {"lookahead", DecodeMode::kLookahead}}};
constexpr std::array<std::pair<std::string_view, LinearScheme>, 4> kSchemes = {
    {{"none", LinearScheme::kNone},
     {"8da4w", LinearScheme::k8da4w},
     {"8da8w", LinearScheme::k8da8w},
     {"int8", LinearScheme::kInt8}}};

// Parses "8da4w", "8da4w-g64" and the like.
LinearQuantization quantization_of(const std::string& text, const char* field) {
  LinearQuantization linear;
  const size_t dash = text.find("-g");
  const auto found = std::ranges::find(kSchemes, text.substr(0, dash),
                                       &std::pair<std::string_view, LinearScheme>::first);
  bool good = found != kSchemes.end();
  if (good) linear.scheme = found->second;
  if (good && dash != std::string::npos) {
    const std::string digits = text.substr(dash + 2);
    good = !digits.empty() && digits.size() < 7 &&
           std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
    if (good) linear.group = std::stoll(digits);
  }
  if (!good) {
    raise({ErrorCode::kUsage,
           std::string(field) + ": '" + text + "' is none of none, 8da4w, 8da4w-gN, 8da8w, int8",
           {},
           field});
  }
  return linear;
}

ConvertOptions convert_options(const nb::dict& given) {
  ConvertOptions o;
  Options options(given);
  std::string quantize = "none";
  std::vector<std::pair<std::string, std::string>> rules;
  nb::list rule_list;
  options.read("source", o.source).read("config", o.config).read("lora", o.lora);
  options.read("format", o.format, kFormats).read("gguf_type", o.gguf_type);
  options.read("dtype", o.dtype, kWeightTypes).read("quantize", quantize);
  options.read("quantize_rules", rule_list).read("embedding_bits", o.embedding_bits);
  options.read("embedding_group", o.embedding_group).read("hqq", o.hqq);
  options.read("max_file_bytes", o.max_file_bytes).read("allow_unmapped", o.allow_unmapped);
  options.read("program", o.program, kProgramKinds).read("context_length", o.context_length);
  options.read("prefill_length", o.prefill_length).read("decode_length", o.decode_length);
  options.read("kv_type", o.kv_type, kValueTypes).read("mask_type", o.mask_type, kValueTypes);
  options.read("logits_type", o.logits_type, kValueTypes).read("all_logits", o.all_logits);
  options.read("shards", o.shards).read("reference", o.reference);
  options.done();
  o.quantize = quantization_of(quantize, "quantize");
  for (const nb::handle rule : rule_list) {
    const auto [pattern, scheme] = nb::cast<std::pair<nb::str, nb::str>>(rule);
    o.quantize_rules.push_back(
        {pattern.c_str(), quantization_of(scheme.c_str(), "quantize_rules")});
  }
  return o;
}

nb::list files_of(const std::vector<FileSize>& files) {
  nb::list out;
  for (const FileSize& file : files) out.append(nb::make_tuple(file.name, file.bytes));
  return out;
}

nb::dict to_dict(const PlanSummary& summary) {
  nb::list keys;
  for (const MappedKey& key : summary.keys) {
    keys.append(nb::make_tuple(key.source, key.targets, key.rule, key.reason));
  }
  nb::dict out;
  out["family"] = summary.family;
  out["files"] = files_of(summary.files);
  out["total_bytes"] = summary.total_bytes;
  out["activation_bytes"] = summary.activation_bytes;
  out["state_bytes"] = summary.state_bytes;
  out["keys"] = keys;
  out["notes"] = summary.notes;
  return out;
}

nb::dict to_dict(const BundleInfo& info) {
  nb::list components;
  for (const BundleComponent& part : info.components) {
    components.append(
        nb::make_tuple(part.role, part.weight_dtype, part.quantization, part.programs));
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
  return out;
}

nb::list values_of(const std::vector<ValueInfo>& values) {
  nb::list out;
  for (const ValueInfo& value : values) {
    out.append(nb::make_tuple(value.name, value.kind, value.shape, value.bytes));
  }
  return out;
}

nb::dict to_dict(const Inspection& inspection) {
  nb::list tensors, programs;
  for (const TensorInfo& t : inspection.tensors) {
    tensors.append(nb::make_tuple(t.name, t.dtype, t.shape, t.file, t.stored, t.stored_bytes));
  }
  for (const ProgramInfo& program : inspection.programs) {
    nb::list methods;
    for (const MethodInfo& m : program.methods) {
      methods.append(nb::make_tuple(m.name, values_of(m.inputs), values_of(m.outputs),
                                    values_of(m.buffers), m.operators, m.delegates,
                                    m.planned_bytes));
    }
    programs.append(nb::make_tuple(program.file, methods));
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
    problems.append(nb::make_tuple(static_cast<int>(problem.code), problem.file, problem.message));
  }
  nb::dict out;
  out["files"] = result.files;
  out["bytes"] = result.bytes;
  out["problems"] = problems;
  return out;
}

nb::dict to_dict(const Signature& signature) {
  nb::dict out;
  out["file"] = signature.file;
  out["key_sha256"] = signature.key_sha256;
  out["subject"] = signature.subject;
  out["root_sha256"] = signature.root_sha256;
  out["files"] = signature.files;
  out["bytes"] = signature.bytes;
  out["ignored"] = signature.ignored;
  return out;
}

nb::dict to_dict(const SignatureCheck& check) {
  nb::dict out;
  out["verified"] = check.verified;
  out["stage"] = check.stage;
  out["message"] = check.message;
  out["differences"] = check.differences;
  out["key_sha256"] = check.key_sha256;
  out["subject"] = check.subject;
  out["hashed_files"] = check.hashed_files;
  out["hashed_bytes"] = check.hashed_bytes;
  return out;
}

Prompt prompt_of(const nb::dict& given) {
  Prompt prompt;
  Options options(given);
  options.read("tokens", prompt.tokens).read("text", prompt.text);
  options.read("chat_json", prompt.chat_json).read("images", prompt.images).done();
  return prompt;
}

GenerateOptions generate_options(const nb::dict& given) {
  GenerateOptions o;
  Options options(given);
  SamplingOptions& s = o.sampling;
  options.read("max_new_tokens", o.max_new_tokens).read("stops", o.stops);
  options.read("ignore_end_tokens", o.ignore_end_tokens).read("temperature", s.temperature);
  options.read("top_k", s.top_k).read("top_p", s.top_p).read("min_p", s.min_p);
  options.read("repetition_penalty", s.repetition_penalty).read("seed", s.seed).done();
  return o;
}

std::string_view name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kEndToken:
      return "end_token";
    case StopReason::kMaxNewTokens:
      return "max_new_tokens";
    case StopReason::kStopText:
      return "stop_text";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kCallback:
      return "callback";
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "interrupted";
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

EmbedOptions embed_options(const nb::dict& given) {
  EmbedOptions o;
  std::string prompt;
  Options options(given);
  if (given.contains("prompt") && !given["prompt"].is_none()) o.prompt.emplace();
  options.read("prompt", prompt).read("prompt_name", o.prompt_name);
  options.read("truncate", o.truncate).read("width", o.width).read("normalize", o.normalize).done();
  if (o.prompt) o.prompt = prompt;
  return o;
}

using Array = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

// Returns an array that owns the values.
Array array_of(std::vector<float> values) {
  auto* owned = new std::vector<float>(std::move(values));
  const nb::capsule owner(owned,
                          [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return {owned->data(), {owned->size()}, owner};
}
Array array_of(std::span<const float> values) {
  return array_of(std::vector<float>(values.begin(), values.end()));
}

void define_bundle(nb::module_& m) {
  nb::class_<Engine>(m, "Engine")
      .def(nb::init<size_t>(), "threads"_a = 0)
      .def_prop_ro("threads", &Engine::threads);
  nb::class_<Bundle>(m, "Bundle")
      .def("info", [](const Bundle& b) { return to_dict(b.info()); })
      .def("manifest_json", &Bundle::manifest_json)
      .def("text_file", [](const Bundle& b, const std::string& name) {
        return run([&] { return b.text_file(name); });
      });
  m.def(
      "open",
      [](const std::string& path, const std::string& config, bool check_digests,
         const Engine& engine, nb::object progress) {
        Callback callback(std::move(progress));
        const OpenOptions options = {path, config, check_digests};
        return run(callback, [&] { return Bundle::open(options, engine, callback.progress()); });
      },
      "path"_a, "config"_a, "check_digests"_a, "engine"_a, "progress"_a = nb::none());
  m.def(
      "check_bundle",
      [](const std::string& path, const Engine& engine, nb::object progress) {
        Callback callback(std::move(progress));
        return to_dict(
            run(callback, [&] { return check_bundle(path, engine, callback.progress()); }));
      },
      "path"_a, "engine"_a, "progress"_a = nb::none());
}

void define_convert(nb::module_& m) {
  nb::class_<ConversionPlan>(m, "Plan")
      .def("summary", [](const ConversionPlan& plan) { return to_dict(plan.summary()); })
      .def(
          "write",
          [](const ConversionPlan& plan, const nb::dict& given, const Engine& engine,
             nb::object progress) {
            WriteOptions o;
            Options options(given);
            options.read("path", o.path).read("overwrite", o.overwrite);
            options.read("resume", o.resume).read("sync", o.sync).done();
            Callback callback(std::move(progress));
            run(callback, [&] { return plan.write(o, engine, callback.progress()); });
          },
          "options"_a, "engine"_a, "progress"_a = nb::none());
  m.def(
      "plan",
      [](const nb::dict& given, const Engine& engine) {
        const ConvertOptions options = convert_options(given);
        return run([&] { return ConversionPlan::make(options, engine); });
      },
      "options"_a, "engine"_a);
}

void define_run(nb::module_& m) {
  nb::class_<Generator>(m, "Generator")
      .def(
          "generate",
          [](Generator& g, const nb::dict& prompt, const nb::dict& options, nb::object on_token) {
            const Prompt wanted = prompt_of(prompt);
            const GenerateOptions how = generate_options(options);
            Callback callback(std::move(on_token));
            return to_dict(
                run(callback, [&] { return g.generate(wanted, how, callback.token()); }));
          },
          "prompt"_a, "options"_a, "on_token"_a = nb::none())
      .def("forward",
           [](Generator& g, const std::vector<int64_t>& tokens) {
             return array_of(run([&] { return g.forward(tokens); }));
           })
      .def("restart", &Generator::restart)
      .def_prop_ro("position", &Generator::position)
      .def_prop_ro("capacity", &Generator::capacity);
  m.def(
      "generator",
      [](const Bundle& bundle, const nb::dict& given, const Engine& engine) {
        GeneratorOptions o;
        Options options(given);
        options.read("mode", o.mode, kModes).read("memory", o.memory).done();
        return run([&] { return Generator::load(bundle, engine, o); });
      },
      "bundle"_a, "options"_a, "engine"_a);

  nb::class_<Embedder>(m, "Embedder")
      .def("embed",
           [](Embedder& e, const std::string& text, const nb::dict& given) {
             const EmbedOptions options = embed_options(given);
             return array_of(run([&] { return e.embed(text, options); }));
           })
      .def("embed_tokens",
           [](Embedder& e, const std::vector<int64_t>& tokens, const nb::dict& given) {
             const EmbedOptions options = embed_options(given);
             return array_of(run([&] { return e.embed_tokens(tokens, options); }));
           })
      .def_prop_ro("width", &Embedder::width)
      .def_prop_ro("max_tokens", &Embedder::max_tokens);
  m.def(
      "embedder",
      [](const Bundle& bundle, const Engine& engine) {
        return run([&] { return Embedder::load(bundle, engine); });
      },
      "bundle"_a, "engine"_a);
}

void define_text(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def("encode",
           [](Tokenizer& t, std::string_view text, bool add_special) {
             return run([&] { return t.encode(text, add_special); });
           })
      .def("decode",
           [](const Tokenizer& t, const std::vector<int64_t>& tokens, bool skip_special) {
             return run([&] { return t.decode(tokens, skip_special); });
           })
      .def("find", &Tokenizer::find)
      .def_prop_ro("id_bound", &Tokenizer::id_bound);
  m.def("tokenizer",
        [](const std::string& path) { return run([&] { return Tokenizer::load(path); }); });
  m.def("tokenizer_of", [](const Bundle& b) { return run([&] { return Tokenizer::of(b); }); });
  nb::class_<ChatTemplate>(m, "ChatTemplate")
      .def("render_json", [](const ChatTemplate& t, std::string_view chat) {
        return run([&] { return t.render_json(chat); });
      });
  m.def("chat_template",
        [](const std::string& path) { return run([&] { return ChatTemplate::load(path); }); });
  m.def("chat_template_of",
        [](const Bundle& b) { return run([&] { return ChatTemplate::of(b); }); });
}

void define_proof(nb::module_& m) {
  m.def(
      "verify_json",
      [](const Bundle& bundle, const nb::dict& given, const Engine& engine, nb::object progress) {
        VerifyOptions o;
        Options options(given);
        options.read("reference", o.reference).read("checkpoint", o.checkpoint);
        options.read("config", o.config).read("lora", o.lora).read("against", o.against);
        options.read("images", o.images)
            .read("tolerance", o.tolerance)
            .read("memory", o.memory)
            .done();
        Callback callback(std::move(progress));
        return to_json(
            run(callback, [&] { return verify(bundle, o, engine, callback.progress()); }));
      },
      "bundle"_a, "options"_a, "engine"_a, "progress"_a = nb::none());
  m.def("inspect", [](const std::string& path, const Engine& engine) {
    return to_dict(run([&] { return inspect(path, engine); }));
  });
  m.def(
      "audit_json",
      [](const std::string& path, bool digests, const Engine& engine, nb::object progress) {
        Callback callback(std::move(progress));
        return run(callback,
                   [&] { return audit_json(path, digests, engine, callback.progress()); });
      },
      "path"_a, "digests"_a, "engine"_a, "progress"_a = nb::none());
  m.def(
      "sign",
      [](const nb::dict& given, const Engine& engine, nb::object progress) {
        SignOptions o;
        Options options(given);
        options.read("path", o.path).read("private_key", o.private_key);
        options.read("passphrase_file", o.passphrase_file).read("certificate", o.certificate);
        options.read("chain", o.chain).read("signature", o.signature);
        options.read("ignore_paths", o.ignore_paths).read("shard_bytes", o.shard_bytes).done();
        Callback callback(std::move(progress));
        return to_dict(run(callback, [&] { return sign(o, engine, callback.progress()); }));
      },
      "options"_a, "engine"_a, "progress"_a = nb::none());
  m.def(
      "check_signature",
      [](const nb::dict& given, const Engine& engine, nb::object progress) {
        SignatureCheckOptions o;
        Options options(given);
        options.read("path", o.path)
            .read("signature", o.signature)
            .read("public_key", o.public_key);
        options.read("root_certificates", o.root_certificates).read("at", o.at);
        options.read("ignore_unsigned_files", o.ignore_unsigned_files).done();
        Callback callback(std::move(progress));
        return to_dict(
            run(callback, [&] { return check_signature(o, engine, callback.progress()); }));
      },
      "options"_a, "engine"_a, "progress"_a = nb::none());
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The library of Ferry. Use the package ferry, which gives it types.";
  nb::set_leak_warnings(false);
  define_bundle(m);
  define_convert(m);
  define_run(m);
  define_text(m);
  define_proof(m);
  m.def("interrupt_all", &interrupt_all);
  m.def("clear_interrupt_request", &clear_interrupt_request);
  m.def("version", &library_version);
}

}  // namespace ferry::python
