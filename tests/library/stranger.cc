// Uses every part of the public interface once, as a program that knows nothing else of Ferry:
//   stranger TEXT_CHECKPOINT ENCODER_CHECKPOINT HDF5_FILE DIRECTORY ADAPTED_CHECKPOINT ADAPTER
//            ENCODER_DECODER TEXT ANSWER VISION_CHECKPOINT
#include <ferry/ferry.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

// Ends the program where `condition` does not hold.
void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not as expected: %s\n", what);
  std::exit(1);
}

// The ending of the output makes one file of the weights.
ferry::Status writes_one_file(ferry::ConvertOptions options, const std::string& file,
                              const ferry::Engine& engine) {
  ferry::WriteOptions write;
  write.path = file;
  const auto directory = FERRY_TRY(ferry::ConversionPlan::make(options, engine));
  const ferry::Status refused = directory.write(write, engine);
  expect(!refused && refused.error().field == "path", "a directory named like a file");
  FERRY_RETURN_IF_ERROR(ferry::convert(options, write, engine));
  const auto checked = FERRY_TRY(ferry::check(file, engine));
  expect(checked.ok() && checked.kind == "checkpoint" && checked.files == 1, "one file");
  options.output = file;
  const auto planned = FERRY_TRY(ferry::ConversionPlan::make(options, engine));
  const ferry::Status again = planned.write({}, engine);
  expect(!again && again.error().code == ferry::ErrorCode::kExists, "output of the plan");
  return {};
}

// An engine that is interrupted does nothing until the request is withdrawn; others go on.
ferry::Status interrupts(const std::string& path, const ferry::Engine& engine) {
  engine.interrupt(2);
  const auto stopped = ferry::check(path, engine);
  expect(!stopped && stopped.error().code == ferry::ErrorCode::kInterrupted, "interrupted");
  FERRY_TRY(ferry::check(path, ferry::Engine(2)));
  engine.clear_interrupt_request();
  FERRY_TRY(ferry::check(path, engine));
  return {};
}

ferry::Status converts(const std::string& source, const std::string& out,
                       const ferry::Engine& engine) {
  ferry::ConvertOptions options;
  options.source = source;
  options.dtype = ferry::WeightType::kF32;
  const auto plan = FERRY_TRY(ferry::ConversionPlan::make(options, engine));
  const ferry::PlanSummary summary = plan.summary();
  expect(!summary.files.empty() && summary.total_bytes > 0 && !summary.keys.empty(), "summary");

  ferry::WriteOptions write;
  write.path = out;
  const auto stop = [](std::string_view, uint64_t, uint64_t) { return false; };
  const ferry::Status stopped = plan.write(write, engine, stop);
  expect(!stopped && stopped.error().code == ferry::ErrorCode::kInterrupted, "stopped");
  bool reported = false;
  const auto note = [&](std::string_view what, uint64_t, uint64_t) {
    reported = what == "writing";
    return true;
  };
  FERRY_RETURN_IF_ERROR(plan.write(write, engine, note));
  expect(reported, "progress");
  const ferry::Status again = plan.write(write, engine);
  expect(!again && again.error().code == ferry::ErrorCode::kExists, "exists");

  options.shards = 0;
  const auto wrong = ferry::ConversionPlan::make(options, engine);
  expect(!wrong && wrong.error().field == "shards", "field of an error");
  options.shards = 1;
  options.format = ferry::OutputFormat::kSafetensors;
  write.path = out + "-weights";
  FERRY_RETURN_IF_ERROR(ferry::convert(options, write, engine));
  return writes_one_file(options, out + "-weights.safetensors", engine);
}

ferry::Status reads(const std::string& out, const ferry::Engine& engine) {
  expect(FERRY_TRY(ferry::inspect(out, engine)).kind == "bundle", "inspect");
  expect(FERRY_TRY(ferry::audit_json(out, false, engine)).starts_with("{"), "audit");
  expect(FERRY_TRY(ferry::check_bundle(out, engine)).ok(), "check");
  const auto absent = ferry::Bundle::open(out + "/absent", engine);
  expect(!absent && absent.error().place.starts_with(out), "place of an error");
  return {};
}

ferry::Status generates(const ferry::Bundle& bundle, const ferry::Engine& engine) {
  ferry::Tokenizer tokenizer = FERRY_TRY(ferry::Tokenizer::of(bundle));
  const auto tokens = FERRY_TRY(tokenizer.encode("And it came to pass"));
  expect(FERRY_TRY(tokenizer.decode(tokens)).ends_with("came to pass"), "decode");

  ferry::Generator generator = FERRY_TRY(ferry::Generator::load(bundle, engine));
  ferry::Prompt prompt;
  prompt.text = "And it came to pass";
  ferry::GenerateOptions options;
  options.max_new_tokens = 8;
  std::string streamed;
  const auto first =
      FERRY_TRY(generator.generate(prompt, options, [&](int64_t, std::string_view part) {
        streamed += part;
        return true;
      }));
  expect(!first.text.empty() && streamed == first.text, "streamed text");
  // The longer prompt continues the sequence, so only its new tokens are computed.
  ferry::Prompt longer;
  longer.tokens = tokens;
  longer.tokens.insert(longer.tokens.end(), first.tokens.begin(), first.tokens.end());
  const auto second = FERRY_TRY(generator.generate(longer, options));
  expect(second.reused_tokens == static_cast<int64_t>(longer.tokens.size()) - 1, "reused tokens");
  generator.restart();
  const auto whole = FERRY_TRY(generator.generate(longer, options));
  expect(whole.reused_tokens == 0 && whole.tokens == second.tokens, "equal answers");
  const auto stopped = FERRY_TRY(
      generator.generate(prompt, options, [](int64_t, std::string_view) { return false; }));
  expect(stopped.tokens.size() == 1 && stopped.stop == ferry::StopReason::kCallback, "callback");
  return {};
}

// Several sequences give the answers of one.
ferry::Status generates_several(const ferry::Bundle& bundle, const ferry::Engine& engine) {
  ferry::GenerateOptions options;
  options.max_new_tokens = 6;
  std::vector<ferry::Prompt> prompts;
  for (const char* text : {"And it came to pass", "The", "In the beginning", "And he said"}) {
    prompts.emplace_back().text = text;
  }
  ferry::Generator one = FERRY_TRY(ferry::Generator::load(bundle, engine));
  const auto alone = FERRY_TRY(one.generate_all(prompts, options));
  ferry::GeneratorOptions how;
  how.parallel = 3;
  ferry::Generator group = FERRY_TRY(ferry::Generator::load(bundle, engine, how));
  size_t whole = 0;
  const auto together =
      FERRY_TRY(group.generate_all(prompts, options, [&](size_t, const ferry::Generation& answer) {
        whole += answer.tokens.size() == 6 ? 1 : 0;
        return true;
      }));
  expect(whole == prompts.size() && alone.size() == whole, "answers of all prompts");
  for (size_t i = 0; i < prompts.size(); ++i) {
    expect(together[i].tokens == alone[i].tokens && together[i].text == alone[i].text &&
               together[i].prompt_tokens == alone[i].prompt_tokens,
           "answers of several sequences");
  }
  expect(FERRY_TRY(group.generate(prompts[1], options)).tokens == alone[1].tokens,
         "one answer of a generator of several sequences");
  const auto stopped = FERRY_TRY(
      group.generate_all(prompts, options, [](size_t, const ferry::Generation&) { return false; }));
  expect(stopped[3].stop == ferry::StopReason::kCallback && stopped[3].tokens.empty(),
         "prompts behind the callback that stops");
  prompts[2].text.clear();
  const auto refused = group.generate_all(prompts, options);
  expect(!refused && refused.error().message.starts_with("prompt 2: "), "a prompt without text");
  how.lookup = 2;
  const auto wrong = ferry::Generator::load(bundle, engine, how);
  expect(!wrong && wrong.error().field == "parallel", "guesses of several sequences");
  return {};
}

ferry::Status embeds(const std::string& source, const std::string& out,
                     const ferry::Engine& engine) {
  ferry::ConvertOptions options;
  options.source = source;
  ferry::WriteOptions write;
  write.path = out;
  FERRY_RETURN_IF_ERROR(ferry::convert(options, write, engine));
  const auto bundle = FERRY_TRY(ferry::Bundle::open(out, engine));
  ferry::Embedder embedder = FERRY_TRY(ferry::Embedder::load(bundle, engine));
  const auto states = FERRY_TRY(embedder.states(std::vector<int64_t>{1, 2, 3}));
  expect(!states.empty() && states.size() % 3 == 0, "states");
  return {};
}

ferry::Status calibrates(const std::string& source, const std::string& directory,
                         const ferry::Engine& engine) {
  const std::string ids = directory + "/ids.txt";
  std::ofstream file(ids);
  for (int i = 0; i < 128; ++i) file << 3 + i * 7 % 90 << (i % 32 == 31 ? "\n" : " ");
  file.close();
  ferry::ConvertOptions options;
  options.source = source;
  options.calibrate_weights = ids;
  options.quantize_budget = "1200KB";
  const auto plan = FERRY_TRY(ferry::ConversionPlan::make(options, engine));
  expect(plan.summary().total_bytes <= 1'200'000 && plan.summary().notes.size() >= 2, "budget");
  ferry::WriteOptions write;
  write.path = directory + "/calibrated";
  FERRY_RETURN_IF_ERROR(plan.write(write, engine));
  const auto bundle = FERRY_TRY(ferry::Bundle::open(write.path, engine));
  ferry::VerifyOptions verify;
  verify.checkpoint = source;
  const auto without = ferry::verify(bundle, verify, engine);
  expect(!without && without.error().field == "calibrate-weights", "a text that is missing");
  verify.calibrate_weights = ids;
  const auto verified = FERRY_TRY(ferry::verify(bundle, verify, engine));
  expect(verified.checkpoint->different_weights.empty(), "codes that are calibrated again");
  options.format = ferry::OutputFormat::kSafetensors;
  const auto wrong = ferry::ConversionPlan::make(options, engine);
  expect(!wrong && wrong.error().field == "quantize_budget", "a budget of weights alone");
  return {};
}

// The child that reads HDF5 files is a fork here, because this main() cannot be started as that
// child.
ferry::Status reads_hdf5(const std::string& file, const ferry::Engine& engine) {
  const auto found = FERRY_TRY(ferry::inspect(file, engine));
  expect(found.kind == "checkpoint" && !found.tensors.empty(), "tensors of an HDF5 file");
  return {};
}

// A bundle with an adapter has another answer with it, and guesses change none.
ferry::Status adapts(const std::string& source, const std::string& adapter,
                     const std::string& directory, const ferry::Engine& engine) {
  ferry::ConvertOptions options;
  options.source = source;
  options.dtype = ferry::WeightType::kF32;
  options.adapters = {{"formal", adapter}};
  options.all_logits = true;
  ferry::WriteOptions write;
  write.path = directory + "/adapted";
  FERRY_RETURN_IF_ERROR(ferry::convert(options, write, engine));
  const auto plain = FERRY_TRY(ferry::Bundle::open(write.path, engine));
  const ferry::BundleInfo info = plain.info();
  expect(info.adapters == std::vector<std::string>{"formal"} && info.adapter.empty(), "adapters");
  const auto adapted = FERRY_TRY(plain.with_adapter("formal"));
  expect(adapted.info().adapter == "formal", "the adapter that is chosen");
  const auto unknown = plain.with_adapter("other");
  expect(!unknown && unknown.error().field == "adapter", "an unknown adapter");

  const auto answer =
      [&](const ferry::Bundle& bundle,
          const ferry::GeneratorOptions& how) -> ferry::Result<std::vector<int64_t>> {
    ferry::Generator generator = FERRY_TRY(ferry::Generator::load(bundle, engine, how));
    ferry::GenerateOptions limits;
    limits.max_new_tokens = 12;
    limits.ignore_end_tokens = true;
    return FERRY_TRY(generator.generate({.tokens = {1, 17, 42, 17, 42}}, limits)).tokens;
  };
  const auto without = FERRY_TRY(answer(plain, {}));
  const auto with = FERRY_TRY(answer(adapted, {}));
  expect(without != with, "another answer");
  ferry::GeneratorOptions how;
  how.lookup = 4;
  expect(FERRY_TRY(answer(adapted, how)) == with, "an answer by lookup");
  how.draft = plain;
  const auto both = answer(adapted, how);
  expect(!both && both.error().field == "draft", "two kinds of guesses");
  how.lookup = 0;
  expect(FERRY_TRY(answer(adapted, how)) == with, "an answer by a draft");
  how.lookup = 65;
  how.draft.reset();
  const auto many = answer(adapted, how);
  expect(!many && many.error().field == "lookup", "too many guesses");
  how.lookup = 0;
  how.kv_bits = "8,4";
  expect(FERRY_TRY(answer(adapted, how)).size() == with.size(), "an answer in fewer bits");
  how.kv_bits = "3";
  const auto bits = answer(adapted, how);
  expect(!bits && bits.error().field == "kv_bits", "bits that there are not");
  return {};
}

// Adapters are added to a bundle, and removed; a signed bundle needs the key.
ferry::Status edits(const std::string& bundle, const std::string& adapter,
                    const ferry::Engine& engine) {
  ferry::AdapterEdit edit;
  edit.bundle = bundle;
  const auto nameless = ferry::add_adapter(edit, engine);
  expect(!nameless && nameless.error().field == "name", "an adapter without a name");
  edit.name = "other";
  edit.adapter = adapter;
  const ferry::AdapterInfo added = FERRY_TRY(ferry::add_adapter(edit, engine));
  expect(added.name == "other" && added.bytes > 0 && added.sha256.size() == 64, "added");
  const auto again = ferry::add_adapter(edit, engine);
  expect(!again && again.error().code == ferry::ErrorCode::kExists, "an adapter that is there");
  const ferry::AdapterList list = FERRY_TRY(ferry::list_adapters(bundle, engine));
  expect(list.adapters.size() == 2 && !list.factors.empty() && !list.dtype.empty(), "listed");
  const auto opened = FERRY_TRY(ferry::Bundle::open(bundle, engine));
  FERRY_TRY(opened.with_adapter("other"));
  FERRY_RETURN_IF_ERROR(ferry::remove_adapter(edit, engine));
  const ferry::Status gone = ferry::remove_adapter(edit, engine);
  expect(!gone && gone.error().code == ferry::ErrorCode::kUsage, "an adapter that is gone");
  std::ofstream(bundle + "/model.sig") << "{}";
  edit.name = "formal";
  const ferry::Status is_signed = ferry::remove_adapter(edit, engine);
  expect(!is_signed && is_signed.error().field == "private_key", "a signed bundle");
  return {};
}

// An encoder-decoder answers a text: its answer, with the tokens of the text, is `expected`.
ferry::Status translates(const std::string& source, const std::string& out, const std::string& text,
                         const std::string& expected, const ferry::Engine& engine) {
  ferry::ConvertOptions options;
  options.source = source;
  options.dtype = ferry::WeightType::kF32;
  options.one_program = true;
  options.max_source = 64;
  ferry::WriteOptions write;
  write.path = out;
  FERRY_RETURN_IF_ERROR(ferry::convert(options, write, engine));
  const auto bundle = FERRY_TRY(ferry::Bundle::open(out, engine));
  ferry::Tokenizer tokenizer = FERRY_TRY(ferry::Tokenizer::of(bundle));
  ferry::Generator generator = FERRY_TRY(ferry::Generator::load(bundle, engine));
  ferry::Prompt prompt;
  prompt.text = text;
  ferry::GenerateOptions limits;
  limits.max_new_tokens = 17;  // as generation_config.json states it
  const auto other = FERRY_TRY(generator.generate({.tokens = {5, 1}}, limits));
  const auto first = FERRY_TRY(generator.generate(prompt, limits));
  expect(first.text == expected && other.text != expected, "the answer to a text");
  prompt.text.clear();
  prompt.tokens = FERRY_TRY(tokenizer.encode(text));
  expect(first.prompt_tokens == static_cast<int64_t>(prompt.tokens.size()), "tokens of the text");
  expect(first.reused_tokens == 0, "an answer of its own");
  expect(FERRY_TRY(generator.generate(prompt, limits)).tokens == first.tokens, "tokens as a text");
  ferry::Prompt chat;
  chat.messages = {{"user", text, 0}};
  const auto refused = generator.generate(chat);
  expect(!refused && refused.error().field == "messages", "a chat with an encoder-decoder");
  prompt.tokens.resize(65, 5);
  const auto many = generator.generate(prompt);
  expect(!many && many.error().code == ferry::ErrorCode::kUsage, "a text that is too long");
  const auto again = FERRY_TRY(generator.generate({.tokens = {5, 1}}, limits));
  expect(again.tokens == other.tokens, "an answer after errors");
  return {};
}

// Pictures of one size, in one program.
ferry::Status takes_one_size(const std::string& source, const std::string& out,
                             const ferry::Engine& engine) {
  ferry::ConvertOptions options;
  options.source = source;
  options.image_size = ferry::ImageSize{40, 32};
  const auto apart = ferry::ConversionPlan::make(options, engine);
  expect(!apart && apart.error().field == "image_size", "a size without one program");
  options.one_program = true;
  ferry::WriteOptions write;
  write.path = out;
  FERRY_RETURN_IF_ERROR(ferry::convert(options, write, engine));
  expect(FERRY_TRY(ferry::check_bundle(out, engine)).ok(), "pictures of one size");
  options.image_size = ferry::ImageSize{-40, 32};
  const auto wrong = ferry::ConversionPlan::make(options, engine);
  expect(!wrong && wrong.error().field == "image_size", "a width below 1");
  return {};
}

// A sequence of more tokens than the caches have positions.
ferry::Status goes_on(const std::string& source, const std::string& out,
                      const ferry::Engine& engine) {
  ferry::ConvertOptions options;
  options.source = source;
  options.attention_sink = ferry::SinkAndWindow{4, 8};
  ferry::WriteOptions write;
  write.path = out;
  FERRY_RETURN_IF_ERROR(ferry::convert(options, write, engine));
  const auto bundle = FERRY_TRY(ferry::Bundle::open(out, engine));
  ferry::Generator generator = FERRY_TRY(ferry::Generator::load(bundle, engine));
  ferry::GenerateOptions limits;
  limits.max_new_tokens = 50;
  limits.ignore_end_tokens = true;
  const auto answer = FERRY_TRY(generator.generate({.tokens = {5, 1}}, limits));
  expect(answer.tokens.size() == 50, "an answer beyond the caches");
  options.attention_sink = ferry::SinkAndWindow{4, 0};
  const auto wrong = ferry::ConversionPlan::make(options, engine);
  expect(!wrong && wrong.error().field == "attention_sink", "a window without tokens");
  return {};
}

// The vision encoder as llama.cpp keeps it beside a GGUF file.
ferry::Status projects(const std::string& source, const std::string& directory,
                       const ferry::Engine& engine) {
  ferry::ConvertOptions options;
  options.source = source;
  options.format = ferry::OutputFormat::kMmproj;
  options.gguf_type = "f16";
  ferry::WriteOptions write;
  write.path = directory + "/mmproj.gguf";
  FERRY_RETURN_IF_ERROR(ferry::convert(options, write, engine));
  expect(FERRY_TRY(ferry::check(write.path, engine)).ok(), "a projector");
  options.gguf_type = "q4_0";
  const auto wrong = ferry::ConversionPlan::make(options, engine);
  expect(!wrong && wrong.error().field == "gguf_type", "a type that projectors do not have");
  ferry::OpenOptions open;
  open.path = directory + "/text";
  open.mmproj = write.path;
  const auto refused = ferry::Bundle::open(open, engine);
  expect(!refused && refused.error().field == "mmproj", "a projector beside a bundle");
  return {};
}

ferry::Status run(char** argv) {
  const ferry::Engine engine(2);
  const std::string directory = argv[4], out = directory + "/text";
  FERRY_RETURN_IF_ERROR(converts(argv[1], out, engine));
  FERRY_RETURN_IF_ERROR(reads(out, engine));
  FERRY_RETURN_IF_ERROR(interrupts(out, engine));
  const auto bundle = FERRY_TRY(ferry::Bundle::open(out, engine));
  FERRY_RETURN_IF_ERROR(generates(bundle, engine));
  FERRY_RETURN_IF_ERROR(generates_several(bundle, engine));
  ferry::VerifyOptions verify;
  verify.checkpoint = argv[1];
  const auto verified = FERRY_TRY(ferry::verify(bundle, verify, engine));
  expect(verified.proved() && verified.checkpoint->different_weights.empty(), "verified");
  expect(ferry::to_json(verified).starts_with("{\"verdict\":"), "JSON of a verification");
  FERRY_RETURN_IF_ERROR(calibrates(argv[1], directory, engine));
  FERRY_RETURN_IF_ERROR(reads_hdf5(argv[3], engine));
  FERRY_RETURN_IF_ERROR(adapts(argv[5], argv[6], directory, engine));
  FERRY_RETURN_IF_ERROR(edits(directory + "/adapted", argv[6], engine));
  FERRY_RETURN_IF_ERROR(translates(argv[7], directory + "/source", argv[8], argv[9], engine));
  FERRY_RETURN_IF_ERROR(takes_one_size(argv[10], directory + "/pictures", engine));
  FERRY_RETURN_IF_ERROR(goes_on(argv[5], directory + "/endless", engine));
  FERRY_RETURN_IF_ERROR(projects(argv[10], directory, engine));
  return embeds(argv[2], directory + "/encoder", engine);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 11) return 2;
  const ferry::Status status = run(argv);
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status ? 0 : 1;
}
