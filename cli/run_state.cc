#include "cli/run_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "cli/report_file.h"
#include "conversion/gguf_proof.h"
#include "core/atomic_file.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/text.h"
#include "formats/safetensors/safetensors.h"
#include "formats/safetensors/writer.h"
#include "packer/manifest.h"

namespace ferry::cli {
namespace {

constexpr const char* kStateTokens = "tokens";  // i64 [N]
constexpr const char* kStateOf = "programs";    // u8 [32], the digest
constexpr const char* kStatePrefix = "state.";  // before the names of buffers

Failure bad_state(const std::string& path, const std::string& why) {
  return bad_input(fmt::format("{}: {}", printable(path), why));
}

Failure unusable(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kUsage, fmt::format("{}: {}", printable(path), why));
}

// Reads the tensors of a state file. Their sizes are checked before they are read.
class StateFile {
 public:
  static Result<StateFile> open(const std::string& path) {
    InputFile file = FERRY_TRY(InputFile::open(path));
    StateFile state(path);
    state.source_ =
        FERRY_TRY(formats::open_safetensors(formats::one_file(std::move(file), path), path));
    return state;
  }

  // Returns the bytes of a tensor, or of its first `rows` rows along dimension 1.
  Result<std::vector<std::byte>> read(const std::string& name, DType dtype, const Shape& shape,
                                      std::optional<int64_t> rows = {}) const {
    const size_t index = FERRY_TRY(find(name));
    const TensorEntry& entry = source_->entries()[index];
    if (entry.dtype != dtype || entry.shape != shape) {
      return bad_state(path_, fmt::format("tensor {} is {}{}, expected {}{}", quoted(name),
                                          dtype_name(entry.dtype), to_string(entry.shape),
                                          dtype_name(dtype), to_string(shape)));
    }
    std::vector<std::byte> bytes(rows ? entry.bytes / static_cast<uint64_t>(shape[1]) *
                                            static_cast<uint64_t>(*rows)
                                      : entry.bytes);
    FERRY_RETURN_IF_ERROR(source_->read(index, 0, bytes));
    return bytes;
  }

  // Returns the tokens, at most `most` of them.
  Result<std::vector<int64_t>> tokens(int64_t most) const {
    const size_t index = FERRY_TRY(find(kStateTokens));
    const Shape shape = source_->entries()[index].shape;
    if (shape.size() != 1 || shape[0] < 1 || shape[0] > most) {
      return bad_state(path_, fmt::format("tensor {} is {}, expected [1 to {}]",
                                          quoted(kStateTokens), to_string(shape), most));
    }
    const std::vector<std::byte> bytes = FERRY_TRY(read(kStateTokens, DType::kI64, shape));
    std::vector<int64_t> tokens(static_cast<size_t>(shape[0]));
    std::memcpy(tokens.data(), bytes.data(), bytes.size());
    return tokens;
  }

  size_t size() const { return source_->entries().size(); }

 private:
  explicit StateFile(std::string path) : path_(std::move(path)) {}

  Result<size_t> find(const std::string& name) const {
    const auto& entries = source_->entries();
    const auto found = std::ranges::find(entries, name, &TensorEntry::name);
    if (found != entries.end()) return static_cast<size_t>(found - entries.begin());
    return bad_state(
        path_, fmt::format("there is no tensor {}: not a state of these programs", quoted(name)));
  }

  std::string path_;
  std::unique_ptr<TensorSource> source_;
};

// Returns a digest of everything that decides what a state holds: programs, weights and adapter.
Result<Digest> digest_of_programs(const packer::Bundle& bundle) {
  Sha256 digest;
  const auto add = [&](std::string_view text) { digest.update(std::as_bytes(std::span(text))); };
  add(packer::write_manifest(bundle.manifest()));
  add(bundle.adapter());
  if (conversion::is_gguf_file(bundle.path())) {  // the manifest in memory has no digests of it
    digest.update(FERRY_TRY(MappedFile::open(bundle.path())).bytes());
  }
  return digest.finish();
}

Status write_state(const runner::Decoder& decoder, std::span<const int64_t> tokens,
                   const Digest& programs, const std::string& path) {
  const std::vector<runner::StateTensor> state = FERRY_TRY(decoder.state());
  const auto run = tokens.first(static_cast<size_t>(decoder.position()));
  std::vector<formats::TensorData> tensors = {
      {{kStateTokens, DType::kI64, {std::ssize(run)}}, std::as_bytes(run)},
      {{kStateOf, DType::kU8, {std::ssize(programs)}}, std::as_bytes(std::span(programs))}};
  for (const runner::StateTensor& tensor : state) {
    tensors.push_back({{kStatePrefix + tensor.name, tensor.values.dtype, tensor.values.shape},
                       tensor.values.bytes});
  }
  std::vector<formats::TensorSpec> specs;
  for (const formats::TensorData& tensor : tensors) specs.push_back(tensor.spec);
  const formats::SafetensorsLayout layout = FERRY_TRY(formats::plan_safetensors(specs));
  AtomicFile file = FERRY_TRY(AtomicFile::create(path, IfExists::kReplace, layout.file_bytes));
  FERRY_RETURN_IF_ERROR(file.write_at(0, layout.head));
  for (size_t i = 0; i < tensors.size(); ++i) {
    FERRY_RETURN_IF_ERROR(file.write_at(layout.offsets[i], tensors[i].bytes));
  }
  return file.publish();
}

// Returns the number of tokens of the prompt that need not be run.
Result<int64_t> read_state(runner::Decoder& decoder, std::span<const int64_t> prompt,
                           const Digest& programs, const std::string& path) {
  const size_t buffers = FERRY_TRY(decoder.state()).size();
  const StateFile file = FERRY_TRY(StateFile::open(path));
  const std::vector<std::byte> made_by =
      FERRY_TRY(file.read(kStateOf, DType::kU8, {std::ssize(programs)}));
  if (!std::ranges::equal(made_by, std::as_bytes(std::span(programs)))) {
    return unusable(path, "is the state of another bundle, or of another adapter");
  }
  const std::vector<int64_t> tokens = FERRY_TRY(file.tokens(decoder.capacity()));
  if (file.size() != buffers + 2) {
    return bad_state(path, fmt::format("has {} tensors, the state of these programs has {}",
                                       file.size(), buffers + 2));
  }
  auto kept = static_cast<size_t>(std::ranges::mismatch(prompt, tokens).in1 - prompt.begin());
  if (kept == prompt.size()) kept -= kept > 0 ? 1 : 0;  // the last token gives the logits
  if (kept == 0) {
    return unusable(path, "the prompt does not begin with a token of this state, or has no other");
  }
  const auto read = [&](const runner::StateTensor& buffer, int64_t rows) {
    Shape shape = buffer.values.shape;
    if (buffer.is_cache) shape[1] = std::min(std::ssize(tokens), buffer.most_rows);
    return file.read(kStatePrefix + buffer.name, buffer.values.dtype, shape,
                     buffer.is_cache ? std::optional(rows) : std::nullopt);
  };
  const Status restored = decoder.restore(tokens, kept, read);
  if (!restored && restored.error().code == ErrorCode::kUsage) {
    return unusable(path, fmt::format("the prompt has {} of the {} tokens of this state: {}", kept,
                                      tokens.size(), restored.error().message));
  }
  FERRY_RETURN_IF_ERROR(restored);
  return static_cast<int64_t>(kept);
}

}  // namespace

Status check_state(const RunOptions& o) {
  const std::pair<const char*, const std::string&> files[] = {{"--save-state", o.save_state},
                                                              {"--load-state", o.load_state}};
  for (const auto& [name, value] : files) {
    if (value.empty()) continue;
    if (!o.kv_bits.empty()) {
      return fail(
          ErrorCode::kUsage,
          fmt::format("{} does not go with --kv-bits: a state has the caches as the program "
                      "states them",
                      name));
    }
    if (!o.bundle.empty()) continue;
    return fail(ErrorCode::kUsage, fmt::format("{} is for bundles and GGUF files", name));
  }
  if (o.save_state.empty()) return {};
  for (const std::string& other : {o.dump_logits, o.stats_json, o.profile}) {
    if (other != o.save_state) continue;
    return fail(ErrorCode::kUsage, fmt::format("--save-state {}: another output has this path",
                                               printable(o.save_state)));
  }
  if (::access(o.save_state.c_str(), F_OK) == 0) {
    const auto earlier = StateFile::open(o.save_state);
    if (!earlier || !earlier->read(kStateOf, DType::kU8, {std::tuple_size_v<Digest>})) {
      return fail(ErrorCode::kExists,
                  fmt::format("--save-state {}: exists and is no state", printable(o.save_state)));
    }
  }
  return check_directory_of("--save-state", o.save_state, o.bundle);
}

Status StateFiles::load(runner::Decoder& decoder, Generation& g) {
  // Programs whose caches cannot be saved are refused before the answer.
  if (!options_.save_state.empty()) FERRY_RETURN_IF_ERROR(decoder.state());
  if (options_.save_state.empty() && options_.load_state.empty()) return {};
  programs_ = FERRY_TRY(digest_of_programs(bundle_));
  if (options_.load_state.empty()) return {};
  g.kept_tokens = FERRY_TRY(read_state(decoder, g.prompt, programs_, options_.load_state));
  return {};
}

Status StateFiles::save(const runner::Decoder& decoder, const Generation& g) const {
  if (options_.save_state.empty() || g.stop == kStopInterrupted) return {};
  std::vector<int64_t> tokens = g.prompt;
  tokens.insert(tokens.end(), g.tokens.begin(), g.tokens.end());
  return write_state(decoder, tokens, programs_, options_.save_state);
}

}  // namespace ferry::cli
