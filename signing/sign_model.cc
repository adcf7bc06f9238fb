#include "signing/sign_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "core/atomic_file.h"
#include "core/file.h"
#include "core/text.h"
#include "signing/model_listing.h"
#include "signing/model_statement.h"

namespace ferry::signing {
namespace {

namespace fs = std::filesystem;

// Returns the path of `output` relative to the folder `model`, or an empty text if it is not inside
// of the folder.
std::string path_inside(const std::string& model, const std::string& output) {
  std::error_code error;
  const fs::path root = fs::canonical(model, error);
  if (error || !fs::is_directory(root, error)) return {};
  const fs::path parent = fs::path(output).parent_path();
  const fs::path directory = fs::canonical(parent.empty() ? fs::path(".") : parent, error);
  if (error) return {};
  const std::string inside = (directory / fs::path(output).filename()).lexically_relative(root);
  return inside.empty() || inside == ".." || inside.starts_with("../") ? std::string() : inside;
}

// The signature of a model may be replaced. Any other file at its place, such as another signed
// statement, must not be lost.
Status check_replaceable(const std::string& output) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(output, error))) return {};
  const auto text = read_text_file(output, kMaxSignatureBytes);
  if (text) {
    const auto payload = unverified_payload(*text, output);
    if (payload && payload->find(kModelSignature) != std::string::npos) return {};
  }
  return fail(ErrorCode::kExists,
              fmt::format("{}: exists and is not the signature of a model: not replaced",
                          printable(output)));
}

Status check_size(const std::string& path, uint64_t bytes) {
  if (bytes < kMaxSignatureBytes) return {};
  return bad_input(
      fmt::format("{}: its signature would have {} bytes or more, which no verifier "
                  "reads: too many files or shards",
                  printable(path), bytes));
}

// Returns a lower bound of the bytes that the entries of a statement take in base64.
uint64_t least_bytes(const ListedModel& model) {
  constexpr uint64_t kEntry = 100;  // a digest and the names of members
  uint64_t bytes = 0;
  for (const FileRange& range : model.ranges) bytes += range.name.size() + kEntry;
  return bytes / 3 * 4;
}

}  // namespace

std::string default_signature_path(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return (fs::path(path) / kSignatureName).string();
  return path + ".sig";
}

Result<SignedModel> sign_model(const std::string& path, const SigningKey& key,
                               const std::string& output, const DigestOptions& options,
                               ThreadPool& pool) {
  SignedModel result;
  result.signature = output;
  result.signer = FERRY_TRY(signer_of(key));  // an unusable key is found before hours of hashing
  FERRY_RETURN_IF_ERROR(check_replaceable(output));
  DigestOptions all = options;
  if (std::string own = path_inside(path, output); !own.empty()) {
    all.ignore_paths.push_back(std::move(own));
  }
  ListedModel model = FERRY_TRY(list_for_signing(path, all));
  FERRY_RETURN_IF_ERROR(check_size(path, least_bytes(model)));
  const std::string name = all.name.empty() ? model.tree.name() : all.name;
  ModelStatement statement{name, HashType::kSha256, all.shard_size, model.ignore_paths};
  statement.resources = FERRY_TRY(hash_listed(model, all, pool));
  result.digest = summarise(std::move(model), statement.resources, all);
  const std::string text = FERRY_TRY(sign_statement(write_statement(statement), key));
  FERRY_RETURN_IF_ERROR(check_size(path, text.size()));
  FERRY_RETURN_IF_ERROR(write_atomically(output, text + "\n", IfExists::kReplace));
  return result;
}

}  // namespace ferry::signing
