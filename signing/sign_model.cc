#include "signing/sign_model.h"

#include <filesystem>
#include <utility>

#include "signing/model_listing.h"
#include "signing/model_statement.h"
#include "signing/signature_file.h"

namespace ferry::signing {
namespace {

namespace fs = std::filesystem;

// The path of `output` in the folder `model`; empty where it is not inside of it.
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

}  // namespace

std::string default_signature_path(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return (fs::path(path) / kSignatureName).string();
  return path + ".sig";
}

Result<SignedModel> sign_model(const std::string& path, const SigningKey& key,
                               const std::string& output, const DigestOptions& options,
                               ThreadPool& pool) {
  SignedModel result{output, {}, FERRY_TRY(signer_of(key))};  // before hours of hashing
  FERRY_RETURN_IF_ERROR(prepare_signature_file(output));
  DigestOptions all = options;
  if (std::string own = path_inside(path, output); !own.empty()) {
    all.ignore_paths.push_back(std::move(own));
  }
  ListedModel model = FERRY_TRY(list_for_signing(path, all));
  ModelStatement statement{model.tree.name(), HashType::kSha256, all.shard_size, model.ignore_paths,
                           FERRY_TRY(hash_listed(model, all, pool))};
  result.digest = summarise(std::move(model), statement.resources, all);
  const std::string text = FERRY_TRY(sign_statement(write_statement(statement), key));
  FERRY_RETURN_IF_ERROR(write_signature_file(output, text));
  return result;
}

}  // namespace ferry::signing
