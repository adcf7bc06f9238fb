#include "packer/loose_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/directory.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "formats/pte/bundled.h"
#include "packer/bundle_examination.h"
#include "packer/loose_examination.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kEosIdsMethod = "get_eos_ids";
constexpr std::string_view kEosIdMethod = "get_eos_id";

// The files that are read from the directory of the tokenizer.
constexpr const char* kTexts[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "config.json",
    "generation_config.json",
    "processor_config.json",
    "added_tokens.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tiktoken.model",
    "qwen.tiktoken",
    "tokenizer.tiktoken",
    "o200k_base.tiktoken",
    "cl100k_base.tiktoken",
};

struct OpenProgram {
  std::string path;
  BundleProgram program;
  ManifestProgram entry;

  StatedValues stated() const { return {program.loaded.program, printable(path)}; }
};

class LooseOpener {
 public:
  explicit LooseOpener(const LoosePrograms& files) : files_(files) {}

  Status run() {
    manifest_.version = 0;
    FERRY_RETURN_IF_ERROR(data_.add(files_.data));
    decoder_.emplace(FERRY_TRY(open(files_.text_decoder)));
    FERRY_RETURN_IF_ERROR(name_decoder());
    FERRY_RETURN_IF_ERROR(derive_sizes(decoder_->entry, decoder_->stated(), manifest_));
    FERRY_RETURN_IF_ERROR(add_known());
    FERRY_RETURN_IF_ERROR(check_layers(decoder_->program.loaded.program, manifest_.num_layers,
                                       printable(decoder_->path)));
    FERRY_RETURN_IF_ERROR(check_components());
    FERRY_RETURN_IF_ERROR(open_embedding());
    FERRY_RETURN_IF_ERROR(open_encoder());
    FERRY_RETURN_IF_ERROR(data_.check_all_used());
    FERRY_RETURN_IF_ERROR(set_eos_ids());
    return open_texts();
  }

  bool is_static() const { return manifest_.program_style == kStaticStyle; }

  // Opens a program and its data files. Inputs and outputs get their names later.
  Result<OpenProgram> open(const std::string& path) {
    MappedFile file = FERRY_TRY(MappedFile::open(path));
    pte::LoadedProgram loaded = FERRY_TRY(pte::read_any_program(file.bytes(), printable(path)));
    OpenProgram program{path, {std::move(file), std::move(loaded)}, {}};
    program.entry.file = path;
    const pte::LoadedProgram& content = program.program.loaded;
    program.entry.data_files = FERRY_TRY(data_.files_of(path, content));
    program.entry.backends = backends_of(content.program);
    ProblemList problems{std::string()};
    check_program(program.entry, content.program, data_.files(), problems);
    check_delegates(program.entry, content, data_.files(), true, problems);
    if (!problems.empty()) return bad_input(problems.take().front().message);
    return program;
  }

  static Result<const pte::Method*> method_of(const OpenProgram& program, std::string_view name,
                                              std::string_view role) {
    const pte::Method* method = program.program.loaded.program.find(name);
    if (method != nullptr) return method;
    return fail(ErrorCode::kUnsupported, fmt::format("{}: has no method {}, which {} has",
                                                     printable(program.path), name, role));
  }

  Status name_decoder() {
    const pte::Program& program = decoder_->program.loaded.program;
    const bool has_forward = program.find(kForwardMethod) != nullptr;
    const bool has_kv = program.find(kKvForwardMethod) != nullptr;
    if (has_forward == has_kv) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: a text decoder has either a method {} or a method {}, this "
                              "program has {}",
                              printable(decoder_->path), kForwardMethod, kKvForwardMethod,
                              has_kv ? "both" : "neither"));
    }
    manifest_.program_style = has_kv ? kStaticStyle : kStatefulStyle;
    if (has_kv) return name_static();
    decoder_->entry.methods.push_back(
        FERRY_TRY(name_stateful_decoder(*program.find(kForwardMethod), printable(decoder_->path))));
    return {};
  }

  Status name_static() {
    const pte::Program& program = decoder_->program.loaded.program;
    const StatedValues stated = decoder_->stated();
    std::vector<ManifestMethod>& methods = decoder_->entry.methods;
    methods.push_back(
        FERRY_TRY(name_static_decoder(*program.find(kKvForwardMethod), stated, std::nullopt)));
    const pte::Method* prefill = program.find(kPrefillForwardMethod);
    if (prefill == nullptr) return {};
    methods.push_back(
        FERRY_TRY(name_static_decoder(*prefill, stated, count_caches(methods.front()))));
    return {};
  }

  Status add_known() {
    const auto add = [&](const char* what, int64_t known, int64_t& stated) -> Status {
      if (stated != 0 && known != 0 && stated != known) {
        return bad_input(
            fmt::format("{}: the {} is {}, and {} in the model that it is compared with",
                        printable(decoder_->path), what, stated, known));
      }
      stated = std::max(stated, known);
      return {};
    };
    manifest_.model_type = files_.model.model_type;
    FERRY_RETURN_IF_ERROR(add("number of layers", files_.model.num_layers, manifest_.num_layers));
    return add("hidden size", files_.model.hidden_size, manifest_.hidden_size);
  }

  const ManifestPort* decoder_embeddings(const ManifestMethod& method) const {
    return find_port(method.inputs, kEmbeddingsPort);
  }

  Status check_components() const {
    const bool takes_embeddings = decoder_embeddings(decoder_->entry.methods.front()) != nullptr;
    if (takes_embeddings && files_.token_embedding.empty()) {
      return Failure(
          Error{.code = ErrorCode::kUsage,
                .message = fmt::format("{}: takes embeddings: token_embedding is required",
                                       printable(decoder_->path)),
                .field = "token_embedding"});
    }
    const std::string_view extra = !files_.token_embedding.empty()  ? "token_embedding"
                                   : !files_.vision_encoder.empty() ? "vision_encoder"
                                                                    : "";
    if (takes_embeddings || extra.empty()) return {};
    return Failure(Error{.code = ErrorCode::kUsage,
                         .message = fmt::format("{}: takes tokens, not embeddings: {} does not fit",
                                                printable(decoder_->path), extra),
                         .field = std::string(extra)});
  }

  // Names one method for each method of the decoder, with calls of equal length.
  Status open_embedding() {
    if (files_.token_embedding.empty()) return {};
    embedding_.emplace(FERRY_TRY(open(files_.token_embedding)));
    for (const ManifestMethod& method : decoder_->entry.methods) {
      FERRY_RETURN_IF_ERROR(add_embedding_method(method));
    }
    const std::optional<int64_t> vocab = FERRY_TRY(embedding_->stated().integer("get_vocab_size"));
    if (!vocab || *vocab == manifest_.vocab_size) return {};
    return embedding_->stated().bad("get_vocab_size",
                                    fmt::format("gives {}, but {} has logits of {} tokens", *vocab,
                                                printable(decoder_->path), manifest_.vocab_size));
  }

  Status add_embedding_method(const ManifestMethod& of) {
    const std::string_view name = of.name == kForwardMethod     ? kForwardMethod
                                  : of.name == kKvForwardMethod ? kEmbeddingKvMethod
                                                                : kEmbeddingPrefillMethod;
    const std::string role = fmt::format("the token embedding for method {} of {}", quoted(of.name),
                                         printable(decoder_->path));
    const pte::Method* method = FERRY_TRY(method_of(*embedding_, name, role));
    ManifestMethod named = FERRY_TRY(name_token_embedding(
        *method, is_static() ? DType::kI32 : DType::kI64, printable(embedding_->path)));
    const ManifestPort& gives = named.outputs.front();
    const ManifestPort& takes = *decoder_embeddings(of);
    if (gives.shape != takes.shape) {
      return bad_input(fmt::format(
          "{}: method {} gives embeddings of {}, but {} takes {}", printable(embedding_->path),
          quoted(name), to_string(gives.shape), printable(decoder_->path), to_string(takes.shape)));
    }
    embedding_->entry.methods.push_back(std::move(named));
    return {};
  }

  Status open_encoder() {
    if (files_.vision_encoder.empty()) return {};
    encoder_.emplace(FERRY_TRY(open(files_.vision_encoder)));
    const std::string file = printable(encoder_->path);
    const pte::Method* method =
        FERRY_TRY(method_of(*encoder_, kForwardMethod, "every vision encoder"));
    ManifestMethod named = FERRY_TRY(name_vision_encoder(*method, file));
    const int64_t width = named.outputs.front().shape.back();
    if (width != manifest_.hidden_size) {
      return bad_input(fmt::format(
          "{}: method {} gives image features {} wide, but {} takes "
          "embeddings {} wide",
          file, quoted(method->name), width, printable(decoder_->path), manifest_.hidden_size));
    }
    encoder_->entry.methods.push_back(std::move(named));
    return {};
  }

  // The constant get_eos_id of official static programs is not the end token of their tokenizer, so
  // it is used last.
  Status set_eos_ids() {
    const StatedValues stated = decoder_->stated();
    const auto ids = FERRY_TRY(stated.integers(kEosIdsMethod));
    const auto id = FERRY_TRY(stated.integer(kEosIdMethod));
    if (ids) {
      manifest_.eos_ids = *ids;
    } else if (files_.eos_ids) {
      manifest_.eos_ids = FERRY_TRY(files_.eos_ids());
    }
    if (manifest_.eos_ids.empty() && id) manifest_.eos_ids = {*id};
    for (const int64_t eos : manifest_.eos_ids) {
      if (eos >= 0 && eos < manifest_.vocab_size) continue;
      return bad_input(fmt::format(
          "{}: token {} ends an answer ({}), but there are {} tokens", printable(decoder_->path),
          eos, ids ? kEosIdsMethod : "by its tokenizer or get_eos_id", manifest_.vocab_size));
    }
    manifest_.bos_id = FERRY_TRY(stated.integer("get_bos_id"));
    manifest_.image_token_id = FERRY_TRY(stated.integer("image_token_id"));
    return {};
  }

  Status open_texts() {
    if (files_.tokenizer.empty()) return {};
    const Directory directory = FERRY_TRY(Directory::open(files_.tokenizer));
    for (const char* name : kTexts) {
      if (!directory.contains(name)) continue;
      InputFile file = FERRY_TRY(directory.open_file(name, name, InputFile::Links::kFollow));
      list_file(name, file.size());
      texts_.emplace(name, std::move(file));
    }
    return {};
  }

  // Moves `program` into the component with the role `role`.
  void add_component(std::string_view role, std::optional<OpenProgram>& program) {
    if (!program) return;
    list_file(program->path, program->program.file.bytes().size());
    for (const std::string& data : program->entry.data_files) {
      list_file(data, data_.files().at(data).file.bytes().size());
    }
    manifest_.components.push_back({std::string(role), {std::move(program->entry)}, {}});
    programs_.push_back(std::move(program->program));
  }

  // Adds a file to the manifest unless it is there already.
  void list_file(const std::string& path, uint64_t bytes) {
    if (std::ranges::count(manifest_.files, path, &ManifestFile::path) > 0) return;
    manifest_.files.push_back({.path = path, .bytes = bytes, .method = {}, .digest = {}});
  }

  const LoosePrograms& files_;
  LooseData data_;
  std::optional<OpenProgram> decoder_, embedding_, encoder_;
  Manifest manifest_;
  std::vector<BundleProgram> programs_;
  std::map<std::string, InputFile> texts_;
};

}  // namespace

Result<Bundle> open_loose_programs(const LoosePrograms& files) {
  LooseOpener opener(files);
  FERRY_RETURN_IF_ERROR(opener.run());
  opener.add_component(kVisionEncoderRole, opener.encoder_);
  opener.add_component(kTokenEmbeddingRole, opener.embedding_);
  opener.add_component(kTextDecoderRole, opener.decoder_);
  return Bundle(
      std::make_shared<const Bundle::Parts>(Bundle::Parts{.path = files.text_decoder,
                                                          .manifest = std::move(opener.manifest_),
                                                          .programs = std::move(opener.programs_),
                                                          .data = opener.data_.take(),
                                                          .other_files = std::move(opener.texts_),
                                                          .text_directory = files.tokenizer,
                                                          .is_loose = true}));
}

}  // namespace ferry::packer
