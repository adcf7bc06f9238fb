// Lists and hashes the parts of a model that are to be signed. Private to signing/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "signing/model_digest.h"
#include "signing/model_hash.h"
#include "signing/model_statement.h"
#include "signing/model_tree.h"

namespace ferry::signing {

struct ListedModel {
  ModelTree tree = {};
  std::vector<FileRange> ranges = {};
  std::vector<std::string> ignored = {}, ignore_paths = {};  // as in ModelDigest
  uint64_t files = 0, bytes = 0;
};

// Returns the errors of model_digest().
Result<ListedModel> list_for_signing(const std::string& path, const DigestOptions& options);

// Returns resources in ascending order of the names that the statement gives them.
Result<std::vector<Resource>> hash_listed(const ListedModel& model, const DigestOptions& options,
                                          ThreadPool& pool);

ModelDigest summarise(ListedModel model, const std::vector<Resource>& resources,
                      const DigestOptions& options);

}  // namespace ferry::signing
