// The module ferry._native: the public library (include/ferry) for Python. It takes options as
// dictionaries and returns dictionaries. The package around it (python/ferry) gives them types and
// documents. Each function and each handle has an engine of its own, so that calls of several
// threads do not wait for each other.
#include <ferry/ferry.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "native/call.h"
#include "native/options.h"
#include "native/results.h"

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: "name"_a is how nanobind names arguments

namespace ferry::python {
namespace {

using Matrix = nb::ndarray<nb::numpy, float>;

// Returns an array that owns the values.
Matrix array_of(std::vector<float> values, std::initializer_list<size_t> shape) {
  auto owned = std::make_unique<std::vector<float>>(std::move(values));
  float* data = owned->data();
  const nb::capsule owner(owned.get(),
                          [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  owned.release();
  return {data, shape, owner};
}

struct TextModel {
  Engine engine;
  Generator generator;
};

struct SpeechModel {
  Engine engine;
  Transcriber transcriber;
};

struct VectorModel {
  Engine engine;
  Embedder embedder;
};

TextModel load_model(const Bundle& bundle, const nb::dict& given, const Bundle* draft,
                     size_t threads) {
  GeneratorOptions options = generator_options(given);
  if (draft != nullptr) options.draft = *draft;
  const Engine engine(threads);
  return {engine, call(engine, [&] { return Generator::load(bundle, engine, options); })};
}

nb::dict generate(TextModel& model, const nb::dict& prompt, const nb::dict& options,
                  nb::object on_token) {
  const Prompt wanted = prompt_of(prompt);
  const GenerateOptions how = generate_options(options);
  Callback callback(std::move(on_token));
  return to_dict(call(model.engine, callback,
                      [&] { return model.generator.generate(wanted, how, callback.token()); }));
}

nb::list generate_all(TextModel& model, const nb::list& prompts, const nb::dict& options,
                      nb::object progress) {
  std::vector<Prompt> wanted;
  for (const nb::handle prompt : prompts) wanted.push_back(prompt_of(nb::cast<nb::dict>(prompt)));
  const GenerateOptions how = generate_options(options);
  Callback callback(std::move(progress));
  const OnProgress report = callback.progress();
  size_t whole = 0;
  OnAnswer on_answer;
  if (report) {
    on_answer = [&](size_t, const Generation&) {
      return report("answering", ++whole, wanted.size());
    };
  }
  nb::list answers;
  for (const Generation& answer : call(model.engine, callback, [&] {
         return model.generator.generate_all(wanted, how, on_answer);
       })) {
    answers.append(to_dict(answer));
  }
  return answers;
}

Matrix forward(TextModel& model, const std::vector<int64_t>& tokens) {
  std::vector<float> logits = call(model.engine, [&]() -> Result<std::vector<float>> {
    const auto view = FERRY_TRY(model.generator.forward(tokens));
    return std::vector<float>(view.begin(), view.end());
  });
  const size_t size = logits.size();
  return array_of(std::move(logits), {size});
}

SpeechModel load_transcriber(const Bundle& bundle, std::optional<uint64_t> memory, size_t threads) {
  const Engine engine(threads);
  return {engine, call(engine, [&] { return Transcriber::load(bundle, engine, memory); })};
}

nb::dict transcribe(SpeechModel& model, const nb::dict& sound, const nb::dict& given,
                    nb::object progress) {
  const Sound samples = sound_of(sound);
  const TranscribeOptions options = transcribe_options(given);
  Callback callback(std::move(progress));
  return to_dict(call(model.engine, callback, [&] {
    return model.transcriber.transcribe(samples, options, callback.progress());
  }));
}

VectorModel load_embedder(const Bundle& bundle, std::optional<uint64_t> memory, size_t threads) {
  const Engine engine(threads);
  return {engine, call(engine, [&] { return Embedder::load(bundle, engine, memory); })};
}

// Returns a row for each text.
Matrix embed(VectorModel& model, const std::vector<std::string>& texts, const nb::dict& given,
             nb::object progress) {
  const EmbedOptions options = embed_options(given);
  Callback callback(std::move(progress));
  const OnProgress report = callback.progress();
  size_t width = 0;
  std::vector<float> rows = call(model.engine, callback, [&]() -> Result<std::vector<float>> {
    std::vector<float> all;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::vector<float> row = FERRY_TRY(model.embedder.embed(texts[i], options));
      width = row.size();
      all.insert(all.end(), row.begin(), row.end());
      if (report && !report("embedding", i + 1, texts.size())) {
        return fail(ErrorCode::kInterrupted, "stopped by the caller");
      }
    }
    return all;
  });
  if (texts.empty()) width = static_cast<size_t>(model.embedder.width());
  return array_of(std::move(rows), {texts.size(), width});
}

// Returns a row for each token.
Matrix states(VectorModel& model, const std::vector<int64_t>& tokens) {
  std::vector<float> rows = call(model.engine, [&] { return model.embedder.states(tokens); });
  const size_t width = tokens.empty() ? 0 : rows.size() / tokens.size();
  return array_of(std::move(rows), {tokens.size(), width});
}

// Plans a conversion, and writes its output unless `write` is None.
nb::dict convert_checkpoint(const nb::dict& given, const nb::object& write, nb::object progress,
                            size_t threads) {
  const ConvertOptions options = convert_options(given);
  std::optional<WriteOptions> target;
  if (!write.is_none()) target = write_options(nb::cast<nb::dict>(write));
  const Engine engine(threads);
  Callback callback(std::move(progress));
  return to_dict(call(engine, callback, [&]() -> Result<PlanSummary> {
    const ConversionPlan plan = FERRY_TRY(ConversionPlan::make(options, engine));
    if (target) FERRY_RETURN_IF_ERROR(plan.write(*target, engine, callback.progress()));
    return plan.summary();
  }));
}

Bundle open_bundle(const nb::dict& given, nb::object progress, size_t threads) {
  const OpenOptions options = open_options(given);
  const Engine engine(threads);
  Callback callback(std::move(progress));
  return call(engine, callback, [&] { return Bundle::open(options, engine, callback.progress()); });
}

void define_handles(nb::module_& m) {
  nb::class_<Bundle>(m, "Bundle")
      .def("info", [](const Bundle& bundle) { return to_dict(bundle.info()); })
      .def("manifest_json", &Bundle::manifest_json)
      .def("with_adapter",
           [](const Bundle& bundle, const std::string& name) {
             return call(Engine(1), [&] { return bundle.with_adapter(name); });
           })
      .def(
          "text_file",
          [](const Bundle& bundle, const std::string& name) {
            return call(Engine(1), [&] { return bundle.text_file(name); });
          },
          "name"_a);
  m.def("open", &open_bundle, "options"_a, "progress"_a.none(), "threads"_a);

  nb::class_<TextModel>(m, "Model")
      .def("generate", &generate, "prompt"_a, "options"_a, "on_token"_a.none())
      .def("generate_all", &generate_all, "prompts"_a, "options"_a, "progress"_a.none())
      .def("forward", &forward, "tokens"_a)
      .def("restart", [](TextModel& model) { model.generator.restart(); })
      .def("interrupt", [](const TextModel& model) { model.engine.interrupt(SIGINT); })
      .def("clear_interrupt", [](const TextModel& m) { m.engine.clear_interrupt_request(); })
      .def_prop_ro("position", [](const TextModel& model) { return model.generator.position(); })
      .def_prop_ro("capacity", [](const TextModel& model) { return model.generator.capacity(); });
  m.def("load_model", &load_model, "bundle"_a, "options"_a, "draft"_a.none(), "threads"_a);

  nb::class_<SpeechModel>(m, "Transcriber")
      .def("transcribe", &transcribe, "sound"_a, "options"_a, "progress"_a.none());
  m.def("load_transcriber", &load_transcriber, "bundle"_a, "memory"_a.none(), "threads"_a);

  nb::class_<VectorModel>(m, "Embedder")
      .def("embed", &embed, "texts"_a, "options"_a, "progress"_a.none())
      .def("states", &states, "tokens"_a)
      .def_prop_ro("width", [](const VectorModel& model) { return model.embedder.width(); })
      .def_prop_ro("max_tokens",
                   [](const VectorModel& model) { return model.embedder.max_tokens(); });
  m.def("load_embedder", &load_embedder, "bundle"_a, "memory"_a.none(), "threads"_a);
}

void define_text(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def(
          "encode",
          [](Tokenizer& tokenizer, std::string_view text, bool add_special) {
            return call(Engine(1), [&] { return tokenizer.encode(text, add_special); });
          },
          "text"_a, "add_special"_a)
      .def(
          "decode",
          [](const Tokenizer& tokenizer, const std::vector<int64_t>& tokens, bool skip_special) {
            return call(Engine(1), [&] { return tokenizer.decode(tokens, skip_special); });
          },
          "tokens"_a, "skip_special"_a)
      .def(
          "find",
          [](const Tokenizer& tokenizer, std::string_view token) { return tokenizer.find(token); },
          "token"_a)
      .def_prop_ro("id_bound", &Tokenizer::id_bound);
  m.def(
      "load_tokenizer",
      [](const std::string& path) {
        return call(Engine(1), [&] { return Tokenizer::load(path); });
      },
      "path"_a);
  m.def(
      "tokenizer_of",
      [](const Bundle& bundle) { return call(Engine(1), [&] { return Tokenizer::of(bundle); }); },
      "bundle"_a);
  m.def(
      "render_chat",
      [](const Bundle& bundle, std::string_view chat) {
        return call(Engine(1), [&]() -> Result<std::string> {
          return FERRY_TRY(ChatTemplate::of(bundle)).render_json(chat);
        });
      },
      "bundle"_a, "chat_json"_a);
}

// Defines a function that takes options and progress, and whose result is a dictionary.
template <class Options, class Work>
void define(nb::module_& m, const char* name, Options (*read)(const nb::dict&), const Work& work) {
  m.def(
      name,
      [read, work](const nb::dict& given, nb::object progress, size_t threads) {
        const Options options = read(given);
        const Engine engine(threads);
        Callback callback(std::move(progress));
        return to_dict(
            call(engine, callback, [&] { return work(options, engine, callback.progress()); }));
      },
      "options"_a, "progress"_a.none(), "threads"_a);
}

void define_functions(nb::module_& m) {
  m.def("convert", &convert_checkpoint, "options"_a, "write"_a.none(), "progress"_a.none(),
        "threads"_a);
  m.def(
      "inspect",
      [](const std::string& path, size_t threads) {
        const Engine engine(threads);
        return to_dict(call(engine, [&] { return inspect(path, engine); }));
      },
      "path"_a, "threads"_a);
  m.def(
      "audit_json",
      [](const std::string& path, bool digests, nb::object progress, size_t threads) {
        const Engine engine(threads);
        Callback callback(std::move(progress));
        return call(engine, callback,
                    [&] { return audit_json(path, digests, engine, callback.progress()); });
      },
      "path"_a, "digests"_a, "progress"_a.none(), "threads"_a);
  m.def(
      "check",
      [](const std::string& path, nb::object progress, size_t threads) {
        const Engine engine(threads);
        Callback callback(std::move(progress));
        return to_dict(
            call(engine, callback, [&] { return check(path, engine, callback.progress()); }));
      },
      "path"_a, "progress"_a.none(), "threads"_a);
  m.def(
      "verify",
      [](const Bundle& bundle, const nb::dict& given, nb::object progress, size_t threads) {
        const VerifyOptions options = verify_options(given);
        const Engine engine(threads);
        Callback callback(std::move(progress));
        return to_dict(call(engine, callback,
                            [&] { return verify(bundle, options, engine, callback.progress()); }));
      },
      "bundle"_a, "options"_a, "progress"_a.none(), "threads"_a);
  define(m, "add_adapter", &adapter_edit, &add_adapter);
  m.def(
      "remove_adapter",
      [](const nb::dict& given, nb::object progress, size_t threads) {
        const AdapterEdit edit = adapter_edit(given);
        const Engine engine(threads);
        Callback callback(std::move(progress));
        call(engine, callback, [&] { return remove_adapter(edit, engine, callback.progress()); });
      },
      "options"_a, "progress"_a.none(), "threads"_a);
  m.def(
      "list_adapters",
      [](const std::string& path, size_t threads) {
        const Engine engine(threads);
        return to_dict(call(engine, [&] { return list_adapters(path, engine); }));
      },
      "path"_a, "threads"_a);
  define(m, "sign", &sign_options, &sign);
  define(m, "check_signature", &signature_check_options, &check_signature);
  m.def("version", &library_version);
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The library of Ferry. The package ferry gives it types.";
  nb::set_leak_warnings(false);
  define_handles(m);
  define_text(m);
  define_functions(m);
}

}  // namespace ferry::python
