#include "conversion/gguf_proof.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "conversion/export.h"
#include "converters/assemble.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "dialects/gguf/file/gguf.h"
#include "dialects/gguf/file/header.h"
#include "dialects/gguf/model/written_types.h"

namespace ferry::conversion {
namespace {

constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kGeneralName = "general.name";
constexpr const char* kFileType = "general.file_type";
constexpr const char* kArchitecture = "general.architecture";
constexpr std::string_view kProjector = "clip";

// Keys that describe a model to people. Converters may take their values from anywhere, so they are
// not compared.
constexpr std::string_view kDescriptive[] = {
    "general.author",    "general.basename",  "general.description",  "general.finetune",
    "general.languages", "general.license",   "general.organization", "general.quantized_by",
    "general.repo_url",  "general.source",    "general.tags",         "general.url",
    "general.uuid",      "general.version",   "general.base_model",   "general.dataset",
    "general.doi",       "general.size_label"};

bool is_descriptive(std::string_view key) {
  return std::ranges::any_of(kDescriptive, [&](std::string_view known) {
    return key.starts_with(known) &&
           (key.size() == known.size() || key[known.size()] == '.' || key[known.size()] == '_');
  });
}

// The planned content of a GGUF file: its keys, and how each tensor is made.
class PlannedGguf {
 public:
  static Result<PlannedGguf> make(const packer::WeightFile& file) {
    if (file.known.empty() || file.known.front().offset != 0) {
      return fail(ErrorCode::kInternal, "a planned GGUF file has no head");
    }
    PlannedGguf out;
    out.file_ = &file;
    const std::span<const std::byte> head = file.known.front().bytes;
    const auto read = [head](uint64_t offset, std::span<std::byte> bytes) -> Status {
      std::ranges::fill(bytes, std::byte{0});
      if (offset >= head.size()) return {};
      const auto part =
          head.subspan(offset, std::min<uint64_t>(bytes.size(), head.size() - offset));
      std::ranges::copy(part, bytes.begin());
      return {};
    };
    out.header_ = FERRY_TRY(formats::read_gguf_header(read, file.bytes, "the planned file"));
    out.metadata_ = formats::GgufMetadata(out.header_.items, out.header_.bytes, "the planned file");
    for (const packer::FileTensor& tensor : file.tensors) {
      out.recipes_[tensor.name] = &tensor.recipe;
    }
    return out;
  }

  const std::vector<formats::GgufTensor>& tensors() const { return header_.tensors; }
  const formats::GgufMetadata& metadata() const { return metadata_; }
  // Returns the recipe of a tensor; nullptr if the bytes of the tensor are known.
  const graph::Recipe* recipe(const std::string& name) const {
    const auto at = recipes_.find(name);
    return at == recipes_.end() ? nullptr : at->second;
  }
  // Returns the known bytes of a tensor without a recipe. These tensors are the first ones of the
  // file.
  std::span<const std::byte> known(const std::string& name) const {
    size_t i = 1;
    for (const formats::GgufTensor& tensor : header_.tensors) {
      if (recipe(tensor.entry.name) != nullptr) continue;
      if (tensor.entry.name == name && i < file_->known.size()) return file_->known[i].bytes;
      ++i;
    }
    return {};
  }

 private:
  const packer::WeightFile* file_ = nullptr;
  formats::GgufHeader header_;
  formats::GgufMetadata metadata_;
  std::map<std::string, const graph::Recipe*> recipes_;
};

// Compares one tensor of the file with the expected tensor.
class TensorComparison {
 public:
  TensorComparison(const TensorSource& have, size_t index, const TensorSource& source)
      : have_(have), index_(index), source_(source) {}

  // Returns the offset of the first byte that differs from what `recipe` gives; nullopt if all are
  // equal.
  Result<std::optional<uint64_t>> with(const graph::Recipe& recipe) {
    const int64_t count = graph::row_count(recipe);
    const int64_t step = std::min(graph::tile_rows(recipe), count);
    const uint64_t row = graph::row_bytes(recipe, 0);
    std::vector<std::byte> want(static_cast<uint64_t>(step) * row);
    for (int64_t first = 0; first < count; first += step) {
      FERRY_RETURN_IF_ERROR(check_interrupt());
      const int64_t rows = std::min(step, count - first);
      const std::span<std::byte> tile = std::span(want).first(static_cast<uint64_t>(rows) * row);
      const std::span<std::byte> outs[] = {tile};
      FERRY_TRY(graph::materialize_rows(recipe, source_, first, rows, outs));
      const auto at = FERRY_TRY(difference(static_cast<uint64_t>(first) * row, tile));
      if (at) return at;
    }
    return std::nullopt;
  }

  Result<std::optional<uint64_t>> difference(uint64_t offset, std::span<const std::byte> want) {
    stored_.resize(want.size());
    FERRY_RETURN_IF_ERROR(have_.read(index_, offset, stored_));
    const auto differs = std::ranges::mismatch(stored_, want).in1;
    if (differs == stored_.end()) return std::optional<uint64_t>();
    return std::optional(offset + static_cast<uint64_t>(differs - stored_.begin()));
  }

 private:
  const TensorSource& have_;
  size_t index_;
  const TensorSource& source_;
  std::vector<std::byte> stored_;
};

class Prover {
 public:
  Prover(const formats::GgufFile& file, const PlannedGguf& plan, const TensorSource& source,
         ThreadPool& pool, const proof::Progress& progress)
      : file_(file), plan_(plan), source_(source), pool_(pool), progress_(progress) {}

  Result<GgufProof> run() {
    compare_keys();
    for (const formats::GgufTensor& tensor : plan_.tensors()) total_ += tensor.entry.bytes;
    const auto& entries = file_.source->entries();
    for (size_t i = 0; i < entries.size(); ++i) index_of_[entries[i].name] = i;
    lines_.resize(plan_.tensors().size());
    pool_.parallel_for(plan_.tensors().size(), [&](size_t i) { compare(i); });
    if (error_) return Failure(*error_);
    for (std::string& line : lines_) {
      if (!line.empty()) proof_.different_tensors.push_back(std::move(line));
    }
    for (const auto& in_file : index_of_) {
      const std::string& name = in_file.first;
      const bool planned = std::ranges::any_of(
          plan_.tensors(), [&](const auto& tensor) { return tensor.entry.name == name; });
      if (!planned) {
        proof_.different_tensors.push_back(
            fmt::format("{}: the checkpoint has no such tensor", quoted(name)));
      }
    }
    return std::move(proof_);
  }

 private:
  void compare_keys() {
    const formats::GgufMetadata &have = file_.metadata, &want = plan_.metadata();
    for (const formats::GgufItem& item : want.items()) {
      const formats::GgufItem* stored = have.find(item.key);
      ++proof_.keys;
      if (stored == nullptr) {
        proof_.different_keys.push_back(fmt::format("{}: is missing", quoted(item.key)));
      } else if (!std::ranges::equal(have.stored(*stored), want.stored(item))) {
        proof_.different_keys.push_back(
            fmt::format("{}: has another value or type", quoted(item.key)));
      }
    }
    for (const formats::GgufItem& item : have.items()) {
      if (want.find(item.key) != nullptr || formats::is_gguf_layout_key(item.key)) continue;
      const std::string line =
          fmt::format("{}: the checkpoint gives no such key", quoted(item.key));
      (is_descriptive(item.key) ? proof_.notes : proof_.different_keys).push_back(line);
    }
  }

  void compare(size_t i) {
    {
      const std::lock_guard lock(mutex_);
      if (error_) return;
    }
    auto line = different(plan_.tensors()[i]);
    const std::lock_guard lock(mutex_);
    if (!line) {
      if (!error_) error_ = std::move(line).error();
      return;
    }
    lines_[i] = *std::move(line);
    done_ += plan_.tensors()[i].entry.bytes;
    if (progress_) progress_(done_, total_);
  }

  Result<std::string> different(const formats::GgufTensor& want) {
    const std::string& name = want.entry.name;
    const auto at = index_of_.find(name);
    if (at == index_of_.end()) return fmt::format("{}: is missing", quoted(name));
    const TensorEntry& have = file_.source->entries()[at->second];
    const formats::GgufType* type = formats::find_gguf_type(have.dtype, have.encoding);
    if (type != want.type || squeezed(have.shape) != squeezed(want.entry.shape)) {
      return fmt::format("{}: {} {} in the file, {} {} from the checkpoint", quoted(name),
                         type == nullptr ? "?" : type->name, to_string(have.shape), want.type->name,
                         to_string(want.entry.shape));
    }
    TensorComparison comparison(*file_.source, at->second, source_);
    const graph::Recipe* recipe = plan_.recipe(name);
    const auto byte = recipe != nullptr ? FERRY_TRY(comparison.with(*recipe))
                                        : FERRY_TRY(comparison.difference(0, plan_.known(name)));
    const std::lock_guard lock(mutex_);
    ++proof_.tensors;
    proof_.bytes += have.bytes;
    if (!byte) return std::string();
    return fmt::format("{}: differs at byte {} of {}", quoted(name), *byte, have.bytes);
  }

  // Removes leading dimensions of 1, which some writers leave out.
  static Shape squeezed(Shape shape) {
    while (shape.size() > 1 && shape[0] == 1) shape.erase(shape.begin());
    return shape;
  }

  const formats::GgufFile& file_;
  const PlannedGguf& plan_;
  const TensorSource& source_;
  ThreadPool& pool_;
  const proof::Progress& progress_;
  std::map<std::string, size_t> index_of_;
  std::vector<std::string> lines_;
  std::mutex mutex_;  // guards the members below
  GgufProof proof_;
  std::optional<Error> error_;
  uint64_t done_ = 0, total_ = 0;
};

std::string text_or_empty(const formats::GgufMetadata& metadata, const char* key) {
  const auto text = metadata.text(key);
  return text ? std::string(*text) : std::string();
}

// Returns the type of the embedding tensor, which tells the type of the file if general.file_type
// is missing or ambiguous, as with MXFP4.
std::string type_of_embedding(const TensorSource& source) {
  const auto embedding =
      std::ranges::find(source.entries(), "token_embd.weight", &TensorEntry::name);
  return embedding == source.entries().end() ? "" : std::string(embedding->form());
}

Result<std::string> file_type_of(const formats::GgufFile& file, const std::string& path) {
  const std::string name = type_of_embedding(*file.source);
  const auto type = converters::gguf_file_type_of(name);
  if (type && file.metadata.find(kFileType) == nullptr) return name;
  const int64_t number = FERRY_TRY(file.metadata.integer(kFileType));
  if (number == converters::kGgufMxfp4FileType) {
    if (type && converters::gguf_file_type_number(*type, true) == number) return name;
  }
  for (const converters::GgufFileTypeInfo& known : converters::gguf_file_types()) {
    if (known.number == number) return std::string(known.name);
  }
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {} is {}, a type that Ferry does not write",
                                                   printable(path), kFileType, number));
}

// Plans the GGUF file that `file` is compared with. If the checkpoint does not tell the
// pre-tokenizer, the one of `file` is used.
Result<Export> plan_like(const formats::GgufFile& file, ExportOptions options, ThreadPool& pool,
                         std::vector<std::string>& notes) {
  auto planned = plan_export(options, pool);
  const std::string pre = text_or_empty(file.metadata, kPre);
  const bool again = !planned && planned.error().code == ErrorCode::kUnsupported && !pre.empty();
  if (!again) return planned;
  options.pre_tokenizer = pre;
  auto stated = plan_export(options, pool);
  if (!stated) return planned;
  notes.push_back(fmt::format("{} {} is taken from the file", kPre, quoted(pre)));
  return stated;
}

}  // namespace

Result<GgufProof> prove_gguf(const std::string& path, const GgufProofOptions& options,
                             ThreadPool& pool) {
  const formats::GgufFile file = FERRY_TRY(formats::open_gguf(path));
  ExportOptions wanted;
  wanted.convert.source = options.checkpoint;
  wanted.convert.config = options.config;
  wanted.convert.lora = options.lora;
  wanted.imatrix = options.imatrix;
  const bool projector = text_or_empty(file.metadata, kArchitecture) == kProjector;
  wanted.format = projector ? ExportFormat::kMmproj : ExportFormat::kGguf;
  wanted.type = FERRY_TRY(file_type_of(file, path));
  wanted.model_name = text_or_empty(file.metadata, kGeneralName);
  std::vector<std::string> notes;
  const Export planned = FERRY_TRY(plan_like(file, wanted, pool, notes));
  if (!planned.mapped.problems.empty()) {
    return Failure(converters::problems_error(planned.mapped.problems, *planned.mapped.source));
  }
  const PlannedGguf plan = FERRY_TRY(PlannedGguf::make(planned.plan->input().files.front()));
  GgufProof proof =
      FERRY_TRY(Prover(file, plan, *planned.mapped.source, pool, options.progress).run());
  FERRY_RETURN_IF_ERROR(planned.mapped.source->check_unchanged());
  proof.file_type = wanted.type;
  proof.notes.insert(proof.notes.begin(), notes.begin(), notes.end());
  return proof;
}

bool is_gguf_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const auto file = InputFile::open(path);
  char magic[4] = {};
  if (!file || file->size() < sizeof(magic)) return false;
  if (!file->read_at(0, std::as_writable_bytes(std::span(magic)))) return false;
  return std::memcmp(magic, "GGUF", sizeof(magic)) == 0;
}

}  // namespace ferry::conversion
