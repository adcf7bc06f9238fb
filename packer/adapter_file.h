// Plans the data file of an adapter. Private to packer/.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/result.h"
#include "formats/ptd/ptd.h"
#include "packer/bundle_plan.h"
#include "packer/file_set.h"
#include "packer/manifest.h"
#include "packer/non_finite.h"

namespace ferry::packer {

// Tensors of adapters, with the index of each in FileSet::weights.
using AdapterWeights = std::vector<std::pair<const graph::Weight*, size_t>>;

// Plans the file with the tensors `factors`, in their order; equal recipes are stored once. Adds
// its weights to `set` and `weights`. The recipes are those of `adapter`, which must outlive the
// plan. kInternal for a factor that the adapter lacks or has in another type.
Result<FilePlan> plan_adapter_file(const AdapterInput& adapter,
                                   const std::vector<ptd::NamedTensor>& factors, FileSet& set,
                                   AdapterWeights& weights);

// Plans the file of the factors that change nothing, and describes it in `content`. Equal contents
// are stored once. The factors must outlive the plan.
Result<FilePlan> plan_no_adapter_file(const std::vector<const graph::LoweredFactor*>& factors,
                                      ptd::DataFile& content);

// Returns the manifest's entry of the adapter, with zeros for digests.
ManifestAdapter describe_adapter(const AdapterInput& adapter, const TensorSource& source);

// Sets the names of the adapters' weights for messages; `written` is indexed by weight.
void name_weights(const AdapterWeights& weights, const TensorSource& source,
                  std::vector<WrittenWeight>& written);

}  // namespace ferry::packer
