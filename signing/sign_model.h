// Signs a model (a folder or one file) as OpenSSF Model Signing 1.0 says. check_model.h is the
// counterpart.
#pragma once

#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "signing/model_digest.h"
#include "signing/sign_statement.h"
#include "signing/verify_envelope.h"

namespace ferry::signing {

struct SignedModel {
  std::string signature;  // the path of the file that was written
  ModelDigest digest;
  Signer signer;
};

// Returns PATH/model.sig for a folder and PATH.sig for a file.
std::string default_signature_path(const std::string& path);

// Writes the signature of the model at `path` to `output` atomically. If `output` is inside of the
// model, the signature leaves it out. An existing signature is replaced; any other existing file is
// kExists. Other errors are those of model_digest() and sign_statement().
Result<SignedModel> sign_model(const std::string& path, const SigningKey& key,
                               const std::string& output, const DigestOptions& options,
                               ThreadPool& pool);

}  // namespace ferry::signing
